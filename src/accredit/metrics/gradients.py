"""What credit would do to a policy: the gradient of a tabular softmax, against the exact one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accredit.typing import Floats, Ints

__all__ = ["GradientQuality", "gradient_quality", "softmax_gradient"]


def softmax_gradient(credit_S: Floats, cell_S: Ints, state_of_cell: Ints, chance_cell: Floats) -> Floats:
    """Return the policy-gradient estimate of a softmax with one logit a (state, action) cell.

    ``g[k, a] = sum_s credit_s 1[k_s = k] (1[a_s = a] - pi(a | k))``, the score-function estimate
    summed over steps.

    Args:
        credit_S: credit of each step ``[S]``.
        cell_S: (state, action) cell of each step ``[S]``.
        state_of_cell: state of each cell ``[P]``.
        chance_cell: pi(a | k) of each cell ``[P]``; cells of a state sum to 1.

    Returns:
        Float64 ``[P]``; cells of a state sum to 0.

    Example:
        >>> softmax_gradient(np.array([1.0]), np.array([0]), np.zeros(2, int), np.array([0.5, 0.5])).tolist()
        [0.5, -0.5]
    """
    own = np.bincount(cell_S, credit_S, state_of_cell.size)
    state = np.bincount(state_of_cell, own)
    found: Floats = own - state[state_of_cell] * chance_cell
    return found


@dataclass(frozen=True, slots=True)
class GradientQuality:
    """Estimates of the gradient over independent batches, against the exact gradient.

    Args:
        mean_cosine: E[cos(ghat, g)]: what one batch's step is worth.
        cosine_of_mean: cos(E ghat, g): 1 where only noise separates the two.
        snr_db: ``10 log10(||g||^2 / E||c ghat - g||^2)`` after the best common scale c >= 0.
        n: batches.
    """

    mean_cosine: float
    cosine_of_mean: float
    snr_db: float
    n: int


def gradient_quality(estimates_BP: Floats, exact_P: Floats) -> GradientQuality | None:
    """Return how well a credit's gradients point along the exact one.

    A null estimate has cosine 0.

    Args:
        estimates_BP: one estimate a batch ``[B, P]``.
        exact_P: the exact gradient ``[P]``.

    Returns:
        None where the exact gradient is 0 or there is no batch.

    Example:
        >>> gradient_quality(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, 1.0])).cosine_of_mean
        1.0
    """
    whole = float(exact_P @ exact_P)
    if not whole or not len(estimates_BP):
        return None
    square = np.einsum("bp,bp->b", estimates_BP, estimates_BP)
    along = estimates_BP @ exact_P
    cosine = np.divide(along, np.sqrt(square * whole), out=np.zeros_like(along), where=square > 0)
    mean = estimates_BP.mean(axis=0)
    size = float(mean @ mean)
    of_mean = float(mean @ exact_P) / math.sqrt(size * whole) if size else 0.0
    scale = max(0.0, float(along.sum()) / float(square.sum())) if square.any() else 0.0
    error = float(np.mean(scale**2 * square - 2 * scale * along + whole))
    snr = 10 * math.log10(whole / error) if error > 1e-12 * whole else 120.0
    return GradientQuality(float(cosine.mean()), min(1.0, of_mean), snr, len(estimates_BP))
