"""Methods whose rules contradict each other, as their cards declare by tags."""

from __future__ import annotations

from collections.abc import Mapping

from accredit.data import MethodCard

__all__ = ["OPPOSED", "contradictions"]

# (tag, what its methods do), (tag, what the others do), about what.
OPPOSED = (
    (
        ("amplifies_uncertain_failures", "blamed more"),
        ("attenuates_uncertain_failures", "blamed less"),
        "uncertain decisions of failures",
    ),
    (
        ("amplifies_uncertain_successes", "credited more"),
        ("attenuates_uncertain_successes", "credited less"),
        "uncertain decisions of successes",
    ),
)


def contradictions(cards: Mapping[str, MethodCard]) -> tuple[str, ...]:
    """Return a sentence for each matter on which some of these methods do the opposite of others.

    Args:
        cards: of the methods, by the names to call them.

    Example:
        >>> from accredit.methods import get_method
        >>> contradictions({name: get_method(name)[0].card for name in ("grpo", "hapo", "eapo")})
        ('Opposite rules for uncertain decisions of failures: blamed more by hapo, blamed less by eapo',)
    """
    found = []
    for (more, does), (less, undoes), matter in OPPOSED:
        first, second = ([name for name, card in cards.items() if tag in card.tags] for tag in (more, less))
        if first and second:
            found.append(
                f"Opposite rules for {matter}: {does} by {', '.join(first)}, {undoes} by {', '.join(second)}"
            )
    return tuple(found)
