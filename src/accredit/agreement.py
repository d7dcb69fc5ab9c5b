"""Rank agreement of two credits of the same steps, and intervals by a bootstrap over groups or seeds.

Rollouts of a group share a task, so they are not independent: groups are what is resampled.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.sparse import csr_array
from scipy.special import ndtr, ndtri

from accredit.typing import Floats, Ints

__all__ = [
    "RESAMPLES",
    "Estimate",
    "bootstrap_means",
    "concordance",
    "draw_weights",
    "estimate",
    "interval",
    "kendall",
    "rms",
    "spearmans",
]

_CHUNK = 4_000_000  # cells of one resampling matrix held at a time
_TAIL = 2.5  # percent
RESAMPLES = 2000
_FEW = 30  # units below which the interval of a mean is corrected for bias and skewness (BCa)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic with its 95 % percentile interval.

    Args:
        value: the statistic on all steps.
        low: lower end; None with one group, without resamples, or where most resamples leave the
            statistic undefined.
        high: upper end, likewise.
    """

    value: float
    low: float | None = None
    high: float | None = None

    def to_dict(self) -> dict[str, float | None]:
        """Return the fields as JSON-ready values."""
        return {"value": self.value, "low": self.low, "high": self.high}


def draw_weights(n_groups: int, n_boot: int, seed: int) -> Floats:
    """Return how often each group occurs in each resample ``[B, G]``; no rows for a single group.

    Args:
        n_groups: G.
        n_boot: B.
        seed: of the draws.
    """
    if n_groups < 2:
        return np.zeros((0, n_groups))
    rng = np.random.default_rng(seed)
    return rng.multinomial(n_groups, np.full(n_groups, 1 / n_groups), n_boot).astype(np.float64)


def spearmans(values: Sequence[Floats], group_S: Ints, weights_BG: Floats) -> list[Estimate | None]:
    """Return Spearman's rho of each pair of value arrays (0-1, 0-2, …, 1-2, …).

    Ties get their mean rank; every resample is ranked anew. None where one side is constant.

    Args:
        values: arrays ``[S]``.
        group_S: dense group code of each step.
        weights_BG: from `draw_weights`.

    Example:
        >>> a, b = np.array([1.0, 2, 3, 4]), np.array([1.0, 2, 4, 3])
        >>> found = spearmans([a, b], np.zeros(4, int), draw_weights(1, 100, 0))
        >>> round(found[0].value, 12), found[0].low
        (0.8, None)
    """
    n_groups = weights_BG.shape[1]
    codes = [np.unique(v, return_inverse=True)[1] for v in values]
    counts = [_counts(group_S, c, n_groups) for c in codes]
    whole = next(_rhos(codes, counts, group_S, np.ones((1, n_groups))))[0]
    draws = list(_rhos(codes, counts, group_S, weights_BG))
    resampled = np.concatenate(draws) if draws else np.zeros((0, whole.size))
    return [estimate(float(v), resampled[:, p]) for p, v in enumerate(whole)]


def _counts(group_S: Ints, code_S: Ints, n_groups: int) -> csr_array:
    """Number of steps of each group at each distinct value ``[U, G]``."""
    shape = (int(code_S.max(initial=-1)) + 1, n_groups)
    return csr_array((np.ones(code_S.size), (code_S, group_S)), shape=shape)


def _rhos(
    codes: Sequence[Ints], counts: Sequence[csr_array], group_S: Ints, weights_BG: Floats
) -> Iterator[Floats]:
    """Yield rho ``[draws, pairs]`` of some resamples at a time; NaN where undefined."""
    size = max(1, _CHUNK // max(1, group_S.size))
    for start in range(0, len(weights_BG), size):
        w_BG = weights_BG[start : start + size]
        w_BS = w_BG[:, group_S]
        ranks = [_centred_ranks(n, c, w_BG) for n, c in zip(counts, codes, strict=True)]
        square = [np.einsum("bs,bs,bs->b", w_BS, r, r) for r in ranks]
        pairs = [
            _over(np.einsum("bs,bs,bs->b", w_BS, ranks[i], ranks[j]), square[i] * square[j])
            for i, j in combinations(range(len(ranks)), 2)
        ]
        yield np.stack(pairs, axis=1) if pairs else np.zeros((len(w_BG), 0))


def _centred_ranks(counts_UG: csr_array, code_S: Ints, w_BG: Floats) -> Floats:
    """Mid-rank of each step in each resample, minus the mean rank ``[B, S]``."""
    at_BU = (counts_UG @ w_BG.T).T
    middle = np.cumsum(at_BU, axis=1) - at_BU / 2
    found: Floats = (middle - at_BU.sum(axis=1, keepdims=True) / 2)[:, code_S]
    return found


def _over(top: Floats, square: Floats) -> Floats:
    """``top / sqrt(square)``, NaN where one side is constant; the caller drops those."""
    found: Floats = np.divide(top, np.sqrt(square), out=np.full_like(top, np.nan), where=square > 1e-12)
    return found


def kendall(a: Floats, b: Floats, group_S: Ints, weights_BG: Floats) -> Estimate | None:
    """Return Kendall's tau-b of two arrays, None where one side is constant.

    In a resample each drawn step is compared with the steps observed, and the deviation doubled:
    tau is a mean over pairs, so this equals the full resample to first order in 1/G, at
    ``O(S log S)`` instead of ``O(S^2)``.

    Args:
        a: ``[S]``.
        b: ``[S]``.
        group_S: dense group code of each step.
        weights_BG: from `draw_weights`.

    Example:
        >>> a, b = np.array([1.0, 2, 3, 4]), np.array([1.0, 2, 4, 3])
        >>> round(kendall(a, b, np.zeros(4, int), draw_weights(1, 100, 0)).value, 12)
        0.666666666667
    """
    n_groups = weights_BG.shape[1]
    counts = concordance(a, b)
    sums = [np.bincount(group_S, c, n_groups) for c in counts]
    top, apart_a, apart_b = (float(s.sum()) for s in sums)
    if apart_a == 0 or apart_b == 0:
        return None
    value = float(top / np.sqrt(apart_a) / np.sqrt(apart_b))
    half = _over(weights_BG @ sums[0], (weights_BG @ sums[1]) * (weights_BG @ sums[2]))
    return estimate(value, np.clip(2 * half - value, -1, 1))


def concordance(a: Floats, b: Floats) -> tuple[Floats, Floats, Floats]:
    """Return for each step: agreeing minus disagreeing others, others apart in a, others apart in b.

    ``sum_j sign(a_i - a_j) sign(b_i - b_j)``, ``#{j: a_j != a_i}``, ``#{j: b_j != b_i}``, each
    ``[S]``.

    Args:
        a: ``[S]``.
        b: ``[S]``.
    """
    n = a.size
    code_a, code_b = (np.unique(v, return_inverse=True)[1] for v in (a, b))
    width = int(code_b.max(initial=0)) + 1
    cells, cell_S, many = np.unique(code_a * width + code_b, return_inverse=True, return_counts=True)
    x, y = cells // width, cells % width
    less_x, equal_x = _less_and_equal(x, many)
    less_y, equal_y = _less_and_equal(y, many)
    both_less = _less_before(x, y, many)
    # Others that are lower in one and higher in the other.
    crossed = less_x - _less_within(y, x, many) + less_y - _less_within(x, y, many) - 2 * both_less
    agreeing = n - equal_x - equal_y + many - 2 * crossed
    return tuple(v.astype(np.float64)[cell_S] for v in (agreeing, n - equal_x, n - equal_y))  # type: ignore[return-value]


def _less_and_equal(code: Ints, many: Ints) -> tuple[Ints, Ints]:
    """Number of steps below and at each cell's own code."""
    at = np.bincount(code, many).astype(np.int64)
    return (np.cumsum(at) - at)[code], at[code]


def _less_within(key: Ints, value: Ints, many: Ints) -> Ints:
    """Number of steps that share a cell's key and have a smaller value."""
    order = np.lexsort((value, key))
    before = np.cumsum(many[order]) - many[order]
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    found = np.empty_like(before)
    found[order] = before - np.repeat(before[first], np.diff(first, append=key.size))
    return found


def _less_before(x: Ints, y: Ints, many: Ints) -> Ints:
    """Number of steps with smaller x and smaller y, by merging ever longer runs of cells."""
    order = np.lexsort((-y, x))  # equal x: larger y first, so that it never counts as smaller
    y, many = y[order], many[order]
    found = np.zeros(y.size, np.int64)
    place, top = np.arange(y.size), int(y.max(initial=0)) + 1
    width = 1
    while width < y.size:
        block, left = place // (2 * width), place // width % 2 == 0
        by = np.argsort((block * top + y) * 2 + left, kind="stable")
        seen = np.cumsum(np.where(left, many, 0)[by])
        opening = np.flatnonzero(np.diff(block[by], prepend=-1))
        at_start = np.where(opening > 0, seen[opening - 1], 0)
        inside = seen - np.repeat(at_start, np.diff(opening, append=y.size))
        found[by] += np.where(left[by], 0, inside)
        width *= 2
    back = np.empty_like(found)
    back[order] = found
    return back


def estimate(value: float, draws: Floats) -> Estimate | None:
    """Return a value with the 95 % percentile interval of its finite draws; None for NaN.

    Args:
        value: the statistic.
        draws: its resamples ``[B]``, NaN where undefined.
    """
    if not np.isfinite(value):
        return None
    kept = draws[np.isfinite(draws)]
    if 2 * kept.size <= draws.size or not kept.size:
        return Estimate(value)
    low, high = np.percentile(kept, [_TAIL, 100 - _TAIL])
    return Estimate(value, float(low), float(high))


def bootstrap_means(values_N: Floats, seed: int = 0, resamples: int = RESAMPLES) -> Floats:
    """Return the mean of each resample of the units ``[B]``.

    Args:
        values_N: one number a unit: a group, or a task seed ``[N]``.
        seed: of the draws; equal seeds and N give equal draws, so pairs stay pairs.
        resamples: B.
    """
    found: Floats = _weights(values_N.size, seed, resamples) @ values_N
    return found


@functools.lru_cache(maxsize=64)
def _weights(n: int, seed: int, resamples: int) -> Floats:
    """Share of each unit in each resample ``[B, N]``."""
    rng = np.random.default_rng(seed)
    drawn: Floats = rng.multinomial(n, np.full(n, 1 / n), resamples) / n
    drawn.flags.writeable = False
    return drawn


def interval(values_N: Floats, seed: int = 0, resamples: int = RESAMPLES) -> Estimate | None:
    """Return the mean over units with its 95 % bootstrap interval.

    Percentile; bias-corrected and accelerated (BCa) with fewer than 30 units.

    Args:
        values_N: one number a unit: a group, or a task seed ``[N]``.
        seed: of the draws.
        resamples: 0 = no interval.

    Returns:
        None without units; an estimate without ends for a single one.

    Example:
        >>> interval(np.array([0.5, 0.5])).low
        0.5
    """
    if not values_N.size:
        return None
    value = float(values_N.mean())
    if values_N.size < 2 or not resamples:
        return Estimate(value)
    draws = bootstrap_means(values_N, seed, resamples)
    tails = np.array([_TAIL, 100 - _TAIL]) / 100
    if values_N.size < _FEW:
        tails = _corrected(values_N, draws, tails)
    low, high = np.quantile(draws, tails)
    return Estimate(value, float(min(low, value)), float(max(high, value)))


def _corrected(values_N: Floats, draws: Floats, tails: Floats) -> Floats:
    """Tails of the BCa interval (Efron 1987): shifted by the bias z0, stretched by the skewness."""
    centred = values_N - values_N.mean()
    square = float(centred @ centred)
    if square <= 1e-24 * max(1.0, float(values_N @ values_N)):
        return tails
    below = np.mean(draws < values_N.mean()) + np.mean(draws == values_N.mean()) / 2
    z0 = float(ndtri(np.clip(below, 1 / draws.size, 1 - 1 / draws.size)))
    skew = float((centred**3).sum()) / (6 * square**1.5)  # of the mean: the jackknife in closed form
    z = z0 + ndtri(tails)
    found: Floats = ndtr(z0 + z / np.maximum(1 - skew * z, 1e-6))
    return found


def rms(values: Floats) -> float:
    """Return the root mean square; scaled first, so that large credit does not overflow.

    Args:
        values: ``[S]``.

    Example:
        >>> rms(np.array([3.0, -3.0]))
        3.0
    """
    top = float(np.abs(values).max(initial=0.0))
    return top * float(np.sqrt(np.mean((values / top) ** 2))) if top else 0.0
