"""How rules that contradict each other fared where the truth of every token is known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from accredit.data import MethodCard
from accredit.methods._contradictions import OPPOSED

__all__ = ["measured"]

# The measure that a matter is about.
_MEASURES = {
    "uncertain decisions of failures": ("spearman_failure", "failed"),
    "uncertain decisions of successes": ("spearman_success", "successful"),
}


def measured(cards: Mapping[str, MethodCard]) -> tuple[str, ...]:
    """Return a sentence for each matter on which some of these methods do the opposite of others.

    The numbers are those of ``accredit bench --tokens --scale full`` that docs/benchmark.md shows.

    Args:
        cards: of the methods, by the names to call them.

    Example:
        >>> from accredit.methods import get_method
        >>> found = measured({name: get_method(name)[0].card for name in ("hapo", "eapo")})
        >>> found[0].startswith("Inside failed rollouts of toklm, where the truth of every token is known")
        True
    """
    known = _evidence()
    found = []
    for (more, _), (less, _), matter in OPPOSED:
        measure, which = _MEASURES[matter]
        parties = {name: c for name, c in cards.items() if {more, less} & c.tags}
        if len({more in c.tags for c in parties.values()}) < 2:
            continue
        by_id = known["methods"]
        told = [f"{name} {_shown(by_id[c.id][measure])}" for name, c in parties.items() if c.id in by_id]
        if told:
            found.append(
                f"Inside {which} rollouts of toklm, where the truth of every token is known, Spearman with it"
                f" is ({known['tasks']} tasks, 95 % interval; docs/benchmark.md, Tokens): {', '.join(told)}"
            )
    return tuple(found)


def _shown(numbers: Sequence[float]) -> str:
    value, low, high = (f"{number:.2f}" for number in numbers)
    return f"{value} ({low} to {high})"


@cache
def _evidence() -> dict[str, Any]:
    text = files("accredit").joinpath("token_evidence.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
