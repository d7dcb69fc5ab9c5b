"""GRAFT: one-step differences of graph values, Graph GAE, normalised at each state.

Source: arXiv 2609.28963, Eq. 5-10 and Algorithm 1; no authors' code was to be had.  Choices:
docs/methods/graft.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Finding, Parts, Term
from accredit.index import GroupStats, Index, StateGraph, visit_term
from accredit.index.hops import graph_gae
from accredit.methods._graph import outcome_findings, snapped
from accredit.methods._params import bounded, choice, flag
from accredit.methods._registry import method
from accredit.methods.gigpo import missing_states
from accredit.typing import Floats

__all__ = ["graft"]

# Below this a credit is rounding, and its sign says nothing.
_NOTHING = 1e-9


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `graft`."""

    gamma: float = bounded(0.99, above=0, at_most=1, doc="discount of one step on the graph")
    lam: float = bounded(0.95, at_least=0, at_most=1, doc="decay of Graph GAE; 0 = one-step")
    normalise: bool = flag(default=True, doc="standardise over the steps that leave one state")
    eps: float = bounded(1e-6, above=0, doc="added to the deviation")
    terminal: str = choice(
        "open", "state", "virtual", doc="what a rollout's end pins (see the method's page)"
    )
    action_weight: str = choice(
        "count", "uniform", doc="recorded edges weigh the same, or distinct actions do"
    )
    group: str = choice(
        "steps", "distinct_edges", doc="a state's statistics over steps, or over distinct edges"
    )
    success_above: float = bounded(0.0, doc="an outcome above it is a success")


@method(
    "graft",
    title="One-step differences of state-graph values with Graph GAE, standardised at each state",
    family="shared states",
    params=Params,
    needs={"reward", "state", "action"},
    yields="step",
    tags={"group", "state_local"},
    cites="arXiv:2609.28963",
    compat={"paper": {"terminal": "state"}},
)
def graft(index: Index, params: Params) -> Parts:
    """Graph-based step credit.

    ``V(u) = gamma mean over recorded edges V(v)``, ends pinned to their mean success;
    ``A_t = gamma V(s_{t+1}) - V(s_t)``; Graph GAE adds ``sum_k (gamma lam)^k`` times the mean
    residual k hops on; the result is standardised over the steps that leave the state (a single
    step keeps its sign).  No trajectory term.  On deterministic data with clean ends the one-step
    form equals CRBC's ``Q - V``.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``.  Extras: ``state_values``, ``next_values``, ``td``, ``graph_gae``
        ``[S]``.

    Source: arXiv 2609.28963.
    """
    graph = StateGraph.of(
        index,
        terminals=params.terminal,  # type: ignore[arg-type]
        success_above=params.success_above,
    )
    values = graph.solve(params.gamma, uniform_actions=params.action_weight == "uniform")
    td = snapped(graph.td(values, params.gamma))
    by_count = params.action_weight == "count"
    gae = snapped(graph_gae(graph, td, params.gamma * params.lam, count_weights=by_count))
    stats = _stats(graph, gae, params)
    found = _normalised(graph, gae, stats, params.eps) if params.normalise else gae
    credit = graph.to_steps(found)

    def explain(s: int) -> Explanation:
        term = _term(graph, s, (td, gae), values, stats, params, float(credit[s]))
        return Explanation("graft", *index.place_of(s), float(credit[s]), (term,))

    return Parts(
        credit,
        parts={"step": credit},
        informed_S=credit != 0,
        fallbacks={"missing_state": missing_states(index)},
        findings=(*outcome_findings(index, index.scored_R), *_gae_finding(td, gae, params)),
        extras={
            "state_values": graph.at_steps(values),
            "next_values": graph.to_steps(values[graph.dst_E]),
            "td": graph.to_steps(td),
            "graph_gae": graph.to_steps(gae),
        },
        explain=explain,
    )


def _stats(graph: StateGraph, credit: Floats, params: Params) -> GroupStats:
    """Statistics over the steps that leave a state, or with one vote a distinct edge."""
    if params.group == "steps":
        return graph.state_stats(credit)
    edge = graph.action_E * graph.n + graph.dst_E
    _, first = np.unique(edge, return_index=True)
    counted = np.zeros(credit.size, bool)
    counted[first] = True
    return GroupStats(credit, graph.src_E, graph.n, counted)


def _normalised(graph: StateGraph, credit: Floats, stats: GroupStats, eps: float) -> Floats:
    """Standardise at each state; where one step (or edge) stands alone keep its sign."""
    node = graph.src_E
    centred = np.where(stats.flat[node], 0.0, credit - stats.mean[node])
    scaled = centred / (stats.std()[node] + eps)
    sign = np.where(np.abs(credit) < _NOTHING, 0.0, credit / (np.abs(credit) + eps))
    return np.where(stats.size[node] < 2, sign, scaled)


def _gae_finding(td: Floats, gae: Floats, params: Params) -> tuple[Finding, ...]:
    if params.lam == 0 or not td.size:
        return ()
    gap = float(np.abs(gae - td).max())
    if gap > _NOTHING:
        return (Finding("ACC412", "info", f"Graph GAE moves credit by up to {gap:.3g} here"),)
    return (
        Finding(
            "ACC412",
            "info",
            "Graph GAE changes nothing here: at exact values the mean residual of a state is 0",
            hint="It acts only where a rollout was cut off in a state that others leave",
        ),
    )


def _term(
    graph: StateGraph,
    s: int,
    credits: tuple[Floats, Floats],
    values: Floats,
    stats: GroupStats,
    params: Params,
    value: float,
) -> Term:
    td, gae = credits
    if graph.node_S[s] < 0:
        return Term("step", value, "rollout not counted")
    edge = graph.edge_of(s)
    before, after = float(values[graph.src_E[edge]]), float(values[graph.dst_E[edge]])
    base = visit_term(graph.index, "step", stats, edge, noun="TD credit", steps=graph.step_E)
    text = f"{params.gamma:g} x V' {after:.6g} - V {before:.6g} = {td[edge]:.6g}"
    if gae[edge] != td[edge]:
        text += f", with Graph GAE {gae[edge]:.6g}"
    node = int(graph.src_E[edge])
    n = int(stats.size[node])
    if params.normalise and n < 2:
        text += "; the only step here: its sign"
    elif params.normalise:
        text += (
            f"; (it - mean {stats.mean[node]:.6g} of {n}) / (std {stats.std()[node]:.6g} + {params.eps:g})"
        )
    inputs = {"V": before, "V'": after, "td": float(td[edge]), "graph_gae": float(gae[edge])}
    return Term("step", value, text, inputs, base.members)
