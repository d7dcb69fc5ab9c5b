"""RELACE: returns weighed by what the outcome adds to the action's likelihood, compared at states.

Source: arXiv 2610.07349, reconstructed from the abstract and public summaries; choices are listed
in docs/methods/relace.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Parts
from accredit.index import GroupStats, Index, visit_term
from accredit.methods._graph import grpo_part, grpo_term, kept_term
from accredit.methods._hindsight import (
    clip_finding,
    kept_positive,
    negative_finding,
    rollout_ratio,
    smoothed,
    step_means,
)
from accredit.methods._params import bounded, choice, flag
from accredit.methods._registry import method
from accredit.methods.gigpo import missing_states
from accredit.typing import Floats

__all__ = ["relace"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `relace`."""

    gamma: float = bounded(0.95, at_least=0, at_most=1, doc="discount of step rewards")
    temperature: float = bounded(1.0, above=0, doc="T_temp of the log-ratio")
    clip_low: float = bounded(0.8, at_least=0, at_most=1, doc="least factor")
    clip_high: float = bounded(1.2, at_least=1, doc="largest factor")
    alpha: float = bounded(0.5, at_least=0, at_most=1, doc="share of the own value in smoothing")
    smooth: str = choice("returns", "factor", "none", doc="what is smoothed along a rollout")
    factor: str = choice("ratio", "zscore", doc="how log-ratios become factors within a rollout")
    mode: str = choice("mean_std_norm", "mean_norm", doc="divide by the state group's deviation")
    mask: bool = flag(default=True, doc="successes keep only positive step terms")
    omega: float = bounded(1.0, at_least=0, doc="weight of the step term")
    eps: float = bounded(1e-6, at_least=0, doc="added to the deviation")
    success_above: float = bounded(0.0, doc="an outcome above it is a success")


@method(
    "relace",
    title="Returns weighed by the outcome's lift of the action's likelihood, against equal states",
    family="shared states",
    params=Params,
    needs={"reward", "state", "logprobs", "logprobs_hindsight"},
    yields="step",
    tags={"group", "state_local"},
    cites="arXiv:2610.07349",
)
def relace(index: Index, params: Params) -> Parts:
    """Retrospective likelihood-based credit.

    ``d_t`` = mean log-prob of the step's tokens with the outcome in context minus without;
    ``rho_t = clip(u_t / mean_k u_k)``, ``u = exp(d / T_temp)`` over the rollout;
    ``W_t = rho_t R_t`` (R_t the discounted return-to-go), smoothed backwards, standardised among
    the visits of the same state; successes keep what is positive; credit = GRPO + omega times it.
    With no lift, no smoothing and no mask it is GiGPO (``mean_std_norm``) with GRPO's episode part.

    Args:
        index: of the batch; ``logprobs`` and ``logprobs_hindsight`` per policy token.
        params: see `Params`.

    Returns:
        Step credit ``[S]``.  Extras: ``log_ratio`` (d, nats), ``rho``, ``weighted_returns`` ``[S]``.

    Raises:
        MissingSignal: a step with tokens lacks one of the two log-probs.

    Source: arXiv 2610.07349, reconstructed.
    """
    lift = step_means(index, "logprobs_hindsight_T", "logprobs_hindsight") - step_means(
        index, "logprob_T", "logprobs"
    )
    ratio, rho = _factors(index, lift, params)
    returns = index.return_S(params.gamma)
    if params.smooth == "factor":
        rho = smoothed(index, rho, params.alpha, "recursive")
    kind = "recursive" if params.smooth == "returns" else "none"
    weighted = smoothed(index, rho * returns, params.alpha, kind)
    counted = index.scored_R[index.rollout_S]
    stats = GroupStats(weighted, index.anchor_S, index.n_anchors, counted)
    scaled = params.mode == "mean_std_norm"
    local = stats.standardised(params.eps) if scaled else stats.centred
    if params.mask:
        local = kept_positive(index, local, params.success_above)
    outcome, episode = grpo_part(index)
    parts = {"episode": outcome, "step": params.omega * local}
    credit = parts["episode"] + parts["step"]

    def explain(s: int) -> Explanation:
        step = visit_term(
            index,
            "step",
            stats,
            s,
            weight=params.omega,
            eps=params.eps if scaled else None,
            scale_G=stats.std() if scaled else None,
            noun="weighted return",
        )
        told = f"lift {lift[s]:.6g} nats, factor {rho[s]:.6g}, return {returns[s]:.6g}; "
        kept = kept_term(step, float(parts["step"][s]), "a success", told)
        terms = (grpo_term(index, episode, s), kept)
        return Explanation("relace", *index.place_of(s), float(credit[s]), terms)

    return Parts(
        credit,
        parts=parts,
        informed_S=parts["step"] != 0,
        fallbacks={"missing_state": missing_states(index)},
        findings=(
            *negative_finding((returns < 0) & counted, "steps have a negative return"),
            *clip_finding(index, ratio, rho),
        ),
        extras={"log_ratio": lift, "rho": rho, "weighted_returns": weighted},
        explain=explain,
    )


def _factors(index: Index, lift: Floats, params: Params) -> tuple[Floats, Floats]:
    """Return the factor of each step before and after clipping ``[S]``; 1 for empty steps."""
    spoken = index.tokens_S > 0
    rows = GroupStats(lift, index.rollout_S, len(index.batch), spoken)
    if params.factor == "zscore":
        raw = np.where(spoken, 1.0 + 0.1 * rows.standardised(1e-6, ddof=0), 1.0)
        return raw, np.clip(raw, params.clip_low, params.clip_high)
    # Subtracting the rollout's mean changes nothing in the ratio, and keeps exp in range.
    shift = rows.mean[index.rollout_S]
    lifted = np.exp(np.clip((lift - shift) / params.temperature, -700, 700))
    return rollout_ratio(index, lifted, params.clip_low, params.clip_high)
