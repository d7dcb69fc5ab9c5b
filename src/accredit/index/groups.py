"""Statistics of values in groups: two-pass, float64, exact zeros where a group does not spread."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from accredit.index.segments import segment_extremes, segment_sum
from accredit.typing import Array, BoolArray, Floats, Ints

__all__ = ["FLAT", "GroupStats", "flat_groups"]

# A group whose values spread by at most this share of max(1, max|value|) counts as a tie: the
# rounding noise of its mean must not be divided by its (noise) deviation.
FLAT = 1e-12
_LARGE = 1e100


def flat_groups(values: Array, ids: Ints, n: int, counted: BoolArray | None = None) -> BoolArray:
    """Return which groups do not spread: ``max - min <= 1e-12 * max(1, max|value|)``.

    Args:
        values: ``[m]``.
        ids: group of each value ``[m]``.
        n: number of groups.
        counted: values that belong to the statistics; None = all.
    """
    if counted is not None and not counted.all():
        ids, values = ids[counted], values[counted]
    low, high = segment_extremes(values, ids, n)
    size = np.maximum(np.abs(low), np.abs(high))
    with np.errstate(invalid="ignore", over="ignore"):  # an infinite spread is a spread
        flat: BoolArray = ~(high - low > FLAT * np.maximum(1.0, size))
    return flat


@dataclass(frozen=True)
class GroupStats:
    """Mean, deviation and size of values in groups, and the values centred and scaled by them.

    Args:
        values: ``[m]``, finite.
        ids: group of each value ``[m]``, 0 .. n-1.
        n: number of groups.
        counted: values that belong to the statistics; None = all. The others get 0.
        weights: weight of each value in the mean (OPO: token counts); None = 1 each.

    Example:
        >>> stats = GroupStats(np.array([1.0, 0.0, 0.0, 1.0]), np.zeros(4, int), 1)
        >>> stats.mean.tolist(), round(float(stats.std()[0]), 5), stats.centred.tolist()
        ([0.5], 0.57735, [0.5, -0.5, -0.5, 0.5])
    """

    values: Floats
    ids: Ints
    n: int
    counted: BoolArray | None = None
    weights: Floats | None = None

    @cached_property
    def whole(self) -> bool:
        """Whether every value is counted."""
        return self.counted is None or bool(self.counted.all())

    @cached_property
    def use(self) -> Floats:
        """Float mask of counted values ``[m]``."""
        if self.counted is None:
            return np.ones(self.values.size)
        return self.counted.astype(np.float64)

    @cached_property
    def size(self) -> Floats:
        """Number of counted values of each group ``[n]``."""
        if self.whole:
            return np.bincount(self.ids, minlength=self.n).astype(np.float64)
        return segment_sum(self.use, self.ids, self.n)

    @cached_property
    def flat(self) -> BoolArray:
        """Groups whose counted values tie, or that have none ``[n]``."""
        return flat_groups(self.values, self.ids, self.n, self.counted)

    @cached_property
    def mean(self) -> Floats:
        """Weighted mean of each group's counted values ``[n]``; 0 where there is none."""
        if self.weights is None:
            return self.plain_mean
        weight = self.use * self.weights
        total = segment_sum(weight * self.values, self.ids, self.n)
        return _ratio(total, segment_sum(weight, self.ids, self.n))

    @cached_property
    def plain_mean(self) -> Floats:
        """Mean of each group's counted values ``[n]``, each of weight 1."""
        return _ratio(self.total, self.size)

    @cached_property
    def total(self) -> Floats:
        """Sum of each group's counted values ``[n]``."""
        counted = self.values if self.whole else self.use * self.values
        return segment_sum(counted, self.ids, self.n)

    @cached_property
    def centred(self) -> Floats:
        """Counted values minus their group's mean ``[m]``: exactly 0 in a tie, 0 if not counted."""
        found = self.mean[self.ids]
        np.subtract(self.values, found, out=found)
        if self.flat.any():
            found[self.flat[self.ids]] = 0.0
        if not self.whole:
            found[~np.asarray(self.counted)] = 0.0
        return found

    def std(self, ddof: int = 1) -> Floats:
        """Return each group's standard deviation ``[n]``; 0 for ties and for too few values.

        Args:
            ddof: 1 = unbiased (n - 1), 0 = population.
        """
        if self.weights is None:
            deviation = self.centred
        else:
            deviation = (self.values - self.plain_mean[self.ids]) * self.use
        unit = _units(deviation, self.ids, self.n)
        if unit is not None:
            deviation = deviation / unit[self.ids]
        square = segment_sum(deviation * deviation, self.ids, self.n)
        found: Floats = np.sqrt(_ratio(square, np.maximum(self.size - ddof, 0))) * ~self.flat
        return found if unit is None else found * unit

    def standardised(self, eps: float, ddof: int = 1) -> Floats:
        """Return ``(value - mean) / (std + eps)`` ``[m]``; 0 in a tie and where not counted."""
        return _ratio(self.centred, (self.std(ddof) + eps)[self.ids])

    @cached_property
    def leave_one_out(self) -> Floats:
        """Mean of the *other* counted values of the group ``[m]``; 0 where there is none."""
        others = np.maximum(self.size[self.ids] - self.use, 0)
        return _ratio(self.total[self.ids] - self.use * self.values, others)

    @cached_property
    def less_others(self) -> Floats:
        """Counted values minus the mean of the *others* of the group ``[m]``; 0 in a tie and where alone.

        It is ``n / (n - 1)`` times `centred`, without weights.
        """
        size = self.size[self.ids]
        return self.centred * _ratio(size, size - 1)

    @cached_property
    def alone(self) -> BoolArray:
        """Counted values that have no other counted value in their group ``[m]``."""
        return (self.use > 0) & (self.size[self.ids] < 2)


def _units(deviation: Floats, ids: Ints, n: int) -> Floats | None:
    """Return a power of two for each group whose squares would overflow, else None.

    Powers of two change no digit; other groups have the unit 1.
    """
    if not max(deviation.max(initial=0.0), -deviation.min(initial=0.0)) > _LARGE:
        return None
    top = np.maximum(segment_extremes(np.abs(deviation), ids, n)[1], 1.0)
    return np.where(top > _LARGE, np.ldexp(1.0, np.frexp(top)[1] - 1), 1.0)


def _ratio(a: Floats, b: Floats) -> Floats:
    found: Floats = np.divide(a, b, out=np.zeros_like(a), where=b > 0)
    return found
