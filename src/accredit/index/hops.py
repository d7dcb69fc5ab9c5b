"""Graph GAE: mean one-step residuals some hops further on."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from accredit.index.graph import StateGraph
from accredit.typing import Floats, Ints

__all__ = ["graph_gae"]

_NOTHING = 1e-13


def graph_gae(graph: StateGraph, td_E: Floats, decay: float) -> Floats:
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
    """
    total_N = np.bincount(graph.src_E, td_E, graph.n)
    mean_N = total_N / np.maximum(graph.degree_N, 1)
    alive = np.abs(mean_N) > _NOTHING
    found = td_E.copy()
    edge_group = graph.group_N[graph.src_E]
    for group in np.unique(graph.group_N[alive]).tolist():
        edges = np.flatnonzero(edge_group == group)
        found[edges] += _walk(graph, edges, total_N, decay)
    return found


def _walk(graph: StateGraph, edges: Ints, total_N: Floats, decay: float) -> Floats:
    """Return what the hops add to the edges of one group."""
    nodes, local = np.unique(np.concatenate([graph.src_E[edges], graph.dst_E[edges]]), return_inverse=True)
    src, dst = local[: edges.size], local[edges.size :]
    links = sparse.csr_array((np.ones(edges.size), (src, dst)), shape=(nodes.size, nodes.size))
    totals, degrees = total_N[nodes], graph.degree_N[nodes].astype(np.float64)
    index = graph.index
    rollout = index.rollout_S[graph.step_E[edges]]
    left = index.steps_R[rollout] - 1 - index.position_S[graph.step_E[edges]]
    front = sparse.csr_array(sparse.eye_array(nodes.size, format="csr"))
    added = np.zeros(edges.size)
    for k in range(1, int(left.max(initial=0)) + 1):
        count = front @ degrees
        if not count.any():
            break
        mean = np.divide(front @ totals, count, out=np.zeros(nodes.size), where=count > 0)
        added += np.where(left >= k, decay**k * mean[dst], 0.0)
        front = sparse.csr_array(((front @ links) > 0).astype(np.float64))
    return added
