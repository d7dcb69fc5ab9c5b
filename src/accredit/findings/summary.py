"""The numbers of a batch for people: sizes, distributions, shares; JSON-ready."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from accredit.findings.scene import Scene
from accredit.typing import Array

__all__ = ["distribution", "summarise"]

_BARS = 24


def summarise(scene: Scene) -> dict[str, Any]:
    """Return the numbers of a batch, JSON-ready.

    Args:
        scene: the batch and its plan.

    Returns:
        ``rollouts`` (read = used + excluded, excluded by code; scored, counted, statuses),
        ``groups`` (count, sizes, spread: all_pass, all_fail, tie, mixed, single, empty),
        ``steps``, ``tokens`` (count, per rollout, trained), ``reward`` and ``score`` (distributions),
        ``success`` (share of scored rollouts with a positive outcome), ``states`` (shares), ``signals``
        (share of steps, or of rollouts, that carry each column).
    """
    return {
        "rollouts": _rollouts(scene),
        "groups": _groups(scene),
        "steps": {
            "count": scene.batch.n_steps,
            "per_rollout": distribution(scene.index.steps_R, whole=True),
        },
        "tokens": _tokens(scene),
        **_rewards(scene),
        "states": _states(scene),
        "signals": _signals(scene),
        "outcome_in_steps": scene.index.outcome_in_steps,
    }


def distribution(values: Array, *, whole: bool = False) -> dict[str, Any]:
    """Return size, mean, deviation, quartiles and a histogram; few distinct values get one bar each.

    Args:
        values: the numbers; those that are not finite are left out.
        whole: the values are counts, so edges fall between whole numbers.

    Returns:
        ``n``; if n > 0 also ``mean, std`` (n - 1) ``, min, q25, median, q75, max``, and either
        ``values`` or ``edges`` with ``counts``.

    Example:
        >>> distribution(np.array([0.0, 1.0, 1.0]))["counts"]
        [1, 2]
    """
    values = values[np.isfinite(values)]
    if not values.size:
        return {"n": 0}
    found, counts = np.unique(values, return_counts=True)
    size = float(np.abs(values).max()) or 1.0  # sums of scaled values cannot overflow
    quarter = np.quantile(values / size, [0.25, 0.5, 0.75]) * size
    head = {
        "n": int(values.size),
        "mean": float(np.mean(values / size)) * size,
        "std": float(np.std(values / size, ddof=1)) * size if values.size > 1 else 0.0,
        "min": float(found[0]),
        "q25": float(quarter[0]),
        "median": float(quarter[1]),
        "q75": float(quarter[2]),
        "max": float(found[-1]),
    }
    if found.size <= _BARS:
        return {**head, "values": found.tolist(), "counts": counts.tolist()}
    if whole:
        width = int(np.ceil((found[-1] - found[0] + 1) / _BARS))
        edges = np.arange(found[0], found[-1] + width + 1, width) - 0.5
        return {**head, "edges": edges.tolist(), "counts": np.histogram(values, edges)[0].tolist()}
    counts, edges = np.histogram(values / size, _BARS)
    return {**head, "edges": (edges * size).tolist(), "counts": counts.tolist()}


def _rollouts(scene: Scene) -> dict[str, Any]:
    batch, index = scene.batch, scene.index
    used, excluded = len(batch), len(batch.excluded)
    by_code = Counter(e.code or "other" for e in batch.excluded)
    named = {s: int(index.has_status(s).sum()) for s in ("finished", "truncated", "failed", "rejected")}
    return {
        "read": used + excluded,
        "used": used,
        "excluded": excluded,
        "excluded_by_code": dict(sorted(by_code.items())),
        "scored": int(scene.scored_R.sum()),
        "unscored": int((~scene.scored_R & ~index.has_status("rejected")).sum()),
        "counted": int(scene.counted_R.sum()),
        "branches": int(scene.present("parent_R").sum()),
        "statuses": {**{s: n for s, n in named.items() if n}, "unsaid": used - sum(named.values())},
    }


def _groups(scene: Scene) -> dict[str, Any]:
    index, size_G = scene.index, scene.group_size_G
    sizes, counts = np.unique(size_G, return_counts=True)
    kinds = scene.ties
    return {
        "count": index.n_groups,
        "sizes": {str(s): int(n) for s, n in zip(sizes.tolist(), counts.tolist(), strict=True)},
        "smallest": int(size_G.min(initial=len(scene.batch))),
        "largest": int(size_G.max(initial=0)),
        "spread": kinds.counts(),
        "zero_spread_share": _share(kinds.all_pass | kinds.all_fail | kinds.tie),
    }


def _share(mask: Array) -> float:
    return float(mask.mean()) if mask.size else 0.0


def _tokens(scene: Scene) -> dict[str, Any]:
    index = scene.index
    return {
        "count": scene.batch.n_tokens,
        "per_rollout": distribution(index.tokens_R, whole=True),
        "trained": int(index.tokens_S[index.trainable_S].sum()),
        "context": 0 if scene.batch.context_start_S1 is None else int(scene.batch.context_start_S1[-1]),
    }


def _rewards(scene: Scene) -> dict[str, Any]:
    index = scene.index
    outcome = index.outcome_R[index.scored_R]
    return {
        "reward": distribution(outcome),
        "score": distribution(scene.score_R[scene.scored_R]),
        "success": _share(outcome > 0),
    }


def _states(scene: Scene) -> dict[str, Any]:
    found = scene.revisits
    return {
        "steps": found.steps if found else 0,
        "distinct": found.distinct if found else 0,
        "revisited": found.anywhere if found else 0.0,
        "shared": found.across if found else 0.0,
        "gains": scene.gains,
    }


def _signals(scene: Scene) -> dict[str, float]:
    return {name: _share(scene.present(name)) for name in sorted(scene.batch.columns)}
