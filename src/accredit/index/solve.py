"""Values on a graph: the linear system of the mean backup, and sweeps of the others.

Small blocks (one a group) are solved directly, all blocks of like size at once; a large block
goes to an iterative solver whose residual is checked, because sparse elimination fills in on
random graphs.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from accredit.errors import DataError
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["RESIDUAL", "reachable", "solve_blocks", "sweep"]

# Largest |V - (b + d M V)| that a solution may leave.
RESIDUAL = 1e-10
_DIRECT = 400
_BATCH_CELLS = 1 << 20


def solve_blocks(weights: sparse.csr_array, constant_N: Floats, discount: float, block_N: Ints) -> Floats:
    """Return V with ``V = constant + discount * weights @ V`` ``[N]``.

    Args:
        weights: ``[N, N]``, rows sum to at most 1, no entry between blocks.
        constant_N: ``[N]``.
        discount: in [0, 1]; at 1 every row must lead to one that sums to less.
        block_N: block of each node ``[N]``, 0 .. n_blocks-1.

    Raises:
        DataError: if the residual stays above 1e-10 (discount 1 and a part without an end).
    """
    size_B = np.bincount(block_N)
    order = np.lexsort((block_N, size_B[block_N]))
    ordered = sparse.csr_array(weights[order][:, order])
    right = constant_N[order]
    sizes = size_B[block_N[order]]
    solved = np.zeros(right.size)
    for rows in _batches(sizes):
        solved[rows] = _direct(ordered[rows], right[rows], sizes[rows], rows.start, discount)
    for rows in _large(sizes):
        block = sparse.csr_array(ordered[rows][:, rows])
        solved[rows] = _iterative(block, right[rows], discount)
    found = np.empty(right.size)
    found[order] = solved
    _check(weights, constant_N, discount, found)
    return found


def _batches(sizes: Ints) -> list[slice]:
    """Return ranges of whole small blocks of like size, each a bounded number of matrix cells.

    Args:
        sizes: size of the block of each node ``[N]``, ascending, nodes of a block together.
    """
    found: list[slice] = []
    at, end = 0, int(np.searchsorted(sizes, _DIRECT, side="right"))
    while at < end:
        least = int(sizes[at])
        limit = max(least + 4, least * 5 // 4)
        like = min(end, int(np.searchsorted(sizes, limit, side="right")))
        stop = min(like, at + max(1, _BATCH_CELLS // limit**2) * least)
        stop += _to_next_block(sizes, at, stop)
        found.append(slice(at, stop))
        at = stop
    return found


def _to_next_block(sizes: Ints, at: int, stop: int) -> int:
    """Return how many nodes are missing from ``at .. stop`` to end with a whole block."""
    if stop >= sizes.size:
        return 0
    size = int(sizes[stop])
    first_like = max(at, int(np.searchsorted(sizes, size, side="left")))
    return -(stop - first_like) % size


def _large(sizes: Ints) -> list[slice]:
    """Return the range of each block that is too large to be solved directly."""
    found = []
    at = int(np.searchsorted(sizes, _DIRECT, side="right"))
    while at < sizes.size:
        found.append(slice(at, at + int(sizes[at])))
        at += int(sizes[at])
    return found


def _direct(rows: sparse.csr_array, right: Floats, sizes: Ints, start: int, discount: float) -> Floats:
    """Solve whole blocks, padded to the largest of them."""
    width = int(sizes[-1])
    heads = _heads(sizes)
    slot = np.repeat(np.arange(heads.size), sizes[heads])
    place = np.arange(right.size) - heads[slot]
    row = np.repeat(np.arange(right.size), np.diff(rows.indptr))
    col = place[rows.indices - start]
    system = np.zeros((heads.size, width, width))
    system[slot[row], place[row], col] = -discount * rows.data
    system[:, np.arange(width), np.arange(width)] += 1.0
    constant = np.zeros((heads.size, width, 1))
    constant[slot, place, 0] = right
    try:
        solved = np.linalg.solve(system, constant)
    except np.linalg.LinAlgError:
        solved = np.linalg.pinv(system) @ constant
    values: Floats = solved[slot, place, 0]
    return values


def _heads(sizes: Ints) -> Ints:
    """Return the first node of each block: blocks of one size follow each other."""
    kinds, first, count = np.unique(sizes, return_index=True, return_counts=True)
    parts = [f + k * np.arange(n // k) for k, f, n in zip(kinds, first, count, strict=True)]
    return np.concatenate(parts)


def _iterative(weights: sparse.csr_array, constant: Floats, discount: float) -> Floats:
    system = sparse.eye_array(constant.size, format="csr") - discount * weights
    scale = float(np.abs(constant).max(initial=0.0))
    if scale == 0.0:
        return np.zeros(constant.size)
    start = constant.copy()
    for _ in range(20):
        start = constant + discount * (weights @ start)
    found, _ = linalg.bicgstab(system, constant, x0=start, rtol=0.0, atol=RESIDUAL / 10, maxiter=2000)
    best: Floats = found if _residual(weights, constant, discount, found) <= RESIDUAL else start
    for _ in range(20_000):
        if _residual(weights, constant, discount, best) <= RESIDUAL:
            return best
        for _ in range(10):
            best = constant + discount * (weights @ best)
    return best


def _residual(weights: sparse.csr_array, constant: Floats, discount: float, values: Floats) -> float:
    gap = constant + discount * (weights @ values) - values
    return float(np.abs(gap).max(initial=0.0)) if np.isfinite(gap).all() else np.inf


def _check(weights: sparse.csr_array, constant: Floats, discount: float, values: Floats) -> None:
    scale = max(1.0, float(np.abs(constant).max(initial=0.0)))
    left = _residual(weights, constant, discount, values)
    if not left <= RESIDUAL * scale:
        raise DataError(
            f"state values did not settle: residual {left:.2g} at discount {discount:g}",
            hint="Use a discount below 1, or mark cut-off rollouts as truncated",
        )


def sweep(
    src_E: Ints,
    dst_E: Ints,
    pinned_N: BoolArray,
    pin_N: Floats,
    discount: float,
    power: float,
) -> Floats:
    """Return the fixed point of a power-mean backup ``V = d (mean of V'^w)^(1/w)`` ``[N]``.

    Args:
        src_E: node that each edge leaves.
        dst_E: node that each edge enters.
        pinned_N: nodes whose value is fixed.
        pin_N: those values, >= 0; 0 elsewhere.
        discount: in (0, 1).
        power: w >= 1; infinity = maximum.
    """
    values = pin_N.copy()
    degree = np.bincount(src_E, minlength=pin_N.size)
    free = ~pinned_N & (degree > 0)
    for _ in range(200_000):
        if np.isinf(power):
            backed = np.zeros(values.size)
            np.maximum.at(backed, src_E, values[dst_E])
        else:
            total = np.bincount(src_E, values[dst_E] ** power, values.size)
            backed = (total / np.maximum(degree, 1)) ** (1 / power)
        fresh = np.where(free, discount * backed, pin_N)
        if float(np.abs(fresh - values).max(initial=0.0)) <= 1e-14:
            return fresh
        values = fresh
    return values


def reachable(src_E: Ints, dst_E: Ints, goal_N: BoolArray) -> BoolArray:
    """Return the nodes from which some goal can be reached ``[N]`` (goals included).

    Args:
        src_E: node that each edge leaves.
        dst_E: node that each edge enters.
        goal_N: the goals ``[N]``.
    """
    n = goal_N.size
    back = sparse.csr_array((np.ones(src_E.size), (dst_E, src_E)), shape=(n, n))
    seen = goal_N.copy()
    front = goal_N.copy()
    while front.any():
        front = ((back.T @ front.astype(np.float64)) > 0) & ~seen
        seen |= front
    return seen
