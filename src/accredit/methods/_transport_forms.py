"""Distances of spans that have a closed form for all pairs at once: chamfer, kernel, cosine of means."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from accredit.methods._transport import Cloud, Nearest, distances, one_sided, span_means
from accredit.typing import Floats

__all__ = ["bandwidth", "chamfer", "cosine", "matrix_nearest", "mmd_rbf"]

_SAMPLE = 1000  # vectors of a group whose pairwise distances give the bandwidth


def matrix_nearest(
    here: list[Cloud], there: list[Cloud], pairwise: Callable[[Cloud, Cloud], Floats]
) -> Nearest:
    """Return each span's least distance to the other side.

    Args:
        here: clouds of one side.
        there: clouds of the other.
        pairwise: distances of all spans of two clouds ``[K, L]``.
    """
    best_h, best_t = ([np.full(c.first.size, np.inf) for c in side] for side in (here, there))
    pairs = 0
    for i, a in enumerate(here):
        for j, b in enumerate(there):
            found = pairwise(a, b)
            np.minimum(best_h[i], found.min(axis=1), out=best_h[i])
            np.minimum(best_t[j], found.min(axis=0), out=best_t[j])
            pairs += found.size
    return Nearest(best_h, best_t, pairs, pairs)


def chamfer(here: Cloud, there: Cloud) -> Floats:
    """Return half the sum of mean nearest distances both ways, for each pair of spans ``[K, L]``."""
    to, back = one_sided(distances(here.points, there.points), here, there)
    return (to + back) / 2.0


def cosine(here: Cloud, there: Cloud) -> Floats:
    """Return ``1 - cos`` of the span means ``[K, L]``; 1 where a mean is 0."""
    units = []
    for cloud in (here, there):
        means = span_means(cloud.points, cloud.first, cloud.stop)
        norm = np.linalg.norm(means, axis=1, keepdims=True)
        units.append(np.divide(means, norm, out=np.zeros_like(means), where=norm > 0))
    found: Floats = np.maximum(0.0, 1.0 - units[0] @ units[1].T)
    return found


def mmd_rbf(here: Cloud, there: Cloud, width: float) -> Floats:
    """Return the root of the biased MMD^2 with kernel ``exp(-d^2 / (2 width^2))`` ``[K, L]``.

    Args:
        here: cloud.
        there: cloud.
        width: bandwidth; at 0 only equal vectors are alike.
    """
    across = _kernel(distances(here.points, there.points), width)
    rows = span_means(across, here.first, here.stop)
    mixed = span_means(np.ascontiguousarray(rows.T), there.first, there.stop).T
    square = np.add.outer(_within(here, width), _within(there, width)) - 2.0 * mixed
    return np.sqrt(np.maximum(0.0, square))


def _within(cloud: Cloud, width: float) -> Floats:
    found = np.empty(cloud.first.size)
    for k, (a, b) in enumerate(zip(cloud.first.tolist(), cloud.stop.tolist(), strict=True)):
        span = cloud.points[a:b]
        found[k] = _kernel(distances(span, span), width).mean()
    return found


def _kernel(distance: Floats, width: float) -> Floats:
    if width == 0:
        return np.asarray(distance == 0, np.float64)
    found: Floats = np.exp(-0.5 * np.square(distance / width))
    return found


def bandwidth(points: Sequence[Floats]) -> float:
    """Return the median distance of a group's vectors, of evenly spaced ones where there are many.

    Args:
        points: vectors of each rollout.
    """
    size = sum(len(rows) for rows in points)
    some = np.concatenate([rows[:: -(-size // _SAMPLE)] for rows in points])
    pairs = distances(some, some)[np.triu_indices(len(some), 1)]
    return float(np.median(pairs))
