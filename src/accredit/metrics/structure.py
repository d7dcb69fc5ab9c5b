"""What credit adds up to, and how much of it there is."""

from __future__ import annotations

import numpy as np

from accredit.typing import Floats, Ints

__all__ = ["core_gap", "efficiency_residual", "largest_excess", "signal_coverage", "telescoping_residual"]


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


def efficiency_residual(credit_n: Floats, worth: float) -> float:
    """Return ``|sum_i credit_i - v(N)|`` of a game, in reward units: 0 where all of it is shared out.

    Args:
        credit_n: credit of each player ``[n]``.
        worth: v(N), what all players earn together.

    Example:
        >>> efficiency_residual(np.array([0.5, 0.25]), 1.0)
        0.25
    """
    return abs(float(credit_n.sum()) - worth)


def largest_excess(credit_n: Floats, worth_M: Floats) -> float | None:
    """Return ``max_S v(S) - sum_{i in S} credit_i`` over all coalitions but the empty and the full one.

    Above 0, some coalition would earn more on its own.

    Args:
        credit_n: credit of each player ``[n]``.
        worth_M: worth of each coalition, by bit mask ``[2^n]``.

    Returns:
        Reward units; None for a single player.

    Example:
        >>> largest_excess(np.array([0.5, 0.5]), np.array([0.0, 0.0, 0.75, 1.0]))
        0.25
    """
    share_M = np.zeros(1)
    for credit in credit_n.tolist():  # masks without the player, then the same with it
        share_M = np.concatenate([share_M, share_M + credit])
    rest = (worth_M - share_M)[1:-1]
    return float(rest.max()) if rest.size else None


def core_gap(credit_n: Floats, worth_M: Floats, least: float) -> float | None:
    """Return the largest excess less the least that any efficient credit can have, ``e*``.

    0 in the least core; below 0 only where the credit is not efficient.

    Args:
        credit_n: credit of each player ``[n]``.
        worth_M: worth of each coalition, by bit mask ``[2^n]``.
        least: e* of the game (`accredit.worlds.games.Game.least_core`).

    Example:
        >>> core_gap(np.array([0.5, 0.5]), np.array([0.0, 0.0, 0.75, 1.0]), -0.125)
        0.375
    """
    excess = largest_excess(credit_n, worth_M)
    return None if excess is None else excess - least
