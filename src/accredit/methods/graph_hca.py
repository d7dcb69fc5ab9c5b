"""GraphHCA: credit as the increment of the log success potential on the state graph.

Source: arXiv 2609.35084, sections 3-5, Algorithm 1.  Choices: docs/methods/graph-hca.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Finding, Parts, Term
from accredit.index import GroupStats, Index, StateGraph, visit_term
from accredit.methods._graph import grpo_part, grpo_term, outcome_findings, snapped
from accredit.methods._params import bounded, choice
from accredit.methods._registry import method
from accredit.methods.gigpo import missing_states
from accredit.typing import Floats

__all__ = ["graph_hca"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `graph-hca`."""

    discount: float = bounded(0.95, above=0, below=1, doc="propagation discount of the potential")
    floor: float = bounded(0.01, above=0, at_most=1, doc="least potential before the logarithm")
    step_weight: float = bounded(1.0, at_least=0, doc="weight of the step term w_s")
    eps: float = bounded(1e-6, at_least=0, doc="added to the deviation")
    terminal: str = choice(
        "open", "state", "virtual", doc="what a rollout's end pins (see the method's page)"
    )
    aggregator: str = choice("mean", "max", "power", doc="how successors are pooled")
    power: float = bounded(1.0, at_least=1, doc="w of the power mean")
    success_above: float = bounded(0.0, doc="an outcome above it is a success")


@method(
    "graph-hca",
    title="Increment of the log success potential on the state graph, plus GRPO",
    family="shared states",
    params=Params,
    needs={"reward", "state", "action"},
    yields="step",
    tags={"group", "state_local"},
    cites="arXiv:2609.35084",
    compat={"paper": {"terminal": "state"}},
)
def graph_hca(index: Index, params: Params) -> Parts:
    """Closed-form hindsight credit.

    ``Phi(s) = gbar sum_a q(a|s) Phi(s'_a)``, 1 at goals, 0 at failures;
    ``l = log max(Phi(s'), floor) - log max(Phi(s), floor)``, standardised over the steps that
    leave the state (alone: 0); credit = GRPO + ``step_weight`` times it.  ``step_weight=0`` is
    GRPO; Phi equals CRBC's V where ends are clean.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``.  Extras: ``state_values`` and ``next_values`` (Phi), ``credit`` (l)
        and ``step_part`` ``[S]``; l telescopes to Psi(end) - Psi(start).

    Source: arXiv 2609.35084.
    """
    graph = StateGraph.of(
        index,
        terminals=params.terminal,  # type: ignore[arg-type]
        success_above=params.success_above,
        pin="any",
    )
    phi = graph.solve(
        params.discount,
        aggregator=params.aggregator,  # type: ignore[arg-type]
        power=params.power,
    )
    psi = np.log(np.maximum(phi, params.floor))
    raw = snapped(psi[graph.dst_E] - psi[graph.src_E])
    stats = graph.state_stats(raw)
    step = graph.to_steps(stats.standardised(params.eps))
    outcome, episode = grpo_part(index)
    parts = {"episode": outcome, "step": params.step_weight * step}
    credit = parts["episode"] + parts["step"]

    def explain(s: int) -> Explanation:
        terms = (grpo_term(index, episode, s), _term(graph, s, phi, stats, params))
        return Explanation("graph-hca", *index.place_of(s), float(credit[s]), terms)

    return Parts(
        credit,
        parts=parts,
        informed_S=parts["step"] != 0,
        fallbacks={"missing_state": missing_states(index)},
        findings=(*outcome_findings(index, index.scored_R), *_floor_finding(index, params)),
        extras={
            "state_values": graph.at_steps(phi),
            "next_values": graph.to_steps(phi[graph.dst_E]),
            "credit": graph.to_steps(raw),
            "step_part": step,
        },
        explain=explain,
    )


def _floor_finding(index: Index, params: Params) -> tuple[Finding, ...]:
    horizon = int(index.steps_R.max(initial=0))
    if params.floor < params.discount**horizon:
        return ()
    return (
        Finding(
            "ACC413",
            "info",
            f"floor {params.floor:g} is not below discount^horizon = {params.discount**horizon:.2g}: "
            "progress far from a goal is invisible",
            hint="Lower floor, or raise discount",
        ),
    )


def _term(graph: StateGraph, s: int, phi: Floats, stats: GroupStats, params: Params) -> Term:
    if graph.node_S[s] < 0:
        return Term("step", 0.0, "rollout not counted")
    edge = graph.edge_of(s)
    before, after = float(phi[graph.src_E[edge]]), float(phi[graph.dst_E[edge]])
    term = visit_term(
        graph.index,
        "step",
        stats,
        edge,
        weight=params.step_weight,
        eps=params.eps,
        scale_G=stats.std(),
        noun="log increment",
        steps=graph.step_E,
    )
    text = f"log max({after:.6g}, {params.floor:g}) - log max({before:.6g}, {params.floor:g}); {term.formula}"
    return Term("step", term.value, text, {"Phi": before, "Phi'": after, **term.inputs}, term.members)
