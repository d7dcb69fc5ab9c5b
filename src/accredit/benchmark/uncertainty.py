"""Intervals and comparisons over task seeds.  The seed is the unit: steps of a task are not independent.

One number a seed goes in (a metric averaged over what was played on that task), so a bootstrap over
seeds covers everything below them: groups, rollouts and steps.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from accredit.agreement import Estimate
from accredit.typing import Floats

__all__ = ["RESAMPLES", "Difference", "bootstrap_means", "difference", "holm", "interval"]

RESAMPLES = 2000
_FEW = 30  # seeds below which the interval is corrected for bias and skewness (BCa)
_LEVEL = 0.05


def bootstrap_means(values_N: Floats, seed: int = 0, resamples: int = RESAMPLES) -> Floats:
    """Return the mean of each resample of the seeds ``[B]``.

    Args:
        values_N: one number a task seed ``[N]``.
        seed: of the draws; equal seeds and N give equal draws, so pairs stay pairs.
        resamples: B.
    """
    found: Floats = _weights(values_N.size, seed, resamples) @ values_N
    return found


@functools.lru_cache(maxsize=64)
def _weights(n: int, seed: int, resamples: int) -> Floats:
    """Share of each seed in each resample ``[B, N]``."""
    rng = np.random.default_rng(seed)
    drawn: Floats = rng.multinomial(n, np.full(n, 1 / n), resamples) / n
    drawn.flags.writeable = False
    return drawn


def interval(values_N: Floats, seed: int = 0) -> Estimate | None:
    """Return the mean over seeds with its 95 % bootstrap interval.

    Percentile; bias-corrected and accelerated (BCa) with fewer than 30 seeds.

    Args:
        values_N: one number a task seed ``[N]``.
        seed: of the draws.

    Returns:
        None without seeds; an estimate without ends for a single one.

    Example:
        >>> interval(np.array([0.5, 0.5])).low
        0.5
    """
    if not values_N.size:
        return None
    value = float(values_N.mean())
    if values_N.size < 2:
        return Estimate(value)
    draws = bootstrap_means(values_N, seed)
    tails = np.array([_LEVEL / 2, 1 - _LEVEL / 2])
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


@dataclass(frozen=True, slots=True)
class Difference:
    """A paired difference over task seeds.

    Args:
        value: mean of first - second.
        low: lower end of the 95 % interval; None with one seed.
        high: upper end.
        p: two-sided; ``2 min(share of resamples on either side of 0)``, at least 1/2,000, and at
            least ``2^(1-n)``, below which no test on n signs can go.
        n: seeds.
    """

    value: float
    low: float | None
    high: float | None
    p: float
    n: int


def difference(first_N: Floats, second_N: Floats, seed: int = 0) -> Difference:
    """Return the paired difference of two methods on the same task seeds.

    Args:
        first_N: one number a seed ``[N]``, N >= 1.
        second_N: likewise, same seeds in the same order.
        seed: of the draws.

    Example:
        >>> difference(np.arange(20) + 1.0, np.arange(20.0)).p < 0.001
        True
    """
    apart = first_N - second_N
    top = max(float(np.abs(first_N).max()), float(np.abs(second_N).max()))
    apart = np.where(np.abs(apart) <= 1e-12 * top, 0.0, apart)  # equal numbers, rounded differently
    found = interval(apart, seed)
    assert found is not None
    if apart.size < 2:
        return Difference(found.value, None, None, 1.0, 1)
    draws = bootstrap_means(apart, seed)
    side = 2 * min(float(np.mean(draws <= 0)), float(np.mean(draws >= 0)))
    least = max(1 / RESAMPLES, 2.0 ** (1 - apart.size))
    return Difference(found.value, found.low, found.high, min(1.0, max(side, least)), apart.size)


def holm(p: Mapping[str, float] | Sequence[float]) -> dict[str, float]:
    """Return p-values corrected for being many (Holm's step-down), by name or place.

    Args:
        p: uncorrected, each in [0, 1].

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
        {'a': 0.03, 'c': 0.06, 'b': 0.06}
    """
    named = dict(p) if isinstance(p, Mapping) else {str(i): v for i, v in enumerate(p)}
    found: dict[str, float] = {}
    worst = 0.0
    for i, name in enumerate(sorted(named, key=lambda k: (named[k], k))):
        worst = max(worst, min(1.0, math.fsum([named[name]] * (len(named) - i))))
        found[name] = round(worst, 12)
    return found
