"""Token values by population: quantiles, the k-th largest, shares of the mean."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from accredit.index import segment_sum
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["Pools", "mean_one"]


@dataclass(frozen=True)
class Pools:
    """Values in populations, in order.

    Args:
        values: ``[T]``, finite.
        ids: population of each value ``[T]``, 0 .. n-1.
        n: number of populations.
        counted: values that belong to a population ``[T]``.

    Example:
        >>> pools = Pools(np.array([3.0, 1.0, 2.0, 7.0]), np.array([0, 0, 0, 1]), 2, np.ones(4, bool))
        >>> pools.quantile(0.75).tolist(), pools.largest(np.array([2, 1])).tolist()
        ([2.5, 7.0], [2.0, 7.0])
    """

    values: Floats
    ids: Ints
    n: int
    counted: BoolArray

    @cached_property
    def size(self) -> Ints:
        """Number of counted values of each population ``[n]``."""
        return np.bincount(self.ids if self._whole else self.ids[self.counted], minlength=self.n)

    def quantile(self, q: float) -> Floats:
        """Return the value at rank ``q (size - 1)`` of each population ``[n]``, linearly interpolated.

        An empty population gets 0.

        Args:
            q: in [0, 1].
        """
        last = np.maximum(self.size - 1, 0)
        rank = q * last
        low = np.floor(rank).astype(np.int64)
        below, above = self._at(np.stack([low, np.minimum(low + 1, last)]))
        found: Floats = below + (rank - low) * (above - below)
        return found

    def largest(self, k_n: Ints) -> Floats:
        """Return the k-th largest value of each population ``[n]``; an empty population gets 0.

        Args:
            k_n: from 1 to the population's size ``[n]``.
        """
        found: Floats = self._at(np.maximum(self.size - k_n, 0)[None])[0]
        return found

    @cached_property
    def _whole(self) -> bool:
        return bool(self.counted.all())

    @cached_property
    def _inside(self) -> Floats:
        return self.values if self._whole else self.values[self.counted]

    @cached_property
    def _sorted(self) -> Floats:
        # Complex numbers are sorted by real part, then imaginary part: by population, then value.
        ids = self.ids if self._whole else self.ids[self.counted]
        return np.sort(ids + 1j * self._inside).imag

    def _at(self, rank_Kn: Ints) -> Floats:
        """Return the values at 0-based ranks from below ``[K, n]``."""
        if not self._inside.size:
            return np.zeros(rank_Kn.shape)
        if self.n == 1:
            return np.partition(self._inside, np.unique(rank_Kn))[rank_Kn]
        start = np.cumsum(self.size) - self.size
        at = np.minimum(start + rank_Kn, self._inside.size - 1)
        return np.where(self.size > 0, self._sorted[at], 0.0)


def mean_one(values: Floats, ids: Ints, n: int, counted: BoolArray) -> Floats:
    """Return positive values over the mean of the counted ones of their row ``[T]``; 1 where not counted.

    Args:
        values: ``[T]``, at least 0.
        ids: row of each value ``[T]``.
        n: number of rows.
        counted: ``[T]``.
    """
    whole = bool(counted.all())
    inside, of = (values, ids) if whole else (values[counted], ids[counted])
    size = np.maximum(np.bincount(of, minlength=n), 1)
    mean = segment_sum(inside, of, n) / size
    found = values / np.where(mean > 0, mean, 1.0)[ids]
    if not whole:
        found[~counted] = 1.0
    return found
