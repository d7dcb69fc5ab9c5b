"""Bias and variance of credit over independent batches, one cell a (state, action)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.typing import Floats, Ints

__all__ = ["Moments", "moments"]

_SEEN = 80  # batches in which a cell must occur before its mean is near enough to normal to be judged


@dataclass(frozen=True, slots=True)
class Moments:
    """Bias and variance of a credit, averaged over cells weighted by visits.

    Args:
        bias2: mean of ``(mean credit - truth)^2`` less its sampling variance, over Var(truth).
        variance: mean variance of a cell's credit over batches, over Var(truth).
        z: ``(mean credit - truth) / standard error`` of each judged cell.
        n_cells: cells seen at all; those in ``z`` were seen in at least 80 batches.
    """

    bias2: float
    variance: float
    z: tuple[float, ...]
    n_cells: int


def moments(
    credit_O: Floats, truth_O: Floats, cell_O: Ints, batch_O: Ints, scale: float = 1.0
) -> Moments | None:
    """Return bias and variance of credit over batches.

    The observations of a cell in one batch share the batch's chance, so they are averaged first:
    the batch is the unit of the variance.

    Args:
        credit_O: credit of each observed step, all batches ``[O]``.
        truth_O: its true advantage ``[O]``.
        cell_O: dense (state, action) code ``[O]``.
        batch_O: dense batch code ``[O]``.
        scale: what the credit is multiplied by first (`scale_of`, for methods that normalise).

    Returns:
        None where the truth has no variance, or no cell was seen in two batches.

    Example:
        >>> t, z = np.array([1.0, 1.0, -1.0, -1.0]), np.zeros(4, int)
        >>> moments(t, t, np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])).bias2
        0.0
    """
    spread = float(truth_O.var()) if truth_O.size else 0.0
    if not spread:
        return None
    n_batches = int(batch_O.max()) + 1
    pairs, pair_O = np.unique(cell_O * n_batches + batch_O, return_inverse=True)
    visits = np.bincount(pair_O).astype(np.float64)
    off = np.bincount(pair_O, scale * credit_O - truth_O) / visits
    value = np.bincount(pair_O, scale * credit_O) / visits
    cells, cell = np.unique(pairs // n_batches, return_inverse=True)
    seen = np.bincount(cell)
    _, variance = _two_pass(value, cell, seen)
    bias, off_variance = _two_pass(off, cell, seen)
    kept = seen > 1
    if not kept.any():
        return None
    weight = np.bincount(cell, visits)[kept]
    error2 = off_variance[kept] / seen[kept]
    unbiased = bias[kept] ** 2 - error2
    judged = (seen >= _SEEN) & (off_variance > 0)
    z = bias[judged] / np.sqrt(off_variance[judged] / seen[judged])
    return Moments(
        float(max(0.0, weight @ unbiased / weight.sum()) / spread),
        float(weight @ variance[kept] / weight.sum() / spread),
        tuple(z.tolist()),
        int(cells.size),
    )


def _two_pass(values: Floats, cell: Ints, seen: Ints) -> tuple[Floats, Floats]:
    mean = np.bincount(cell, values) / seen
    square = np.bincount(cell, (values - mean[cell]) ** 2)
    return mean, square / np.maximum(seen - 1, 1)
