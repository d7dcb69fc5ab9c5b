"""What credit adds up to, and how much of it there is."""

from __future__ import annotations

import numpy as np

from accredit.typing import Floats, Ints

__all__ = ["signal_coverage", "telescoping_residual"]


def telescoping_residual(
    credit_S: Floats, rollout_S: Ints, return_R: Floats, baseline_R: Floats
) -> float | None:
    """Return the mean ``|sum_t credit_t - (R - b)|`` over rollouts, in reward units.

    Args:
        credit_S: what a method gave ``[S]``.
        rollout_S: rollout of each step ``[S]``.
        return_R: what the rollout earned ``[R]``.
        baseline_R: what it was expected to earn at its start ``[R]``.

    Example:
        >>> telescoping_residual(np.array([0.5, 0.25]), np.zeros(2, int), np.ones(1), np.array([0.25]))
        0.0
    """
    if not return_R.size:
        return None
    total = np.bincount(rollout_S, credit_S, return_R.size)
    return float(np.abs(total - (return_R - baseline_R)).mean())


def signal_coverage(credit_S: Floats) -> float | None:
    """Return the share of steps with credit other than 0; rounding error is 0.

    Args:
        credit_S: what a method gave ``[S]``.

    Example:
        >>> signal_coverage(np.array([0.0, 1.0]))
        0.5
    """
    if not credit_S.size:
        return None
    size = np.abs(credit_S)
    return float(np.mean(size > 1e-12 * size.max())) if size.any() else 0.0
