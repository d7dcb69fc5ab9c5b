"""What adapters that live inside a training loop share: cards by name, warnings in the log."""

from __future__ import annotations

from logging import Logger
from typing import Any

import accredit as ac

__all__ = ["card_of", "log_findings"]


def card_of(method: str) -> Any:
    """Return the card of a method of the catalogue.

    Args:
        method: id, alias, or ``"id:name=value,…"``, known to exist.

    Example:
        >>> card_of("dr-grpo").id
        'grpo'
    """
    head = method.partition(":")[0]
    return next(card for card in ac.catalog() if head == card.id or head in card.aliases)


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
