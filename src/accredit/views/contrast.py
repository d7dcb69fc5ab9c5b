"""Two methods on the same steps: agreement, its interval, and where they differ most."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from accredit.typing import Floats, Ints
from accredit.views.colour import domain
from accredit.views.decisive import first_of_each

if TYPE_CHECKING:
    from accredit.views.sheet import Sheet

__all__ = ["Contrast", "Interval", "contrast", "contrasts", "rank_correlation"]

RESAMPLES = 2_000
WORST = 10


class Interval(NamedTuple):
    """An estimate with its 95 % percentile interval; ``low``/``high`` are None with one group."""

    value: float
    low: float | None
    high: float | None


class Contrast(NamedTuple):
    """How two methods' step credits compare.

    Attributes:
        rho: Spearman's rank correlation with cluster-bootstrap interval, None where undefined.
        quadrants: counts of (both +, + -, - +, both -, one of them 0, both 0).
        worst: steps of largest ``|a / end_a - b / end_b|`` where ``end`` is the colour domain, one a
            rollout.
    """

    rho: Interval | None
    quadrants: tuple[int, int, int, int, int, int]
    worst: tuple[int, ...]


def contrasts(sheet: Sheet) -> list[dict[str, Any]]:
    """Return every pair of methods as JSON-ready fields: a, b, rho, quadrants, worst."""
    out = []
    for a, b in combinations(range(len(sheet.credits)), 2):
        found = contrast(sheet.credit_MS[a], sheet.credit_MS[b], sheet.group_S, sheet.rollout_S)
        rho = None if found.rho is None else list(found.rho)
        out.append(
            {"a": a, "b": b, "rho": rho, "quadrants": list(found.quadrants), "worst": list(found.worst)}
        )
    return out


def contrast(a: Floats, b: Floats, group_S: Ints, rollout_S: Ints) -> Contrast:
    """Compare two credits of the same steps.

    Args:
        a: ``[S]`` credit of one method.
        b: ``[S]`` credit of the other.
        group_S: ``[S]`` group of each step; groups are resampled, for rollouts of a group are not
            independent.
        rollout_S: ``[S]`` rollout of each step, ascending.

    Example:
        >>> one = np.zeros(3, int)
        >>> contrast(np.array([1.0, -1, 0]), np.array([2.0, 1, 0]), one, one).quadrants
        (1, 0, 1, 0, 0, 1)
    """
    gap = np.abs(a / domain(a) - b / domain(b))
    worst = first_of_each(np.argsort(-gap, kind="stable"), rollout_S, WORST)
    return Contrast(
        rank_correlation(a, b, group_S),
        _quadrants(np.sign(a), np.sign(b)),
        tuple(s for s in worst if gap[s] > 1e-9),
    )


def rank_correlation(a: Floats, b: Floats, group_S: Ints, seed: int = 0) -> Interval | None:
    """Return Spearman's rho and its interval by a bootstrap over groups, None if one side is constant.

    Ranks are taken once over all steps (ties get their mean rank); a resample draws groups with
    repetition and takes Pearson's correlation of those ranks, from sums a group.

    Args:
        a: ``[S]``.
        b: ``[S]``.
        group_S: ``[S]`` codes 0..G-1.
        seed: of the resamples.
    """
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    x, y = rankdata(a) - (len(a) + 1) / 2, rankdata(b) - (len(b) + 1) / 2
    columns = (np.ones(len(a)), x, y, x * x, y * y, x * y)
    sums_GK = np.stack([np.bincount(group_S, c) for c in columns], axis=1)
    sums_GK = sums_GK[sums_GK[:, 0] > 0]
    value = float(_pearson(sums_GK.sum(axis=0)[None])[0])
    n = len(sums_GK)
    if n < 2:
        return Interval(value, None, None)
    draws = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), RESAMPLES)
    rhos = _pearson(draws.astype(float) @ sums_GK)
    low, high = np.percentile(rhos[np.isfinite(rhos)], [2.5, 97.5])
    return Interval(value, float(low), float(high))


def _pearson(sums: Floats) -> Floats:
    n, x, y, xx, yy, xy = sums.T
    spread = (xx - x * x / n) * (yy - y * y / n)
    top = xy - x * y / n
    # A resample of groups in which one side is constant has no correlation: NaN, dropped above.
    return np.asarray(
        np.divide(top, np.sqrt(np.maximum(spread, 0)), out=np.full(len(n), np.nan), where=spread > 0)
    )


def _quadrants(a: Floats, b: Floats) -> tuple[int, int, int, int, int, int]:
    def count(mask: Any) -> int:
        return int(np.count_nonzero(mask))

    return (
        count((a > 0) & (b > 0)),
        count((a > 0) & (b < 0)),
        count((a < 0) & (b > 0)),
        count((a < 0) & (b < 0)),
        count((a == 0) ^ (b == 0)),
        count((a == 0) & (b == 0)),
    )
