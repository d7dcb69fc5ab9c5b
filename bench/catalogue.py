"""One line for every method in the catalogue: seconds for 100k steps and 1.3 M tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from accredit import assign, catalog
from accredit.data import MethodCard
from accredit.engine import missing_needs
from accredit.errors import AccreditError
from bench.growth import exponent
from bench.inputs import Columns, every_signal
from bench.timing import Contestant, race

__all__ = ["ELSEWHERE", "catalogue_section"]

TOKENS = 13
ELSEWHERE = {"shear": "spans"}  # what takes minutes at this size, and the section that times it


def catalogue_section(sizes: Sequence[int], n: int) -> dict[str, Any]:
    """Seconds at each size, and the exponent between them; a method that cannot run says why."""
    sources = [every_signal(size, TOKENS) for size in sizes]
    rows = [_row(card, sizes, sources, n) for card in catalog()]
    return {"steps": list(sizes), "tokens": [s.n_tokens for s in sources], "rows": rows}


def _row(card: MethodCard, sizes: Sequence[int], sources: Sequence[Columns], n: int) -> dict[str, Any]:
    row: dict[str, Any] = {"method": card.id, "yields": card.yields, "needs": sorted(card.needs)}
    if card.id in ELSEWHERE:
        return {**row, "elsewhere": ELSEWHERE[card.id]}
    try:
        _run(card, sources[0])(None)
    except AccreditError as error:
        return {**row, "not_run": str(error), "unmet": missing_needs(sources[0].batch(), card)}
    timings = [race({card.id: Contestant(_run(card, s))}, n, budget_s=30)[card.id] for s in sources]
    best = [t.best for t in timings]
    return {**row, "seconds": [t.to_dict() for t in timings], "exponent": exponent(sizes, best)}


def _run(card: MethodCard, source: Columns) -> Callable[[Any], Any]:
    if card.yields == "table":
        return lambda _: assign(source.batch(), card.id).table
    if "stochastic" in card.tags:
        return lambda _: assign(source.batch(), card.id, seed=0).tokens
    return lambda _: assign(source.batch(), card.id).tokens
