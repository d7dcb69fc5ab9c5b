"""`shear` beside the SciPy calls that it needs, and beside itself without pruning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from scipy.spatial.distance import cdist

from accredit import Batch, assign
from accredit.methods._transport import EXACT, Cloud, Solver, nearest, wasserstein
from accredit.typing import Floats
from bench.timing import Contestant, race

__all__ = ["spans_section"]

WINDOW, STRIDE = 100, 25  # the defaults of the method

Maker: TypeAlias = Callable[[np.random.Generator, int, int], Floats]


def spans_section(rollouts: int, tokens: int, width: int, n: int) -> dict[str, Any]:
    """Seconds on hidden states of three kinds, from little to prune to much."""
    rows = [_row(name, _group(make, rollouts, tokens, width), n) for name, make in KINDS.items()]
    return {"rollouts": rollouts, "tokens": tokens, "width": width, "rows": rows}


def _row(name: str, points: list[Floats], n: int) -> dict[str, Any]:
    clouds = [_cloud(rows) for rows in points]
    here, there = clouds[::2], clouds[1::2]
    costs: list[Floats] = []

    def keep(cost: Floats) -> float:
        costs.append(cost.copy())
        return wasserstein(cost)

    found = nearest(here, there, Solver(keep, EXACT.dear))

    def scipy_alone(_: Any) -> list[float]:
        for a in here:
            for b in there:
                cdist(a.points, b.points)
        return [wasserstein(cost) for cost in costs]

    batch = _batch(points)
    seconds = race(
        {
            "shear": Contestant(lambda _: assign(batch, "shear").tokens),
            "SciPy alone": Contestant(scipy_alone),
            "pruned": Contestant(lambda _: nearest(here, there)),
            "without pruning": Contestant(lambda _: nearest(here, there, prune=False)),
        },
        n,
        budget_s=120,
    )
    best = {key: timing.best for key, timing in seconds.items()}
    return {
        "data": name,
        "solved": found.solved,
        "pairs": found.pairs,
        "seconds": {key: timing.to_dict() for key, timing in seconds.items()},
        "over_scipy": best["shear"] / best["SciPy alone"],
        "over_unpruned": best["pruned"] / best["without pruning"],
    }


def _cloud(rows: Floats) -> Cloud:
    first = STRIDE * np.arange(1 + max(0, -(-(len(rows) - WINDOW) // STRIDE)))
    return Cloud(rows, first, np.minimum(first + WINDOW, len(rows)))


def _batch(points: list[Floats]) -> Batch:
    records = [
        {"id": f"r{i}", "group": "g", "reward": float(i % 2 == 0), "steps": [{"n_tokens": len(rows)}]}
        for i, rows in enumerate(points)
    ]
    return Batch.from_records(records).with_column("hidden_T", np.concatenate(points))


def _group(make: Maker, rollouts: int, tokens: int, width: int) -> list[Floats]:
    rng = np.random.default_rng(0)
    return [make(rng, int(rng.integers(tokens - tokens // 10, tokens + 1)), width) for _ in range(rollouts)]


def _noise(rng: np.random.Generator, n: int, width: int) -> Floats:
    """Independent vectors: every pair of spans is about as far apart."""
    return rng.normal(size=(n, width))


def _topics(rng: np.random.Generator, n: int, width: int) -> Floats:
    """Stretches of 60 tokens about one of twelve topics, the same ones in every rollout."""
    topics = 1.5 * np.random.default_rng(1).normal(size=(12, width))
    picked = np.repeat(rng.integers(0, 12, -(-n // 60)), 60)[:n]
    return topics[picked] + 0.7 * rng.normal(size=(n, width))


def _shared(rng: np.random.Generator, n: int, width: int) -> Floats:
    """Slowly moving vectors; the first third is the same in every rollout."""
    own = _drifting(rng, n, width)
    own[: n // 3] = _drifting(np.random.default_rng(2), n, width)[: n // 3]
    return own


def _drifting(rng: np.random.Generator, n: int, width: int) -> Floats:
    found = rng.normal(size=(n, width))
    for t in range(1, n):
        found[t] = 0.95 * found[t - 1] + (1 - 0.95**2) ** 0.5 * found[t]
    return found


KINDS: Mapping[str, Maker] = {"noise": _noise, "topics": _topics, "a shared beginning": _shared}
