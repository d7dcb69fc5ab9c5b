"""Rank agreement inside units (a rollout, a state), one number a unit, then their mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.metrics.ties import steady
from accredit.typing import BoolArray, Floats, Ints

__all__ = [
    "Alternatives",
    "across_alternatives",
    "kendall_by_unit",
    "kendall_within",
    "pearson_within",
    "spearman_within",
]


def kendall_within(credit_S: Floats, truth_S: Floats, unit_S: Ints) -> float | None:
    """Return Kendall's tau-b of credit with truth inside each unit, averaged over units.

    Units count where the truth has at least two distinct values; one whose credit is constant
    counts as 0.

    Args:
        credit_S: what a method gave ``[S]``.
        truth_S: true advantages ``[S]``.
        unit_S: dense code of each step's unit (its rollout) ``[S]``.

    Returns:
        A number in [-1, 1]; None where no unit has anything to rank.

    Example:
        >>> kendall_within(np.array([1.0, 2.0, 9.0]), np.array([0.0, 1.0, 2.0]), np.zeros(3, int))
        1.0
    """
    value, kept = kendall_by_unit(credit_S, truth_S, unit_S)
    return float(value[kept].mean()) if kept.any() else None


def kendall_by_unit(credit_S: Floats, truth_S: Floats, unit_S: Ints) -> tuple[Floats, BoolArray]:
    """Return tau-b of each unit and which of them count: ``[U]`` and ``[U]`` (see `kendall_within`).

    Args:
        credit_S: what a method gave ``[S]``.
        truth_S: true advantages ``[S]``.
        unit_S: dense code of each step's unit ``[S]``.
    """
    order = np.argsort(unit_S, kind="stable")
    unit, x, y = unit_S[order], steady(credit_S)[order], steady(truth_S)[order]
    n = int(unit.max(initial=-1)) + 1
    top, apart_x, apart_y = np.zeros(n), np.zeros(n), np.zeros(n)
    for lag in range(1, int(np.bincount(unit, minlength=1).max(initial=0))):
        same = np.flatnonzero(unit[lag:] == unit[:-lag])
        dx, dy = (np.sign(v[same + lag] - v[same]) for v in (x, y))
        at = unit[same]
        top += np.bincount(at, dx * dy, n)
        apart_x += np.bincount(at, np.abs(dx), n)
        apart_y += np.bincount(at, np.abs(dy), n)
    return _correlation(top, apart_x * apart_y), apart_y > 0


def spearman_within(credit_S: Floats, truth_S: Floats, unit_S: Ints) -> float | None:
    """Return Spearman's rho (mid-ranks) inside each unit, averaged as by `kendall_within`.

    Args:
        credit_S: what a method gave ``[S]``.
        truth_S: true advantages ``[S]``.
        unit_S: dense code of each step's unit ``[S]``.

    Example:
        >>> spearman_within(np.array([1.0, 2.0, 9.0]), np.array([0.0, 1.0, 2.0]), np.zeros(3, int))
        1.0
    """
    x, y = _centred_ranks(steady(credit_S), unit_S), _centred_ranks(steady(truth_S), unit_S)
    return _mean_correlation(x, y, unit_S)


def pearson_within(credit_S: Floats, truth_S: Floats, unit_S: Ints) -> float | None:
    """Return Pearson's r inside each unit, averaged as by `kendall_within`.

    Args:
        credit_S: what a method gave ``[S]``.
        truth_S: true advantages ``[S]``.
        unit_S: dense code of each step's unit ``[S]``.

    Example:
        >>> round(pearson_within(np.array([1.0, 2.0, 9.0]), np.array([0.0, 1.0, 8.0]), np.zeros(3, int)), 9)
        1.0
    """
    x, y = _centred(steady(credit_S), unit_S), _centred(steady(truth_S), unit_S)
    return _mean_correlation(x, y, unit_S)


def _mean_correlation(x: Floats, y: Floats, unit_S: Ints) -> float | None:
    """Return the mean correlation over units, of values that are centred there."""
    n = int(unit_S.max(initial=-1)) + 1
    top, xx, yy = (np.bincount(unit_S, v, n).astype(np.float64) for v in (x * y, x * x, y * y))
    value, kept = _correlation(top, xx * yy), yy > 0
    return float(value[kept].mean()) if kept.any() else None


def _centred(values: Floats, unit_S: Ints) -> Floats:
    """Return values less their mean in the unit; exactly 0 where all of a unit are equal."""
    n = int(unit_S.max(initial=-1)) + 1
    low, high = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(low, unit_S, values)
    np.maximum.at(high, unit_S, values)
    scaled = np.divide(values, np.abs(values).max(initial=0.0) or 1.0)
    mean = np.bincount(unit_S, scaled, n) / np.maximum(np.bincount(unit_S, minlength=n), 1)
    found: Floats = np.where((low == high)[unit_S], 0.0, scaled - mean[unit_S])
    return found


def _centred_ranks(values: Floats, unit_S: Ints) -> Floats:
    order = np.lexsort((values, unit_S))
    unit, sorted_ = unit_S[order], values[order]
    new = np.ones(order.size, bool)
    new[1:] = (unit[1:] != unit[:-1]) | (sorted_[1:] != sorted_[:-1])
    run = np.cumsum(new) - 1
    place = np.arange(order.size, dtype=np.float64)
    mid = (np.bincount(run, place) / np.bincount(run))[run] if order.size else place
    found = np.empty_like(place)
    found[order] = mid
    many = np.maximum(np.bincount(unit_S), 1)
    mean = np.bincount(unit_S, found) / many
    centred: Floats = found - mean[unit_S]
    return centred


def _correlation(top: Floats, square: Floats) -> Floats:
    """``top / sqrt(square)``, 0 where one side is constant."""
    value: Floats = np.divide(top, np.sqrt(square), out=np.zeros_like(top), where=square > 0)
    return np.clip(value, -1, 1)


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Rank agreement across the alternatives tried at one state.

    Args:
        pooled: Spearman over all alternatives of all states; 0 where credit is constant.
        per_state: mean of Spearman inside a state with at least two true values.
        n_states: such states.
    """

    pooled: float
    per_state: float
    n_states: int


def across_alternatives(
    credit_S: Floats, truth_S: Floats, state_S: Ints, action_S: Ints
) -> Alternatives | None:
    """Return how well credit orders the actions tried at a state by ``Q(s, a) - V(s)``.

    Steps of the same state and action are averaged first, so an alternative counts once.

    Args:
        credit_S: what a method gave ``[S]``.
        truth_S: true advantages ``[S]``.
        state_S: dense code of each step's state (and group) ``[S]``.
        action_S: dense code of each step's action ``[S]``.

    Returns:
        None where no state has two alternatives with different truth.

    Example:
        >>> a = np.array([0.0, 1.0])
        >>> across_alternatives(a, a, np.zeros(2, int), np.arange(2)).per_state
        1.0
    """
    width = int(action_S.max(initial=0)) + 1
    cells, cell_S = np.unique(state_S * width + action_S, return_inverse=True)
    many = np.bincount(cell_S, minlength=cells.size)
    credit, truth = (np.bincount(cell_S, v, cells.size) / many for v in (credit_S, truth_S))
    states, state = np.unique(cells // width, return_inverse=True)
    truth_, top = steady(truth), np.full(states.size, -np.inf)
    low = -top
    np.maximum.at(top, state, truth_)
    np.minimum.at(low, state, truth_)
    kept = (top > low)[state]
    if not kept.any():
        return None
    dense = np.unique(state[kept], return_inverse=True)[1]
    pooled = spearman_within(credit[kept], truth[kept], np.zeros(dense.size, np.int64))
    inside = spearman_within(credit[kept], truth[kept], dense)
    return Alternatives(pooled or 0.0, inside or 0.0, int(dense.max()) + 1)
