"""Index arithmetic of ragged rows."""

from __future__ import annotations

import numpy as np

from accredit.typing import Ints

__all__ = ["offsets", "spans", "take_offsets"]


def offsets(counts: Ints) -> Ints:
    """Return the int64 offsets ``[n + 1]`` of rows with these counts ``[n]``.

    Example:
        >>> offsets(np.array([2, 0, 1])).tolist()
        [0, 2, 2, 3]
    """
    start = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=start[1:])
    return start


def spans(starts: Ints, counts: Ints) -> Ints:
    """Return the indices of the half-open spans ``starts[i] .. starts[i] + counts[i]``, joined.

    Example:
        >>> spans(np.array([5, 0]), np.array([2, 3])).tolist()
        [5, 6, 0, 1, 2]
    """
    shift = np.repeat(starts - offsets(counts)[:-1], counts)
    return shift + np.arange(shift.size)


def take_offsets(start_N1: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return the element indices of some rows, and the offsets of the rows so taken."""
    counts = start_N1[rows + 1] - start_N1[rows]
    return spans(start_N1[rows], counts), offsets(counts)
