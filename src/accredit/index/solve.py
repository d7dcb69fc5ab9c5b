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
_BATCH_CELLS = 1 << 23


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
    found = np.zeros(constant_N.size)
    order = np.argsort(block_N, kind="stable")
    size_B = np.bincount(block_N)
    start_B = np.concatenate([[0], np.cumsum(size_B)])
    entries = weights.tocoo()
    place_N = np.empty(order.size, np.int64)
    place_N[order] = np.arange(order.size) - start_B[block_N[order]]
    for blocks in _batches(size_B):
        members = _members(order, start_B, size_B, blocks)
        found[members.nodes] = _direct(entries, constant_N, discount, block_N, place_N, blocks, members)
    for block in np.flatnonzero(size_B > _DIRECT).tolist():
        nodes = order[start_B[block] : start_B[block + 1]]
        part = sparse.csr_array(weights[nodes][:, nodes])
        found[nodes] = _iterative(part, constant_N[nodes], discount)
    _check(weights, constant_N, discount, found)
    return found


class _Members:
    """The nodes of some blocks, with each one's block and place in the padded batch."""

    def __init__(self, nodes: Ints, slot: Ints, place: Ints, width: int) -> None:
        self.nodes, self.slot, self.place, self.width = nodes, slot, place, width


def _batches(size_B: Ints) -> list[Ints]:
    """Return lists of blocks of like size, each list a bounded number of matrix cells."""
    small = np.flatnonzero((size_B > 0) & (size_B <= _DIRECT))
    small = small[np.argsort(size_B[small], kind="stable")]
    found: list[Ints] = []
    at = 0
    while at < small.size:
        least = int(size_B[small[at]])
        limit = max(least + 4, least * 5 // 4)
        like = int(np.searchsorted(size_B[small], limit, side="right"))
        room = max(1, _BATCH_CELLS // limit**2)
        end = min(like, at + room)
        found.append(small[at:end])
        at = end
    return found


def _members(order: Ints, start_B: Ints, size_B: Ints, blocks: Ints) -> _Members:
    sizes = size_B[blocks]
    slot = np.repeat(np.arange(blocks.size), sizes)
    place = np.arange(slot.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    nodes = order[np.repeat(start_B[blocks], sizes) + place]
    return _Members(nodes, slot, place, int(sizes.max()))


def _direct(
    entries: sparse.coo_array,
    constant_N: Floats,
    discount: float,
    block_N: Ints,
    place_N: Ints,
    blocks: Ints,
    members: _Members,
) -> Floats:
    width = members.width
    slot_B = np.full(int(block_N.max()) + 1, -1, np.int64)
    slot_B[blocks] = np.arange(blocks.size)
    row, col = entries.coords
    slot_E = slot_B[block_N[row]]
    keep = slot_E >= 0
    system = np.zeros((blocks.size, width, width))
    flat = (slot_E[keep] * width + place_N[row[keep]]) * width + place_N[col[keep]]
    system.reshape(-1)[:] = -discount * np.bincount(flat, entries.data[keep], system.size)
    system[:, np.arange(width), np.arange(width)] += 1.0
    right = np.zeros((blocks.size, width, 1))
    right[members.slot, members.place, 0] = constant_N[members.nodes]
    try:
        solved = np.linalg.solve(system, right)
    except np.linalg.LinAlgError:
        solved = np.linalg.pinv(system) @ right
    values: Floats = solved[members.slot, members.place, 0]
    return values


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
    """Return the nodes from which some goal can be reached ``[N]`` (goals included)."""
    n = goal_N.size
    back = sparse.csr_array((np.ones(src_E.size), (dst_E, src_E)), shape=(n, n))
    seen = goal_N.copy()
    front = goal_N.copy()
    while front.any():
        front = ((back.T @ front.astype(np.float64)) > 0) & ~seen
        seen |= front
    return seen
