"""Sums and scans over ragged rows: no Python loop over steps, no padding.

Sums go by `numpy.bincount`; never `numpy.add.reduceat`, which returns the next element for an
empty row.
"""

from __future__ import annotations

import numpy as np

from accredit.typing import Array, Floats, Ints

__all__ = ["discounted_sum", "last_of_row", "row_of", "segment_sum", "shifted"]


def row_of(start_N1: Ints) -> Ints:
    """Return the row of each element: ``[0, 0, 1, …]`` for offsets ``[0, 2, 3, …]``.

    Example:
        >>> row_of(np.array([0, 2, 2, 3])).tolist()
        [0, 0, 2]
    """
    return np.repeat(np.arange(start_N1.size - 1), np.diff(start_N1))


def segment_sum(values: Array, ids: Ints, n: int) -> Floats:
    """Return the sum of values by id, float64 ``[n]``; ids without values get 0."""
    return np.bincount(ids, values, n).astype(np.float64, copy=False)


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

    With one discount for all it is the return-to-go ``sum_{j>=k} d^(j-k) x_j``.  Rows are taken
    together, position by position from their ends: O(n) numpy work in longest-row calls.

    Args:
        values: ``[n]`` over ragged rows.
        start_N1: offsets of the rows.
        discount: one number, or one a value ``[n]`` (the factor on what follows it).

    Example:
        >>> discounted_sum(np.array([0.0, 0.0, 1.0, 5.0]), np.array([0, 3, 4]), 0.5).tolist()
        [0.25, 0.5, 1.0, 5.0]
    """
    found = np.array(values, np.float64)
    counts = np.diff(start_N1)
    if not found.size:
        return found
    order = np.argsort(-counts, kind="stable")
    ends, sorted_counts = start_N1[1:][order] - 1, counts[order]
    alive = np.searchsorted(-sorted_counts, -np.arange(1, int(sorted_counts[0])), side="left")
    factor = None if np.isscalar(discount) else np.asarray(discount, np.float64)
    for back, n in enumerate(alive.tolist(), start=1):
        here = ends[:n] - back
        step = discount if factor is None else factor[here]
        found[here] += step * found[here + 1]
    return found
