"""What adapters that live inside a training loop share: cards by name, warnings in the log."""

from __future__ import annotations

from logging import Logger
from typing import Any

import accredit as ac
from accredit.errors import ParamError, suggest

__all__ = ["card_of", "log_findings"]


def card_of(method: str) -> Any:
    """Return the card of a method of the catalogue.

    Args:
        method: id, alias, or ``"id:name=value,…"``.

    Raises:
        ParamError: for an unknown one.

    Example:
        >>> card_of("dr-grpo").id
        'grpo'
    """
    head = method.partition(":")[0]
    cards = {name: card for card in ac.catalog() for name in (card.id, *card.aliases)}
    if head not in cards:
        raise ParamError(f"no method {head!r}", hint=suggest(head, cards))
    return cards[head]


def log_findings(logger: Logger, name: str, credit: ac.Credit) -> None:
    """Log the warnings and errors among a result's findings, and which fallbacks were taken.

    Args:
        logger: of the adapter.
        name: of the method, as the trainer's user wrote it.
        credit: the result.
    """
    for finding in credit.findings:
        if finding.severity != "info":
            logger.warning("%s: %s: %s", name, finding.code, finding.message)
    taken = {fallback: n for fallback, n in credit.fallbacks.items() if n}
    if taken:
        logger.info("%s took fallbacks: %s", name, taken)
