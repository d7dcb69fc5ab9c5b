"""Graph GAE: mean one-step residuals some hops further on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accredit.index.graph import StateGraph
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["graph_gae"]

_WORD = 64
_CELLS = 1 << 22

Bits = NDArray[np.uint64]


def graph_gae(graph: StateGraph, td_E: Floats, decay: float, *, count_weights: bool = True) -> Floats:
    """Return Graph GAE of each edge ``[E]``.

    ``A_t + sum_{k=1}^{T-t} decay^k mean of td over the edges reached from s_{t+1} in k hops``:
    hop 1 are the edges that leave s_{t+1}; the nodes of a hop are a set, each recorded edge counts
    once; the sum ends with the rollout, or where no edge goes on.

    At the exact fixed point with count weights the mean residual of every node that is not pinned
    is 0, so only groups with a pinned node that others leave are walked.

    Args:
        graph: of the batch.
        td_E: one-step residuals ``[E]``.
        decay: ``gamma * lambda``.
        count_weights: the values weigh every recorded edge the same.
    """
    total_N: Floats = np.bincount(graph.src_E, td_E, graph.n).astype(np.float64, copy=False)
    if count_weights:
        total_N = np.where(graph.pinned_N, total_N, 0.0)
    n_groups = int(graph.group_N.max(initial=-1)) + 1
    size_G = np.bincount(graph.group_N, minlength=n_groups)
    words_G = -(-size_G // _WORD)
    speaks = np.bincount(graph.group_N, np.abs(total_N), n_groups) > 0
    found = td_E.copy()
    for width in np.unique(2 ** np.ceil(np.log2(words_G[speaks]))).astype(int).tolist():
        some = speaks & (words_G <= width) & (words_G > width // 2)
        found += _Walk.of(graph, some, int(width)).hops(graph, total_N, decay)
    return found


class _Walk(NamedTuple):
    """Groups of like size walked together: one bit set of a group's nodes for each node."""

    edges: Ints
    src: Ints
    dst: Ints
    nodes: Ints
    place: Ints
    slot: Ints
    width: int

    @classmethod
    def of(cls, graph: StateGraph, groups: BoolArray, width: int) -> _Walk:
        nodes = np.flatnonzero(groups[graph.group_N])
        nodes = nodes[np.argsort(graph.group_N[nodes], kind="stable")]
        of_group = graph.group_N[nodes]
        head = np.flatnonzero(np.concatenate([[True], of_group[1:] != of_group[:-1]]))
        slot = np.cumsum(np.concatenate([[0], of_group[1:] != of_group[:-1]]))
        place = np.arange(nodes.size) - head[slot]
        local = np.full(graph.n, -1, np.int64)
        local[nodes] = np.arange(nodes.size)
        edges = np.flatnonzero(local[graph.src_E] >= 0)
        edges = edges[np.argsort(local[graph.src_E[edges]], kind="stable")]
        src, dst = local[graph.src_E[edges]], local[graph.dst_E[edges]]
        return cls(edges, src, dst, nodes, place, slot, width)

    def hops(self, graph: StateGraph, total_N: Floats, decay: float) -> Floats:
        """Return what the hops add to each edge ``[E]``."""
        index = graph.index
        step = graph.step_E[self.edges]
        left = index.steps_R[index.rollout_S[step]] - 1 - index.position_S[step]
        totals, degrees = self._table(total_N), self._table(graph.degree_N.astype(np.float64))
        front = np.zeros((self.nodes.size, self.width), np.uint64)
        bit = np.uint64(1) << (self.place % _WORD).astype(np.uint64)
        front[np.arange(self.nodes.size), self.place // _WORD] = bit
        added = np.zeros(self.edges.size)
        mean = np.zeros(self.nodes.size)
        settled = False
        for k in range(1, int(left.max(initial=0)) + 1):
            if not settled:
                count = self._sums(front, degrees)
                total = self._sums(front, totals)
                mean = np.divide(total, count, out=np.zeros(count.size), where=count > 0)
                fresh = self._next(front)
                settled = np.array_equal(fresh, front)
                front = fresh
            if settled and not mean.any():
                break
            added += np.where(left >= k, decay**k * mean[self.dst], 0.0)
        found = np.zeros(graph.src_E.size)
        found[self.edges] = added
        return found

    def _table(self, values_N: Floats) -> Floats:
        """Values of each group's nodes by place ``[groups, 64 width]``."""
        table = np.zeros((int(self.slot.max(initial=-1)) + 1, _WORD * self.width))
        table[self.slot, self.place] = values_N[self.nodes]
        return table

    def _sums(self, front: Bits, table: Floats) -> Floats:
        """Sum of the table over each node's set ``[nodes]``."""
        found = np.zeros(front.shape[0])
        size = max(1, _CELLS // (_WORD * self.width))
        for at in range(0, front.shape[0], size):
            rows = slice(at, at + size)
            bits = np.unpackbits(front[rows].view(np.uint8), axis=1, bitorder="little")
            found[rows] = np.einsum("ij,ij->i", bits, table[self.slot[rows]])
        return found

    def _next(self, front: Bits) -> Bits:
        """The sets one hop on: the union of the sets of each node's successors."""
        found = np.zeros_like(front)
        degree = np.bincount(self.src, minlength=front.shape[0])
        end = np.cumsum(degree)
        size = max(1, _CELLS // self.width)
        at = 0
        while at < self.edges.size:
            stop = int(end[np.searchsorted(end, min(at + size, self.edges.size))])
            sources, first = np.unique(self.src[at:stop], return_index=True)
            found[sources] = np.bitwise_or.reduceat(front[self.dst[at:stop]], first, axis=0)
            at = stop
        return found
