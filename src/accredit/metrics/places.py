"""Does credit point at the step that mattered?  One number a rollout, then their mean."""

from __future__ import annotations

import numpy as np

from accredit.metrics.ties import steady
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["auroc", "first_error", "pivot_distance", "top_hit"]


def auroc(credit_S: Floats, critical_S: BoolArray, rollout_S: Ints) -> float | None:
    """Return the chance that a critical step has more ``|credit|`` than another of its rollout.

    Ties count 1/2; rollouts whose steps are all or none critical are skipped.

    Args:
        credit_S: what a method gave ``[S]``.
        critical_S: steps where the choice mattered ``[S]``.
        rollout_S: dense rollout code of each step ``[S]``.

    Returns:
        The mean over rollouts, in [0, 1]; None where all are skipped.

    Example:
        >>> auroc(np.array([0.1, -2.0, 0.1]), np.array([False, True, False]), np.zeros(3, int))
        1.0
    """
    n = int(rollout_S.max(initial=-1)) + 1
    rank = _ranks_within(steady(np.abs(credit_S)), rollout_S)
    hits = np.bincount(rollout_S, critical_S, n)
    others = np.bincount(rollout_S, minlength=n) - hits
    kept = (hits > 0) & (others > 0)
    if not kept.any():
        return None
    over = np.bincount(rollout_S, rank * critical_S, n) - hits * (hits + 1) / 2
    return float(np.mean(over[kept] / (hits * others)[kept]))


def _ranks_within(size: Floats, rollout_S: Ints) -> Floats:
    """1-based mid-rank of each step in its rollout."""
    order = np.lexsort((size, rollout_S))
    unit, sorted_ = rollout_S[order], size[order]
    begins = np.flatnonzero(np.diff(unit, prepend=-1))
    place = np.arange(order.size) - np.repeat(begins, np.diff(begins, append=order.size)) + 1.0
    new = np.ones(order.size, bool)
    new[1:] = (unit[1:] != unit[:-1]) | (sorted_[1:] != sorted_[:-1])
    run = np.cumsum(new) - 1
    found = np.empty(order.size)
    found[order] = (np.bincount(run, place) / np.maximum(np.bincount(run), 1))[run] if order.size else place
    return found


def top_hit(credit_S: Floats, critical_S: BoolArray, rollout_S: Ints) -> float | None:
    """Return how often the step with the largest ``|credit|`` is critical; ties share the hit.

    Args:
        credit_S: what a method gave ``[S]``.
        critical_S: steps where the choice mattered ``[S]``.
        rollout_S: dense rollout code of each step ``[S]``.

    Returns:
        The mean over rollouts that have steps of both kinds, in [0, 1]; None where none has.

    Example:
        >>> top_hit(np.array([1.0, 1.0]), np.array([False, True]), np.zeros(2, int))
        0.5
    """
    n = int(rollout_S.max(initial=-1)) + 1
    top_S = _is_top(steady(np.abs(credit_S)), rollout_S, n)
    hits = np.bincount(rollout_S, critical_S, n)
    kept = (hits > 0) & (hits < np.bincount(rollout_S, minlength=n))
    if not kept.any():
        return None
    share = np.bincount(rollout_S, top_S & critical_S, n) / np.maximum(np.bincount(rollout_S, top_S, n), 1)
    return float(share[kept].mean())


def _is_top(size: Floats, rollout_S: Ints, n: int) -> BoolArray:
    top = np.full(n, -np.inf)
    np.maximum.at(top, rollout_S, size)
    found: BoolArray = size == top[rollout_S]
    return found


def first_error(credit_S: Floats, truth_S: Floats, rollout_S: Ints, below: float = -0.1) -> float | None:
    """Return how often the first step with negative credit is the first harmful one.

    Args:
        credit_S: what a method gave ``[S]``, steps of a rollout in order.
        truth_S: true advantages ``[S]``.
        rollout_S: dense rollout code of each step ``[S]``.
        below: a step is harmful where its true advantage is less than this, in reward units.

    Returns:
        The share of the rollouts that have a harmful step; None where none has.

    Example:
        >>> first_error(np.array([0.0, -1.0]), np.array([0.1, -0.5]), np.zeros(2, int))
        1.0
    """
    n = int(rollout_S.max(initial=-1)) + 1
    said, true = (_first(mask, rollout_S, n) for mask in (credit_S < 0, truth_S < below))
    kept = true < rollout_S.size
    return float(np.mean(said[kept] == true[kept])) if kept.any() else None


def _first(mask: BoolArray, rollout_S: Ints, n: int) -> Ints:
    """Index of the first marked step of each rollout; the number of steps where there is none."""
    found = np.full(n, rollout_S.size)
    at = np.flatnonzero(mask)
    np.minimum.at(found, rollout_S[at], at)
    return found


def pivot_distance(credit_S: Floats, spread_S: Floats, rollout_S: Ints) -> float | None:
    """Return the steps between the largest ``|credit|`` and the pivot; ties are averaged.

    The pivot of a rollout is its step of greatest criticality (the nearest one where several are).

    Args:
        credit_S: what a method gave ``[S]``, steps of a rollout in order.
        spread_S: criticality, ``max_a Q - min_a Q`` at the step's state ``[S]``.
        rollout_S: dense rollout code of each step ``[S]``.

    Returns:
        Steps, the mean over rollouts with a criticality above 0; None where none has.

    Example:
        >>> pivot_distance(np.array([1.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0]), np.zeros(3, int))
        1.5
    """
    n = int(rollout_S.max(initial=-1)) + 1
    top_S = _is_top(steady(np.abs(credit_S)), rollout_S, n)
    pivot_S = _is_top(steady(spread_S), rollout_S, n) & (spread_S > 0)
    kept = np.bincount(rollout_S, pivot_S, n) > 0
    if not kept.any():
        return None
    away = _nearest(pivot_S, rollout_S)
    mean = np.bincount(rollout_S, np.where(top_S, away, 0.0), n) / np.maximum(
        np.bincount(rollout_S, top_S, n), 1
    )
    return float(mean[kept].mean())


def _nearest(marked_S: BoolArray, rollout_S: Ints) -> Floats:
    """Steps to the nearest marked step of the same rollout; 0 in rollouts without one."""
    place = np.arange(marked_S.size, dtype=np.float64)
    found = np.full(marked_S.size, np.inf)
    for way in (slice(None), slice(None, None, -1)):
        last = np.maximum.accumulate(np.where(marked_S[way], np.arange(marked_S.size), -1))
        same = (last >= 0) & (rollout_S[way][last] == rollout_S[way])
        found[way] = np.minimum(found[way], np.where(same, place - last, np.inf))
    return np.where(np.isfinite(found), found, 0.0)
