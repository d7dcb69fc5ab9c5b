"""PRICE: change of a success potential that related moments of other episodes vote for.

Source: arXiv 2609.38890, reconstructed from the abstract; choices: docs/methods/price.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from accredit.data import Explanation, Parts, Term
from accredit.index import Index
from accredit.methods._graph import grpo_part, grpo_term, snapped
from accredit.methods._params import bounded, choice, flag
from accredit.methods._price_votes import Votes, count_votes, remember
from accredit.methods._registry import method
from accredit.methods.gigpo import missing_states
from accredit.typing import BoolArray, Floats

__all__ = ["price"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `price`."""

    weight: float = bounded(1.0, at_least=0, doc="weight lambda of the relational term")
    kappa: float = bounded(1.0, at_least=0, doc="strength of the prior, in votes")
    eta: float = bounded(0.9, above=0, at_most=1, doc="weight of a vote an update ago")
    history: int = bounded(64, at_least=0, doc="episodes remembered a task")
    kernel_min: float = bounded(0.1, above=0, below=1, doc="least relation that counts")
    gate: str = choice("soft", "hard", "none", doc="how weak evidence is held back")
    delta: float = bounded(0.5, above=0, below=1, doc="gate=hard: chance of a wrong sign")
    terminal: str = choice("own", "pooled", doc="potential of the end: the own outcome, or the votes")
    own_vote: bool = flag(default=False, doc="the own episode votes too")
    success_above: float = bounded(0.0, doc="an outcome above it is a success")


@method(
    "price",
    title="Gated change of a success potential that other episodes' related moments vote for",
    family="shared states",
    params=Params,
    needs={"reward", "state|features"},
    yields="step",
    tags={"group", "cross_group", "stateful"},
    cites="arXiv:2609.38890",
)
def price(index: Index, params: Params, *, state: Any = None) -> Parts:
    """Relational credit from episodes.

    ``p(x) = (sum_e w_e y_e + kappa p0) / (sum_e w_e + kappa)`` over the other episodes of the
    task, one vote each: w_e is the largest relation of its moments to x (1 for an equal key, a
    Gaussian kernel on ``features``), times ``eta^age`` for remembered episodes; p0 is the others'
    success rate.  ``c_t = p(x_t) - p(x_{t-1})``, the own outcome at the end; gated by the evidence
    and divided by its root mean square over the batch; credit = GRPO + weight times it.
    ``weight=0`` is GRPO; ungated c sums to y - p(x_0).

    Args:
        index: of the batch.
        params: see `Params`.
        state: what an earlier call remembered (``Credit.state``), None at first.

    Returns:
        Step credit ``[S]``, and the memory for the next call.  Extras: ``potential`` p before the
        step, ``increment`` c, ``gated`` c~, ``evidence`` (effective votes) ``[S]``.

    Source: arXiv 2609.38890, reconstructed.
    """
    success = (index.outcome_R > params.success_above).astype(np.float64)
    votes = count_votes(index, success, params, state)
    potential = _potential(index, votes, success, params)
    after, evidence_after = _ends(index, votes, potential, success, params)
    known = (votes.others_R > 0)[index.rollout_S] & index.scored_R[index.rollout_S]
    increment = snapped(np.where(known, after - potential, 0.0))
    gated = _gated(increment, votes.evidence_S, evidence_after, params)
    kept = gated[gated != 0]
    scale = float(np.sqrt(np.mean(kept**2))) + 1e-6 if kept.size else 1.0
    outcome, episode = grpo_part(index)
    parts = {"episode": outcome, "relation": params.weight * gated / scale}
    credit = parts["episode"] + parts["relation"]

    def explain(s: int) -> Explanation:
        text = (
            f"{params.weight:g} x gated {gated[s]:.6g} / scale {scale:.6g}; p {potential[s]:.6g} "
            f"({votes.evidence_S[s]:.3g} votes) to {after[s]:.6g}: change {increment[s]:.6g}"
        )
        inputs = {"p": float(potential[s]), "p'": float(after[s]), "scale": scale}
        terms = (
            grpo_term(index, episode, s),
            Term("relation", float(parts["relation"][s]), text, inputs),
        )
        return Explanation("price", *index.place_of(s), float(credit[s]), terms)

    return Parts(
        credit,
        parts=parts,
        informed_S=gated != 0,
        fallbacks={"missing_state": missing_states(index)},
        extras={
            "potential": potential,
            "increment": increment,
            "gated": gated,
            "evidence": votes.evidence_S,
        },
        explain=explain,
        state=remember(index, success, params, state),
    )


def _potential(index: Index, votes: Votes, success: Floats, params: Params) -> Floats:
    """Potential before each step ``[S]``; the prior alone where nobody votes."""
    prior = votes.prior_R[index.rollout_S]
    total = votes.total_S + params.kappa
    voted = (votes.won_S + params.kappa * prior) / np.where(total > 0, total, 1.0)
    return np.where(total > 0, voted, prior)


def _ends(
    index: Index, votes: Votes, potential: Floats, success: Floats, params: Params
) -> tuple[Floats, Floats]:
    """Potential after each step and its evidence ``[S]``: the next step's, or the end's."""
    after, evidence = np.append(potential[1:], 0.0), np.append(votes.evidence_S[1:], 0.0)
    last = index.position_S == index.steps_R[index.rollout_S] - 1
    own = success[index.rollout_S]
    end, end_evidence = own, np.full(own.size, np.inf)
    if params.terminal == "pooled" and votes.end_total_R is not None and votes.end_won_R is not None:
        prior = votes.prior_R
        total = votes.end_total_R + params.kappa
        pooled = np.where(
            total > 0, (votes.end_won_R + params.kappa * prior) / np.where(total > 0, total, 1), prior
        )
        seen = (votes.end_total_R > 0)[index.rollout_S]
        end = np.where(seen, pooled[index.rollout_S], own)
        end_evidence = np.where(seen, votes.end_total_R[index.rollout_S], np.inf)
    return np.where(last, end, after), np.where(last, end_evidence, evidence)


def _gated(change: Floats, before: Floats, after: Floats, params: Params) -> Floats:
    if params.gate == "none":
        return change
    n = np.stack([before, after])
    with np.errstate(divide="ignore", invalid="ignore"):
        if params.gate == "hard":
            radius = np.sqrt(np.log(4 / params.delta) / (2 * n)).sum(axis=0)
            keep: BoolArray = np.abs(change) > radius
            return np.where(keep, change, 0.0)
        error = (0.5 / np.sqrt(n)).sum(axis=0)
        size = np.abs(change)
        share = np.where(np.isfinite(error), size / np.where(size + error > 0, size + error, 1), 0.0)
    return change * share
