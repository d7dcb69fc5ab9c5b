"""What credit is worth to a learner: how far from the optimum it stayed, and when it came near."""

from __future__ import annotations

import numpy as np

from accredit.typing import Floats

__all__ = ["reached", "regret"]


def regret(score_U: Floats, cost_U: Floats, optimum: float, budget: float) -> float | None:
    """Return the mean of ``optimum - score`` over what was spent, up to a budget.

    What update u costs is spent under the policy before it:
    ``sum_u w_u (optimum - score_u) / sum_u w_u``, w_u the part of cost u that is within the budget.

    Args:
        score_U: exact score of the policy before each update ``[U]``.
        cost_U: what each update cost, in rollouts or tokens ``[U]``, 0 or more.
        optimum: the best score there is.
        budget: what may be spent, in the same unit.

    Returns:
        None where nothing was spent.

    Example:
        >>> regret(np.array([0.0, 0.5]), np.array([10.0, 10.0]), 1.0, 15.0)
        0.8333333333333334
    """
    spent = np.minimum(np.cumsum(cost_U), budget)
    within = np.diff(spent, prepend=0.0)
    whole = float(within.sum())
    return float(within @ (optimum - score_U)) / whole if whole > 0 else None


def reached(score_V: Floats, cost_U: Floats, goal: float) -> float | None:
    """Return what had been spent when the score first came to a goal.

    Args:
        score_V: exact score before the first update and after each, ``[U + 1]``.
        cost_U: what each update cost ``[U]``.
        goal: the score to come to.

    Returns:
        None if it never did.

    Example:
        >>> reached(np.array([0.2, 0.5, 0.9]), np.array([8.0, 8.0]), 0.5)
        8.0
    """
    there = np.flatnonzero(score_V >= goal)
    return float(np.sum(cost_U[: there[0]])) if there.size else None
