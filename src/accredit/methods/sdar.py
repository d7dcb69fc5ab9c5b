"""SDAR and Skill-SD: the advantage stays the outcome's, the teacher comes in as a loss term of its own.

Source: arXiv 2605.15155 (SDAR), 2604.10674 (Skill-SD); ZJU-REAL/SDAR @ 8b85c231df3b ``sdar_utils.py``,
``skillsd_utils.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit import losses
from accredit.data import Parts
from accredit.index import Index
from accredit.methods._params import bounded, choice
from accredit.methods._registry import method
from accredit.methods._reweight import base_credit, counted_T, reweighted, step_value
from accredit.methods._teacher import (
    Gap,
    lost_finding,
    lost_prefix,
    of_steps,
    rescored_S,
    sampled_gap,
    signal_where,
)
from accredit.typing import Floats

__all__ = ["sdar"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `sdar`."""

    term: str = choice("sdar", "skill_sd", doc="loss term: gated log-ratio, or k3 under an importance ratio")
    gate: str = choice("sigmoid", "topq", "const", doc="how much of the teacher a token takes")
    beta: float = bounded(5.0, at_least=0, doc="steepness of the sigmoid gate, 1/nats")
    top: float = bounded(0.1, above=0, at_most=1, doc="gate=topq: share of the batch's positive gaps kept")


@method(
    "sdar",
    title="Outcome advantage, and beside it a loss term that pulls towards an informed teacher",
    family="tokens: teachers",
    params=Params,
    needs={"reward|rewards", "logprobs", "logprobs_teacher"},
    yields="token",
    tags={"reweights"},
    cites="arXiv:2605.15155",
    aliases={"skill-sd": {"term": "skill_sd"}},
    loss="sdar",
)
def sdar(index: Index, params: Params, *, base: str | None = None) -> Parts:
    """Advantages of the base, and each token's self-distillation loss.

    ``d_t = log pi_T - log pi_S`` of the sampled token.  ``term="sdar"``: loss ``sg[g_t] d_t``, gate
    ``g_t = sigmoid(beta d_t)``, which lifts ``log pi_S`` by g.  ``term="skill_sd"``: loss
    ``rho_t k3_t``, rho against ``old_logprobs``.  The loss is a second channel: a trainer adds
    `accredit.losses.sdar` or `accredit.losses.skill_sd` with a coefficient of its own.

    Args:
        index: of the batch; ``logprobs`` and ``logprobs_teacher`` per policy token.
        params: see `Params`.
        base: method under it; None = ``grpo``.

    Returns:
        Token credit ``[T]``: the base's, unchanged.  Extras: ``aux_loss``, ``aux_grad`` (its derivative
        by log pi_S), ``gap`` d (nats), all 0 where not taught, and ``gate`` ``[T]``.

    Raises:
        MissingSignal: a step that a teacher rescored has no ``logprobs``, or, where the batch has
            them at all, no ``old_logprobs`` (``skill_sd``).

    Source: SDAR ``compute_sdar_loss``, Skill-SD ``compute_sdl_loss``.
    """
    under, gap = base_credit(index, base), sampled_gap(index)
    gate = losses.sdar_gate(
        gap.values,
        gate=params.gate,
        beta=params.beta,
        top=params.top,
        counted_T=counted_T(index) & of_steps(index, gap.taught_S),
    )
    lost = dict(lost_prefix(index))
    if params.term == "sdar":
        loss, grad = gate * gap.values, -gate
    else:
        old, lost["old_is_current"] = _old(index, gap)
        loss, grad = _skill_sd(signal_where(index, "logprobs", gap.taught_S), gap.values, old)
    grad[~of_steps(index, gap.taught_S)] = 0.0  # the loss is 0 there by itself

    def text(s: int) -> str:
        value, d = (step_value(index, x, s) for x in (loss, gap.values))
        return f"nothing: the teacher is a loss term of its own; mean loss {value:.4g}, mean gap {d:.4g} nat"

    return reweighted(
        index,
        under,
        under.tokens,
        id="sdar",
        name="teacher",
        text=text,
        fallbacks=lost,
        findings=lost_finding(lost),
        extras={"aux_loss": loss, "aux_grad": grad, "gap": gap.values, "gate": gate},
    )


def _skill_sd(student: Floats, gap: Floats, old: Floats) -> tuple[Floats, Floats]:
    """Return the loss of each token and its derivative ``[T]``, some tokens at a time."""
    loss, grad = np.empty_like(gap), np.empty_like(gap)
    for at in losses.row_pieces(gap.size, 1):
        one = np.ones(at.stop - at.start)
        term = losses.skill_sd(student[at], student[at] + gap[at], old[at], one)
        loss[at], grad[at] = term.loss_T, term.grad_T
    return loss, grad


def _old(index: Index, gap: Gap) -> tuple[Floats, int]:
    """Return the sampling policy's log-probs ``[T]``, and the number of steps where they are the student's.

    Without any ``old_logprobs`` the student is the policy that sampled: rho = 1.
    """
    if not index.batch.has("old_logprobs_T"):
        return signal_where(index, "logprobs", gap.taught_S), int(gap.taught_S.sum())
    return signal_where(index, "old_logprobs", rescored_S(index, "logprobs_teacher")), 0
