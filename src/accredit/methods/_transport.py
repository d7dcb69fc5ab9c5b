"""Distances between clouds of vectors, and each cloud's nearest one on the other side.

A span is a run of rows of a matrix ``[n, d]``, taken as a uniform measure.  The Wasserstein distance
of two spans is exact W_1 with Euclidean cost, by assignment where their lengths have a small common
multiple and by the transport linear program where they have not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from accredit.typing import Floats, Ints

__all__ = [
    "EXACT",
    "Cloud",
    "Nearest",
    "Solver",
    "distances",
    "dual_bound",
    "nearest",
    "one_sided",
    "sinkhorn",
    "span_means",
    "wasserstein",
]

_MULTIPLE = 4  # assignment on repeated rows and columns beats the linear program up to here
_CLOSE = 1e-6  # squared distance over squared norms below which the product form has lost its digits
_PIECE = 1 << 22  # values of a block of differences
_ROUNDING = 1e-12  # a bound must exceed the best by more than its own rounding


class Solver(NamedTuple):
    """A distance of two measures from their cost matrix, at least W_1.

    Args:
        distance: of a cost matrix.
        dear: whether a matrix of n x m costs more than a `dual_bound`, which is then asked first.
    """

    distance: Callable[[Floats], float]
    dear: Callable[[int, int], bool]


class Cloud(NamedTuple):
    """Vectors of one rollout ``[n, d]``, float64, and its spans: first and one past the last row ``[K]``."""

    points: Floats
    first: Ints
    stop: Ints


class Nearest(NamedTuple):
    """Least distance of each span to any span of the other clouds, and how many pairs were solved."""

    here: list[Floats]
    there: list[Floats]
    solved: int
    pairs: int


def distances(x: Floats, y: Floats) -> Floats:
    """Return the Euclidean distances ``[n, m]``; of equal rows exactly 0.

    One matrix product gives ``|x|^2 + |y|^2 - 2xy``; where that cancels, ``x - y`` is taken anew.

    Args:
        x: ``[n, d]``.
        y: ``[m, d]``.

    Example:
        >>> distances(np.array([[0.0, 3.0]]), np.array([[4.0, 0.0], [0.0, 3.0]])).tolist()
        [[5.0, 0.0]]
    """
    size = np.add.outer(np.einsum("ij,ij->i", x, x), np.einsum("ij,ij->i", y, y))
    square = x @ y.T
    square *= -2.0
    square += size
    rows, columns = np.nonzero(square <= _CLOSE * size)
    step = max(1, _PIECE // max(1, x.shape[1]))
    for a in range(0, rows.size, step):
        i, j = rows[a : a + step], columns[a : a + step]
        away = x[i] - y[j]
        square[i, j] = np.einsum("ij,ij->i", away, away)
    found: Floats = np.sqrt(square, out=square)
    return found


def wasserstein(cost: Floats) -> float:
    """Return exact W_1 of two uniform measures with this cost matrix.

    Args:
        cost: ``[n, m]``, at least 1 x 1.

    Example:
        >>> wasserstein(np.array([[0.0, 2.0], [2.0, 1.0]])), wasserstein(np.array([[0.0, 2.0]]))
        (0.5, 1.0)
    """
    from scipy.optimize import linear_sum_assignment  # importing it costs more than most methods

    n, m = cost.shape
    if n == m:
        rows, columns = linear_sum_assignment(cost)
        return float(cost[rows, columns].mean())
    if 1 in (n, m):
        return float(cost.mean())
    if _programmed(n, m):
        return _transported(cost)
    both = math.lcm(n, m)
    spread = np.repeat(np.repeat(cost, both // n, axis=0), both // m, axis=1)
    rows, columns = linear_sum_assignment(spread)
    return float(spread[rows, columns].mean())


def _programmed(n: int, m: int) -> bool:
    return min(n, m) > 1 and math.lcm(n, m) > _MULTIPLE * max(n, m)


EXACT = Solver(wasserstein, _programmed)


def _transported(cost: Floats) -> float:
    """Return the value of the transport linear program: rows ship 1/n, columns take 1/m."""
    from scipy.optimize import linprog
    from scipy.sparse import eye_array, kron, vstack

    n, m = cost.shape
    ship = kron(eye_array(n), np.ones((1, m)))
    take = kron(np.ones((1, n)), eye_array(m))
    mass = np.concatenate([np.full(n, 1.0 / n), np.full(m, 1.0 / m)])
    form = vstack([ship, take]).tocsc()
    # Half of the time goes into a presolve that finds nothing to drop.
    solved = linprog(cost.ravel(), A_eq=form, b_eq=mass, method="highs-ds", options={"presolve": False})
    assert solved.status == 0, solved.message
    return max(0.0, float(solved.fun))


def sinkhorn(cost: Floats, share: float, iterations: int = 500, tolerance: float = 1e-6) -> float:
    """Return entropic W_1, regulariser included: ``min <P, C> + eps KL(P || uniform x uniform)``.

    ``eps = share x median(C)``; in the log domain, until the rows' mass errs by less than the
    tolerance. It is at least W_1, and tends to it with ``share``.

    Args:
        cost: ``[n, m]``.
        share: of the median cost.
        iterations: at most.
        tolerance: of the rows' mass.
    """
    eps = share * float(np.median(cost))
    if eps <= 0:  # half of all costs are 0: no scale to smooth by
        return wasserstein(cost)
    n, m = cost.shape
    scaled = cost / eps
    f, g = np.zeros(n), np.zeros(m)
    for _ in range(iterations):
        new = math.log(m) - _log_sum_exp(g[None, :] - scaled, 1)
        error = np.abs(np.expm1(np.minimum(f - new, 50.0))).mean()  # of the plan of the round before
        f = new
        g = math.log(n) - _log_sum_exp(f[:, None] - scaled, 0)
        if error < tolerance:
            break
    plan_rows = np.exp(f + _log_sum_exp(g[None, :] - scaled, 1) - math.log(n * m))
    return eps * float(f @ plan_rows + g.mean())


def _log_sum_exp(values: Floats, axis: int) -> Floats:
    top = values.max(axis=axis, keepdims=True)
    found: Floats = np.log(np.exp(values - top).sum(axis=axis)) + np.squeeze(top, axis)
    return found


def dual_bound(cost: Floats, share: float = 0.02, iterations: int = 50) -> float:
    """Return a lower bound of W_1, some tenths of a per cent below it: feasible dual potentials.

    The potentials of a short entropic iteration are made feasible by ``f_i = min_j (C_ij - g_j)``;
    whatever they are, ``mean f + mean g <= W_1``.

    Args:
        cost: ``[n, m]``.
        share: of the median cost, the entropic scale.
        iterations: of the scaling.

    Example:
        >>> 0.45 < dual_bound(np.array([[0.0, 2.0], [2.0, 1.0]])) <= 0.5
        True
    """
    n, m = cost.shape
    eps = share * float(np.median(cost))
    if eps <= 0:
        return 0.0
    row = np.ones(m)
    with np.errstate(all="ignore"):  # costs too far apart for the kernel give no bound
        kernel = np.exp((cost.min() - cost) / eps)
        for _ in range(iterations):
            column = 1.0 / (n * (kernel @ row))
            row = 1.0 / (m * (column @ kernel))
        g = eps * np.log(row)
        f = (cost - g).min(axis=1)
        found = float(f.mean() + (cost - f[:, None]).min(axis=0).mean())
    return found if math.isfinite(found) else 0.0


def span_means(values: Floats, first: Ints, stop: Ints) -> Floats:
    """Return the mean of rows ``first .. stop - 1`` for each span, ``[K, ...]``.

    Args:
        values: ``[n, ...]``.
        first: ``[K]``.
        stop: ``[K]``, greater.
    """
    found = np.empty((first.size, *values.shape[1:]))
    for k, (a, b) in enumerate(zip(first.tolist(), stop.tolist(), strict=True)):
        values[a:b].mean(axis=0, out=found[k, ...])
    return found


def _span_minima(cost: Floats, cloud: Cloud) -> Floats:
    """Return the least entry over the columns of each span, for each row ``[n, K]``."""
    found = np.empty((cost.shape[0], cloud.first.size))
    for k, (a, b) in enumerate(zip(cloud.first.tolist(), cloud.stop.tolist(), strict=True)):
        cost[:, a:b].min(axis=1, out=found[:, k])
    return found


def one_sided(cost: Floats, here: Cloud, there: Cloud) -> tuple[Floats, Floats]:
    """Return the mean distance to the nearest row of the other span, both ways, ``[K, L]`` each.

    Args:
        cost: distances of all rows ``[n, m]``.
        here: cloud of the rows.
        there: cloud of the columns.
    """
    to = span_means(_span_minima(cost, there), here.first, here.stop)
    back = span_means(_span_minima(np.ascontiguousarray(cost.T), here), there.first, there.stop)
    return to, back.T


def nearest(here: list[Cloud], there: list[Cloud], solver: Solver = EXACT, *, prune: bool = True) -> Nearest:
    """Return each span's least distance to any span of the clouds on the other side.

    The distances of two clouds' rows are computed once and serve both sides.  A pair of spans is
    solved only if lower bounds leave it open for one of the two: the distance of the means, the
    mean distance to the nearest row, and before a dear solution the dual bound.

    Args:
        here: clouds of one side.
        there: clouds of the other.
        solver: of a pair of spans.
        prune: False solves every pair.
    """
    best_h, best_t = ([np.full(c.first.size, np.inf) for c in side] for side in (here, there))
    means_h, means_t = ([span_means(c.points, c.first, c.stop) for c in side] for side in (here, there))
    solved = pairs = 0
    for i, a in enumerate(here):
        for j, b in enumerate(there):
            cost = distances(a.points, b.points)
            bound = np.zeros((a.first.size, b.first.size))
            if prune:
                bound = np.maximum(distances(means_h[i], means_t[j]), np.maximum(*one_sided(cost, a, b)))
                bound *= 1.0 - _ROUNDING
            solved += _solve(cost, a, b, bound, (best_h[i], best_t[j]), solver, prune=prune)
            pairs += bound.size
    return Nearest(best_h, best_t, solved, pairs)


def _solve(
    cost: Floats,
    a: Cloud,
    b: Cloud,
    bound: Floats,
    best: tuple[Floats, Floats],
    solver: Solver,
    *,
    prune: bool,
) -> int:
    """Lower the best distances of two clouds' spans in place; return how many pairs were solved."""
    solved = 0
    best_a, best_b = best
    rows, columns = _promising_first(a, b, bound, solver)
    for k, m in zip(rows, columns, strict=True):
        worst = max(best_a[k], best_b[m])
        if prune and bound[k, m] >= worst:
            continue
        between = cost[a.first[k] : a.stop[k], b.first[m] : b.stop[m]]
        if prune and solver.dear(*between.shape) and dual_bound(between) * (1.0 - _ROUNDING) >= worst:
            continue
        found = solver.distance(between)
        best_a[k] = min(best_a[k], found)
        best_b[m] = min(best_b[m], found)
        solved += 1
    return solved


def _promising_first(a: Cloud, b: Cloud, bound: Floats, solver: Solver) -> tuple[list[int], list[int]]:
    """Return the pairs by rising bound, dear ones after the others."""
    sizes = [cloud.stop - cloud.first for cloud in (a, b)]
    dear = np.array([[solver.dear(n, m) for m in sizes[1].tolist()] for n in sizes[0].tolist()])
    order = np.lexsort((bound.ravel(), dear.ravel()))
    rows, columns = np.unravel_index(order, bound.shape)
    return rows.tolist(), columns.tolist()
