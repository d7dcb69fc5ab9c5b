"""Every method with a number a token: seconds for 10 M tokens, from columns of what it needs."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from accredit import assign, catalog
from accredit.data import MethodCard
from accredit.engine import missing_needs
from accredit.errors import AccreditError
from bench.catalogue import ELSEWHERE
from bench.inputs import BEYOND_CARD, every_signal
from bench.timing import Contestant, race

__all__ = ["token_cards", "tokens_section"]

TOKENS = 130  # of a step
PATIENCE = 60.0  # seconds that one call may take


def token_cards(only: Collection[str] | None = None) -> list[MethodCard]:
    """Cards of the methods that yield a number a token; ``only`` = those of these ids."""
    cards = [card for card in catalog() if card.yields == "token" and card.id not in ELSEWHERE]
    return [card for card in cards if only is None or card.id in only]


def tokens_section(
    steps: int, n: int, only: Collection[str] | None = None, tokens: int = TOKENS
) -> dict[str, Any]:
    """Seconds of `assign` with defaults and `.tokens`; a method that cannot run says why.

    Methods are tried on a thousandth, a hundredth and a tenth of the steps first: one that would be
    too slow at the next size is not run on it, and tells what it took.
    """
    rows = [_row(card, steps, n, tokens) for card in token_cards(only)]
    return {"steps": steps, "tokens": max((row["tokens"] for row in rows), default=0), "rows": rows}


def _row(card: MethodCard, steps: int, n: int, tokens: int) -> dict[str, Any]:
    row: dict[str, Any] = {"method": card.id, "needs": sorted(card.needs), "tokens": steps * tokens}
    needs = {*card.needs, *BEYOND_CARD.get(card.id, ())}
    try:
        for share in (1000, 100, 10):
            if steps >= 12 * share:
                few = every_signal(steps // share, tokens, needs=needs)
                began = time.process_time()
                assign(few.batch(), card.id).tokens  # noqa: B018 - tokens are made when they are read
                took = time.process_time() - began
                if 10 * took > PATIENCE:
                    return {**row, "too_slow": {"tokens": few.n_tokens, "seconds": took}}
        source = every_signal(steps, tokens, needs=needs)
        timing = race({card.id: Contestant(lambda _: assign(source.batch(), card.id).tokens)}, n)
    except AccreditError as error:
        few = every_signal(12, tokens, needs=needs)
        return {**row, "not_run": str(error), "unmet": missing_needs(few.batch(), card)}
    return {**row, "tokens": source.n_tokens, "seconds": timing[card.id].to_dict()}
