"""HCAPO: the return weighed by how likely the action is once the end is known.

Source: arXiv 2603.08754, Eq. 3 and 5-8, Appendix A, as two public reimplementations give them;
the paper's body was not read.  Choices: docs/methods/hcapo.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Parts, Term
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

__all__ = ["hcapo"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `hcapo`."""

    gamma: float = bounded(0.95, at_least=0, at_most=1, doc="discount of the outcome, per step")
    temperature: float = bounded(5.0, above=0, doc="T_temp of the hindsight score")
    clip_low: float = bounded(0.8, at_least=0, at_most=1, doc="least hindsight ratio")
    clip_high: float = bounded(1.2, at_least=1, doc="largest hindsight ratio")
    omega: float = bounded(1.0, at_least=0, doc="weight of the step term")
    alpha: float = bounded(0.5, at_least=0, at_most=1, doc="smoothing weight")
    smoothing: str = choice(
        "recursive", "neighbours", "none", doc="smoothing of the hindsight values along a rollout"
    )
    do_no_harm: bool = flag(default=True, doc="successes keep only positive step terms")
    eps: float = bounded(1e-6, at_least=0, doc="added to the deviation")
    success_above: float = bounded(0.0, doc="an outcome above it is a success")
    clip: float | None = bounded(None, above=0, doc="bound on |credit|; None = none")


@method(
    "hcapo",
    title="Outcome weighed by the action's likelihood in hindsight, standardised over the group",
    family="shared states",
    params=Params,
    needs={"reward", "logprobs_hindsight"},
    yields="step",
    tags={"group"},
    cites="arXiv:2603.08754",
)
def hcapo(index: Index, params: Params) -> Parts:
    """Hindsight credit by rescoring.

    ``p_t = exp(mean_j logp_hind(y_j) / T_temp)``, ``rho_t = clip(p_t / mean_k p_k)`` over the
    rollout, ``Q_t = rho_t gamma^(T-t) R`` (R the outcome alone), smoothed backwards, standardised
    over all steps of the group; credit = GRPO + omega times it, negative step terms of successes
    cut to 0.  ``omega=0`` is GRPO.

    Args:
        index: of the batch; ``logprobs_hindsight`` per policy token.
        params: see `Params`.

    Returns:
        Step credit ``[S]``.  Extras: ``rho`` and the smoothed values ``q_hindsight`` ``[S]``.

    Raises:
        MissingSignal: a step with tokens has no hindsight log-probs.

    Source: arXiv 2603.08754.
    """
    score = np.exp(step_means(index, "logprobs_hindsight_T", "logprobs_hindsight") / params.temperature)
    ratio, rho = rollout_ratio(index, score, params.clip_low, params.clip_high)
    left = index.steps_R[index.rollout_S] - 1 - index.position_S
    q = rho * params.gamma ** left.astype(np.float64) * index.outcome_R[index.rollout_S]
    smooth = smoothed(index, q, params.alpha, params.smoothing)
    stats = GroupStats(smooth, index.group_S, index.n_groups, index.scored_R[index.rollout_S])
    micro = stats.standardised(params.eps)
    if params.do_no_harm:
        micro = kept_positive(index, micro, params.success_above)
    outcome, episode = grpo_part(index)
    parts = {"episode": outcome, "step": params.omega * micro}
    credit = parts["episode"] + parts["step"]
    if params.clip is not None:
        cut = np.clip(credit, -params.clip, params.clip)
        parts["clip"], credit = cut - credit, cut

    def explain(s: int) -> Explanation:
        step = visit_term(
            index,
            "step",
            stats,
            s,
            weight=params.omega,
            eps=params.eps,
            scale_G=stats.std(),
            noun="smoothed hindsight value",
        )
        told = f"rho {rho[s]:.6g}, Q {q[s]:.6g}; "
        terms = [grpo_term(index, episode, s), kept_term(step, float(parts["step"][s]), "a success", told)]
        if "clip" in parts:
            terms.append(Term("clip", float(parts["clip"][s]), f"bounded by {params.clip}"))
        return Explanation("hcapo", *index.place_of(s), float(credit[s]), tuple(terms))

    return Parts(
        credit,
        parts=parts,
        informed_S=parts["step"] != 0,
        findings=(
            *negative_finding(index.outcome_R < 0, "rollouts have a negative outcome"),
            *clip_finding(index, ratio, rho),
        ),
        extras={"rho": rho, "q_hindsight": smooth},
        explain=explain,
    )
