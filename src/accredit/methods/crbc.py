"""CRBC: advantages of the group's own behaviour policy, evaluated exactly on its state graph.

Source: arXiv 2609.35082, equations and Algorithm 1; no authors' code was found.  Extensions and
defaults: docs/methods/crbc.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Finding, Member, Parts, Term
from accredit.index import Index, StateGraph
from accredit.methods._graph import grpo_part, grpo_term, outcome_findings
from accredit.methods._params import bounded, choice
from accredit.methods._registry import method
from accredit.methods.gigpo import missing_states
from accredit.typing import BoolArray, Floats

__all__ = ["crbc"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `crbc`."""

    beta: float = bounded(0.98, above=0, at_most=1, doc="discount of one step on the graph")
    depth: int | None = bounded(
        None, at_least=0, whole=True, doc="K backups of the visit means; None = closure"
    )
    sigma_min: float = bounded(0.1, above=0, doc="least spread of a state's action values")
    grpo_weight: float = bounded(1.0, at_least=0, doc="weight of the trajectory term w_G")
    step_weight: float = bounded(5.0, at_least=0, doc="weight of the step term w_S")
    normalise: str = choice("sigma", "none", doc="divide Q - V by the state's spread, or not")
    boundary: str = choice("success", "reward", doc="ends are worth 1 or 0, or their outcome")
    success_above: float = bounded(0.0, doc="an outcome above it is a success")
    reward_range: float = bounded(1.0, above=0, doc="boundary=reward: unit of sigma_min")
    truncated: str = choice(
        "failure", "open", doc="a cut-off is an end like any other, or leads on where others go on"
    )


@method(
    "crbc",
    title="Q - V of the group's own policy on its state graph, solved across rollouts",
    family="shared states",
    params=Params,
    needs={"reward", "state", "action"},
    yields="step",
    tags={"group", "state_local"},
    cites="arXiv:2609.35082",
    compat={"paper": {}},
)
def crbc(index: Index, params: Params) -> Parts:
    """Cross-rollout Bellman closure.

    With counts N(s,a,x) of the group, ``P = N(s,a,x)/N(s,a)``, ``mu = N(s,a)/N(s)`` and ends worth
    1 or 0: ``V(s) = beta sum_a mu sum_x P V(x)``, ``Q(s,a) = beta sum_x P V(x)``.  Step part
    ``(Q - V) / max(sigma_mu, sigma_min)``, 0 where one action was seen; credit
    ``w_G A_grpo + w_S`` times it.  ``step_weight=0`` is GRPO; depth 0 without normalising averages
    GiGPO's mean-only step part times beta.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``; before normalising it sums to 0 over each state.  Extras:
        ``state_values``, ``action_values`` and ``step_credit`` ``[S]``.

    Source: arXiv 2609.35082.
    """
    counted = index.scored_R
    graph = StateGraph.of(
        index,
        counted_R=counted,
        boundary="reward" if params.boundary == "reward" else "success",
        success_above=params.success_above,
        open_truncated=params.truncated == "open",
    )
    paid = params.boundary == "reward" and index.batch.has("reward_S")
    values = graph.solve(params.beta, depth=params.depth, step_rewards=paid)
    q = _action_values(graph, params, values, paid)
    raw, sigma = _centred(graph, q, values)
    floor = params.sigma_min * (params.reward_range if params.boundary == "reward" else 1.0)
    step = _normalised(graph, raw, np.maximum(sigma, floor), params)
    outcome, stats = grpo_part(index)
    parts = {
        "episode": params.grpo_weight * outcome,
        "step": params.step_weight * graph.to_steps(step),
    }
    credit = parts["episode"] + parts["step"]

    def explain(s: int) -> Explanation:
        terms = [grpo_term(index, stats, s, params.grpo_weight)]
        terms.append(_step_term(graph, s, q, values, sigma, floor, params, float(parts["step"][s])))
        return Explanation("crbc", *index.place_of(s), float(credit[s]), tuple(terms))

    return Parts(
        credit,
        parts=parts,
        informed_S=parts["step"] != 0,
        fallbacks={"missing_state": missing_states(index)},
        findings=_findings(index, counted, params),
        extras={
            "state_values": graph.at_steps(values),
            "action_values": graph.to_steps(q),
            "step_credit": graph.to_steps(step),
        },
        explain=explain,
    )


def _action_values(graph: StateGraph, params: Params, values: Floats, paid: bool) -> Floats:
    """Q of each edge: from V one backup back (depth K), from the visits (depth 0), or from V."""
    if params.depth is None:
        return graph.q(values, params.beta, step_rewards=paid)
    if params.depth > 0:
        before = graph.solve(params.beta, depth=params.depth - 1, step_rewards=paid)
        return graph.q(before, params.beta, step_rewards=paid)
    return graph.visit_q(params.beta)


def _centred(graph: StateGraph, q: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return Q - V of each edge ``[E]``, exact 0 where equal, and sigma_mu of each node ``[N]``."""
    raw = q - values[graph.src_E]
    size = np.maximum(1.0, np.abs(values[graph.src_E]))
    raw = np.where(np.abs(raw) <= 1e-12 * size, 0.0, raw)
    square = np.bincount(graph.src_E, raw**2, graph.n)
    return raw, np.sqrt(square / np.maximum(graph.degree_N, 1))


def _normalised(graph: StateGraph, raw: Floats, scale_N: Floats, params: Params) -> Floats:
    scaled = raw if params.normalise == "none" else raw / scale_N[graph.src_E]
    return np.where(graph.actions_N[graph.src_E] >= 2, scaled, 0.0)


def _findings(index: Index, counted: BoolArray, params: Params) -> tuple[Finding, ...]:
    found = outcome_findings(index, counted) if params.boundary == "success" else ()
    if params.beta == 1.0:
        found += (
            Finding(
                "ACC411",
                "warning",
                "beta = 1: values do not prefer short ways and may not settle",
                hint="Use beta below 1 (0.95 to 0.99)",
            ),
        )
    return found


def _step_term(
    graph: StateGraph,
    s: int,
    q: Floats,
    values: Floats,
    sigma: Floats,
    floor: float,
    params: Params,
    value: float,
) -> Term:
    node = int(graph.node_S[s])
    if node < 0:
        return Term("step", value, "rollout not counted", {}, ())
    edges = np.flatnonzero(graph.src_E == node)
    own = graph.edge_of(s)
    members = tuple(_member(graph, e, q, own) for e in edges.tolist())
    n_actions = int(graph.actions_N[node])
    scale = max(float(sigma[node]), floor)
    text = f"{params.step_weight:g} x (Q {q[own]:.6g} - V {values[node]:.6g})"
    if params.normalise == "sigma":
        text += f" / max(sigma {sigma[node]:.6g}, {floor:g})"
    if n_actions < 2:
        text += " [one action seen here: 0]"
    inputs = {"Q": float(q[own]), "V": float(values[node]), "sigma": float(sigma[node]), "scale": scale}
    return Term("step", value, text, inputs, members)


def _member(graph: StateGraph, edge: int, q: Floats, own: int) -> Member:
    step = int(graph.step_E[edge])
    index = graph.index
    same = " same action" if graph.action_E[edge] == graph.action_E[own] else ""
    note = "this one" if edge == own else f"Q of its action{same}"
    rollout = index.batch.ids[int(index.rollout_S[step])]
    return Member(rollout, float(q[edge]), int(index.position_S[step]), note)
