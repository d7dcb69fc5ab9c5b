"""Groups whose returns do not spread: all pass, all fail, or a tie in between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.index import flat_groups
from accredit.index.groups import FLAT
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["Ties", "zero_spread"]


@dataclass(frozen=True)
class Ties:
    """Kind of each group ``[G]``: exactly one of these is True for it.

    Args:
        all_pass: two or more counted returns, all equal, positive and the batch's highest.
        all_fail: two or more, all equal, at most 0 and the batch's lowest.
        tie: two or more, all equal, and neither.
        mixed: two or more that differ.
        single: one counted return.
        empty: none.
    """

    all_pass: BoolArray
    all_fail: BoolArray
    tie: BoolArray
    mixed: BoolArray
    single: BoolArray
    empty: BoolArray

    def counts(self) -> dict[str, int]:
        """Return the number of groups of each kind."""
        return {name: int(getattr(self, name).sum()) for name in self.__dataclass_fields__}


def zero_spread(score_R: Floats, group_R: Ints, n_groups: int, counted_R: BoolArray) -> Ties:
    """Return which groups do not spread, and how they tie.

    A group ties if ``max - min <= 1e-12 * max(1, max|return|)`` over its counted rollouts, the test
    by which every method gives it exact zeros. It passes at the batch's highest return if that is
    positive (and, where the whole batch has one return, is 1: no other scale can be told); it fails at
    the batch's lowest return if that is at most 0.

    Args:
        score_R: return of each rollout, reward units.
        group_R: group of each rollout, 0 .. n_groups-1.
        n_groups: number of groups G.
        counted_R: rollouts that join the statistics.

    Example:
        >>> score = np.array([1, 1, 0, 0, 0.7, 0.7, 0, 1])
        >>> zero_spread(score, np.arange(8) // 2, 4, np.ones(8, bool)).counts()
        {'all_pass': 1, 'all_fail': 1, 'tie': 1, 'mixed': 1, 'single': 0, 'empty': 0}
    """
    size = np.bincount(group_R[counted_R], minlength=n_groups)
    several = size > 1
    flat = flat_groups(score_R, group_R, n_groups, counted_R) & several
    level = np.zeros(n_groups)
    level[group_R[counted_R]] = score_R[counted_R]
    values = score_R[counted_R]
    top, bottom = float(values.max(initial=-np.inf)), float(values.min(initial=np.inf))
    all_pass = flat & _near(level, top) & (top > 0 and (not _near(bottom, top) or _near(top, 1.0)))
    all_fail = flat & _near(level, bottom) & (bottom <= 0) & ~all_pass
    tie = flat & ~all_pass & ~all_fail
    return Ties(all_pass, all_fail, tie, several & ~flat, size == 1, size == 0)


def _near(values: Floats | float, level: float) -> BoolArray:
    """Return where values equal a level by the same relative test."""
    if not np.isfinite(level):
        return np.zeros_like(values, bool)
    size = np.maximum(1.0, np.maximum(np.abs(values), abs(level)))
    with np.errstate(over="ignore"):  # infinitely far is not near
        found: BoolArray = np.abs(values - level) <= FLAT * size
    return found
