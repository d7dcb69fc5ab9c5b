"""Intervals and comparisons over task seeds.  The seed is the unit: steps of a task are not independent.

One number a seed goes in (a metric averaged over what was played on that task), so a bootstrap over
seeds covers everything below them: groups, rollouts and steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from accredit.agreement import RESAMPLES, bootstrap_means, interval
from accredit.typing import Floats

__all__ = ["Difference", "difference", "holm"]


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
