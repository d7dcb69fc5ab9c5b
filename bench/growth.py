"""How time grows with size: the exponent of a power law, fitted and between neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from accredit import assign
from bench.inputs import Columns, agent_columns
from bench.timing import Contestant, race

__all__ = ["exponent", "growth_section"]

METHODS = ("grpo", "rloo", "gigpo")
TOKENS = 13


def growth_section(sizes: Sequence[int], n: int) -> dict[str, Any]:
    """Seconds of `assign` and `.tokens` at each number of steps."""
    best: dict[str, list[float]] = {m: [] for m in METHODS}
    spread: dict[str, list[float]] = {m: [] for m in METHODS}
    for size in sizes:
        source = agent_columns(size, TOKENS)
        calls = {m: Contestant(_call(m, source)) for m in METHODS}
        for m, timing in race(calls, n).items():
            best[m].append(timing.best)
            spread[m].append(timing.to_dict()["spread"][1])
    rows = [
        {
            "method": m,
            "best_s": best[m],
            "worst_over_best": spread[m],
            "exponent": exponent(sizes, best[m]),
            "steepest": max(exponent(sizes[i : i + 2], best[m][i : i + 2]) for i in range(len(sizes) - 1)),
        }
        for m in METHODS
    ]
    return {"steps": list(sizes), "tokens_a_step": TOKENS, "n": n, "rows": rows}


def _call(method: str, source: Columns) -> Callable[[Any], Any]:
    return lambda _: assign(source.batch(), method).tokens


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Slope of log seconds on log size, least squares."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
