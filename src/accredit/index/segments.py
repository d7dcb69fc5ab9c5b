"""Sums and scans over ragged rows: no Python loop over steps, no padding.

Sums by id go by `numpy.bincount`.  Rows, and long runs of one id, are summed by `numpy.add.reduceat`,
ten times as fast; only here, since it returns the next element for an empty row.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from accredit.typing import Array, BoolArray, Floats, Ints

__all__ = [
    "discounted_sum",
    "last_of_row",
    "row_any",
    "row_of",
    "row_sum",
    "segment_extremes",
    "segment_sum",
    "shifted",
]

_PIECE = 1 << 16  # values that a scan takes at once: they stay in the cache
_MANY = 1 << 14  # values from which on it pays to look for runs of one id
_RUN = 32  # average length of a run that is worth a step of its own


def row_of(start_N1: Ints) -> Ints:
    """Return the row of each element: ``[0, 0, 1, …]`` for offsets ``[0, 2, 3, …]``.

    Example:
        >>> row_of(np.array([0, 2, 2, 3])).tolist()
        [0, 0, 2]
    """
    return np.repeat(np.arange(start_N1.size - 1), np.diff(start_N1))


def segment_sum(values: Array, ids: Ints, n: int) -> Floats:
    """Return the sum of values by id, float64 ``[n]``; ids without values get 0.

    Args:
        values: ``[m]``.
        ids: of each value ``[m]``, 0 .. n-1.
        n: number of ids.
    """
    runs = _runs(ids)
    if runs is not None:
        values, ids = _added(values, runs), ids[runs]
    return np.bincount(ids, values, n).astype(np.float64, copy=False)


def segment_extremes(values: Array, ids: Ints, n: int) -> tuple[Floats, Floats]:
    """Return the least and the largest value by id, float64 ``[n]``; ids without values get inf and -inf.

    Args:
        values: ``[m]``.
        ids: of each value ``[m]``, 0 .. n-1.
        n: number of ids.

    Example:
        >>> low, high = segment_extremes(np.array([3.0, 1.0, 2.0]), np.array([0, 0, 2]), 3)
        >>> low.tolist(), high.tolist()
        ([1.0, inf, 2.0], [3.0, -inf, 2.0])
    """
    low, high = np.full(n, np.inf), np.full(n, -np.inf)
    least, most, runs = values, values, _runs(ids)
    if runs is not None:
        least, most = np.minimum.reduceat(values, runs), np.maximum.reduceat(values, runs)
        ids = ids[runs]
    np.minimum.at(low, ids, least)
    np.maximum.at(high, ids, most)
    return low, high


def _runs(ids: Ints) -> Ints | None:
    """Return where runs of one id begin; None where they are short."""
    if ids.size < _MANY:
        return None
    new = ids[1:] != ids[:-1]
    if np.count_nonzero(new) * _RUN > ids.size:
        return None
    return np.concatenate([[0], np.flatnonzero(new) + 1])


def row_sum(values: Array, start_N1: Ints) -> Floats:
    """Return the sum of each row, float64 ``[rows]``; an empty row has 0.

    Args:
        values: over ragged rows.
        start_N1: offsets of the rows.

    Example:
        >>> row_sum(np.array([1.0, 2.0, 5.0]), np.array([0, 2, 2, 3])).tolist()
        [3.0, 0.0, 5.0]
    """
    found = np.zeros(start_N1.size - 1)
    rows = np.flatnonzero(np.diff(start_N1))  # an empty row would get the next element
    if rows.size:
        found[rows] = _added(values, start_N1[rows])
    return found


def _added(values: Array, first: Ints) -> Floats:
    """Return the sums of rows that hold something; one that overflows is inf, as it is in `bincount`."""
    with np.errstate(over="ignore", invalid="ignore"):
        found: Floats = np.add.reduceat(values, first, dtype=np.float64)
    return found


def row_any(flags: BoolArray, start_N1: Ints) -> BoolArray:
    """Return which rows hold a true value ``[rows]``; an empty row holds none.

    Args:
        flags: over ragged rows.
        start_N1: offsets of the rows.

    Example:
        >>> row_any(np.array([True, False, False]), np.array([0, 2, 2, 3])).tolist()
        [True, False, False]
    """
    found = np.zeros(start_N1.size - 1, bool)
    rows = np.flatnonzero(np.diff(start_N1))  # an empty row would get the next element
    if rows.size:
        found[rows] = np.logical_or.reduceat(flags, start_N1[rows])
    return found


def last_of_row(start_N1: Ints) -> tuple[Ints, Ints]:
    """Return the non-empty rows and the index of each one's last element."""
    rows = np.flatnonzero(np.diff(start_N1))
    return rows, start_N1[rows + 1] - 1


def shifted(values: Floats, start_N1: Ints, end: Floats) -> Floats:
    """Return each element's successor in its row; the last element's is ``end`` of its row.

    Args:
        values: ``[n]`` over ragged rows.
        start_N1: offsets of the rows.
        end: ``[rows]`` what follows each row.
    """
    found = np.empty_like(values)
    found[:-1] = values[1:]
    rows, last = last_of_row(start_N1)
    found[last] = end[rows]
    return found


def discounted_sum(values: Array, start_N1: Ints, discount: float | Array) -> Floats:
    """Return the backward scan ``y_k = x_k + d_k * y_{k+1}`` inside each row (y = 0 after its end).

    With one discount for all it is the return-to-go ``sum_{j>=k} d^(j-k) x_j``.  The scan is the
    solution of ``y_k - d_k y_{k+1} = x_k`` by BLAS back substitution, which is the recurrence
    itself: exact in the same sense as a plain loop, and O(n) whatever the lengths of the rows.

    Args:
        values: ``[n]`` over ragged rows, finite.
        start_N1: offsets of the rows.
        discount: one number, or one a value ``[n]`` (the factor on what follows it).

    Example:
        >>> discounted_sum(np.array([0.0, 0.0, 1.0, 5.0]), np.array([0, 3, 4]), 0.5).tolist()
        [0.25, 0.5, 1.0, 5.0]
    """
    found = np.array(values, np.float64)
    factor = np.broadcast_to(np.asarray(discount, np.float64), found.shape)
    cuts = _row_cuts(start_N1, found.size)
    for a, b in pairwise(cuts):
        heads = start_N1[np.searchsorted(start_N1, a) : np.searchsorted(start_N1, b)] - a
        found[a:b] = _back_substituted(found[a:b], factor[a:b], heads)
    return found


def _row_cuts(start_N1: Ints, size: int) -> list[int]:
    """Return offsets, each the start of a row, that cut all values into pieces that fit the cache."""
    targets = np.searchsorted(start_N1, np.arange(0, size, _PIECE))
    return np.unique(np.append(start_N1[targets], size)).tolist()  # type: ignore[no-any-return]


def _back_substituted(x: Floats, factor: Floats, heads: Ints) -> Floats:
    from scipy.linalg.blas import dtbsv  # importing it costs more than most scans

    if not x.size:
        return x
    band = np.zeros((2, x.size), order="F")
    band[0, 1:] = -factor[:-1]
    band[0, heads] = 0.0  # nothing flows from a row into the row before it
    found: Floats = dtbsv(1, band, x, diag=1)
    return found
