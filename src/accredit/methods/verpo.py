"""VERPO: a token's advantage grows where verified evidence agrees with it, presence of evidence removed.

Source: arXiv 2609.06100; hamsterjiang23/VERPO @ a2b470fa932d ``risk_aware_opsd/verpo_zpd.py`` and
``losses.py``.  Choices and differences: docs/methods/verpo.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from accredit.data import Parts
from accredit.errors import DataError, MissingSignal, ParamError
from accredit.index import Index, segment_sum
from accredit.losses import directions, evidence, fisher_moments, jsd, row_pieces
from accredit.methods._params import bounded, choice
from accredit.methods._registry import method
from accredit.methods._reweight import base_credit, reweighted, step_value
from accredit.methods._teacher import chosen_T, lost_finding, lost_prefix, of_steps, rescored_S
from accredit.typing import Array, BoolArray, Floats

__all__ = ["LOGITS", "verpo"]

LOGITS = ("student_logits", "teacher_none_logits", "teacher_pos_logits", "teacher_neg_logits")


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `verpo`."""

    use: str = choice("am", "lw", "combined", doc="w modulates advantages, weighs the evidence loss, or both")
    divergence: str = choice("forward_kl", "reverse_kl", doc="direction of probabilities, or of log-ratios")
    displacement: str = choice(
        "fec", "ctr", "fixed", doc="q+ - q- without the presence of evidence; with it; or q+ - q0"
    )
    controller: str = choice(
        "zpd", "uniform", doc="benefit against cost, or w = 1 wherever there is evidence"
    )
    lam: float = bounded(1.0, at_least=0, doc="strength of the modulation (lambda_am)")
    cost_alpha: float = bounded(0.0025, at_least=0, doc="a_c, weight of the Fisher cost")
    cost_eps: float = bounded(2.5e-5, above=0, doc="eps_c, added to benefit and cost")
    eps_proj: float = bounded(1e-8, at_least=0, doc="added to Var_p(n) in the projection")
    lambda_ref: float = bounded(0.1, at_least=0, doc="weight of the reference loss in aux_loss")
    lambda_evi: float = bounded(
        1.0, at_least=0, doc="use=lw, combined: weight of the evidence loss in aux_loss"
    )
    temperature: float = bounded(1.0, above=0, doc="divides all logits first")
    top_k: int | None = bounded(
        None,
        at_least=1,
        whole=True,
        doc="logits: union of the k likeliest words and y; None = full vocabulary",
    )
    source: str = choice(
        "auto", "moments", "logits", doc="auto = moments of this divergence where they are there, else logits"
    )
    evidence: str = choice(
        "siblings", "given", doc="a rollout needs a right and a wrong sibling; or what is recorded is taken"
    )
    success_threshold: float = bounded(1.0, doc="a sibling with this reward or more is right evidence")


@dataclass(frozen=True)
class _Contrast:
    """What the direction s says of each token ``[T]``; all 0 where there is no evidence.

    Args:
        alpha: share of presence that is taken off.
        benefit: ``A (s[y] - E_p s)``.
        cost: ``Var_p(s)``.
        weight: w.
    """

    alpha: Floats
    benefit: Floats
    cost: Floats
    weight: Floats


@method(
    "verpo",
    title="Outcome advantage, larger at tokens that verified evidence supports at little Fisher cost",
    family="tokens: teachers",
    params=Params,
    needs={"reward|rewards", "fisher_moments|fisher_moments_reverse|student_logits"},
    yields="token",
    tags={"reweights"},
    cites="arXiv:2609.06100",
    loss="forward_kl",
)
def verpo(index: Index, params: Params, *, base: str | None = None) -> Parts:
    """Fisher Evidence Contrast, as modulation of the advantage.

    ``t = q+ - q-`` (right against wrong evidence), ``n = (q+ + q-)/2 - q0`` (any against none),
    ``alpha = Cov_p(t, n) / (Var_p(n) + eps_proj)``, ``s = t - alpha n`` with p the student.
    Benefit ``b = A (s[y] - E_p s)``, cost ``c = Var_p(s)``, ``h = max(b, 0)``,
    ``w = h / (h + a_c c + eps_c)`` in [0, 1), and ``A'_t = A_t (1 + lam w_t)``.  The sign is kept and
    ``|A| <= |A'| < (1 + lam) |A|``; without evidence, or with ``lam=0``, it is the base.

    ``divergence="reverse_kl"`` takes t and n as tangents ``p (r - E_p r)`` of the log-ratios r.

    Args:
        index: of the batch; ``fisher_moments`` (``reverse_kl``: ``fisher_moments_reverse``) ``[T, 7]``,
            or the four logits (`LOGITS`) and ``tokens``.
        params: see `Params`.
        base: method under it; None = ``dr-grpo``, the outcome against its group without a deviation.

    Returns:
        Token credit ``[T]``.  Extras: ``weights`` w, ``benefit`` b, ``fisher_cost`` c, ``projection``
        alpha ``[T]``, ``has_evidence`` ``[R]``; with logits ``reference_loss``, ``evidence_loss`` and
        their weighted sum ``aux_loss`` ``[T]``.

    Raises:
        MissingSignal: neither moments nor all four logits, or logits without ``tokens``.
        DataError: moments that are not seven numbers, or a token outside the vocabulary.
        ParamError: ``use="lw"`` or ``"combined"`` without logits.

    Source: arXiv 2609.06100; ``verpo_zpd.py``, ``modulate_advantages``.
    """
    under = base_credit(index, base or "dr-grpo")
    given = _given(index, params)
    if params.use != "am" and not index.batch.has("student_logits_T"):
        raise ParamError(f"use={params.use!r} needs the four logits: its loss is over the vocabulary")
    there_R = (
        _has_siblings(index, params) if params.evidence == "siblings" else np.ones(len(index.batch), bool)
    )
    ready = of_steps(index, given & there_R[index.rollout_S])
    contrast = _contrast(index, params, under.tokens, ready)
    benefit, weight = contrast.benefit, contrast.weight
    values = under.tokens
    if params.use != "lw":
        values = params.lam * weight
        values += 1.0
        values *= under.tokens
    lost = lost_prefix(index)

    def text(s: int) -> str:
        w, b, c = (step_value(index, x, s) for x in (weight, benefit, contrast.cost))
        return f"A x {params.lam:g} w; means: w {w:.4g}, benefit {b:.4g}, Fisher cost {c:.4g}"

    return reweighted(
        index,
        under,
        values,
        id="verpo",
        name="evidence",
        text=text,
        fallbacks=lost,
        findings=lost_finding(lost),
        extras={
            "weights": weight,
            "benefit": benefit,
            "fisher_cost": contrast.cost,
            "projection": contrast.alpha,
            "has_evidence": _by_rollout(index, given) & there_R,
            **_losses(index, params, weight, contrast.alpha),
        },
    )


def _given(index: Index, params: Params) -> BoolArray:
    """Return the steps whose tokens have moments or all four logits, as ``source`` says ``[S]``."""
    column = _moments_field(index, params)
    wanted = (column,) if column else LOGITS
    absent = [name for name in wanted if not index.batch.has(f"{name}_T")]
    if absent:
        raise MissingSignal(
            f"no step has {' and '.join(absent)}",
            code="ACC401",
            hint=f"Give {', '.join(LOGITS)} in the steps, or moments from a rescoring",
        )
    return rescored_S(index, *wanted)


def _moments_field(index: Index, params: Params) -> str:
    """Return the field of the moments that are taken; empty where logits are.

    Those of the reverse divergence have a field of their own; asked for by name, ``fisher_moments``
    stands in for it.
    """
    names = ["fisher_moments"]
    if params.divergence == "reverse_kl":
        names = ["fisher_moments_reverse"] + (names if params.source == "moments" else [])
    there = [name for name in names if index.batch.has(f"{name}_T")]
    if params.source == "logits" or (params.source == "auto" and not there):
        return ""
    return there[0] if there else names[0]


def _has_siblings(index: Index, params: Params) -> BoolArray:
    """Return the rollouts with another right and another wrong one in their group ``[R]``."""
    right = (index.outcome_R >= params.success_threshold) & index.scored_R
    found = index.scored_R.copy()
    for kind in (right, index.scored_R & ~right):
        total = segment_sum(kind, index.group_R, index.n_groups)
        found &= total[index.group_R] - kind > 0
    return found


def _by_rollout(index: Index, steps_S: BoolArray) -> BoolArray:
    return segment_sum(steps_S, index.rollout_S, len(index.batch)) > 0


def _mixture(params: Params, alpha: Floats) -> tuple[Floats | float, Floats | float]:
    """Return the factors of t and n in s."""
    if params.displacement == "fixed":
        return 0.5, 1.0
    return 1.0, -alpha if params.displacement == "fec" else 0.0


def _contrast(index: Index, params: Params, advantage: Floats, ready: BoolArray) -> _Contrast:
    """Return what s says of the tokens, some of them at a time."""
    moments = _moments(index, params)
    found = _Contrast(*(np.empty(ready.size) for _ in range(4)))
    for rows in row_pieces(ready.size, moments.width):
        alpha, lift, cost = _projected(moments.read(rows), params)
        lift *= advantage[rows]
        found.alpha[rows], found.benefit[rows], found.cost[rows] = alpha, lift, cost
        found.weight[rows] = _weights(lift, cost, params)
    if not ready.all():
        for values in (found.alpha, found.benefit, found.cost, found.weight):
            values[~ready] = 0.0
    return found


def _projected(moments: Floats, params: Params) -> tuple[Floats, Floats, Floats]:
    """Return alpha, ``s[y] - E_p s`` and ``Var_p(s)`` of the seven moments ``[7, n]``."""
    mean_t, mean_n, tt, nn, tn, t_y, n_y = moments
    cov, var_n = tn - mean_t * mean_n, np.maximum(nn - mean_n * mean_n, 0.0)
    room = var_n + params.eps_proj
    alpha = np.divide(cov, room, out=np.zeros_like(cov), where=room > 0)
    a, b = _mixture(params, alpha)
    cost = a * a * (tt - mean_t * mean_t) + 2.0 * a * b * cov + b * b * var_n
    return alpha, a * (t_y - mean_t) + b * (n_y - mean_n), np.maximum(cost, 0.0)


class _Moments(NamedTuple):
    """Where the seven moments come from.

    Args:
        width: numbers that one token costs.
        read: moments ``[7, n]`` of a slice of tokens.
    """

    width: int
    read: Callable[[slice], Floats]


def _moments(index: Index, params: Params) -> _Moments:
    field = _moments_field(index, params)
    if not field:
        student, none, pos, neg = _four(index)
        tokens = chosen_T(index, student.shape[1])
        made = partial(
            fisher_moments,
            divergence=params.divergence,
            temperature=params.temperature,
            top_k=params.top_k,
        )
        return _Moments(
            student.shape[1], lambda at: made(student[at], none[at], pos[at], neg[at], tokens[at]).T
        )
    column: Array = index.batch.column(f"{field}_T").values
    if column.ndim != 2 or column.shape[1] != 7:
        raise DataError(
            f"{field} has shape {column.shape}, not (tokens, 7)",
            hint="Give E_p t, E_p n, E_p t^2, E_p n^2, E_p tn, t_y, n_y of each policy token",
        )
    return _Moments(7, lambda at: np.array(column[at].T, np.float64, order="C"))


def _four(index: Index) -> list[Array]:
    return [index.batch.column(f"{name}_T").values for name in LOGITS]


def _weights(benefit: Floats, cost: Floats, params: Params) -> Floats:
    if params.controller == "uniform":
        return np.ones_like(benefit)
    held = np.maximum(benefit, 0.0)
    found: Floats = held / (held + params.cost_alpha * cost + params.cost_eps)
    return found


def _losses(index: Index, params: Params, weight: Floats, alpha: Floats) -> dict[str, Floats]:
    """Return the loss terms of each token ``[T]`` where there are logits: reference, evidence, their sum."""
    if not all(index.batch.has(f"{name}_T") for name in LOGITS):
        return {}
    student, none, pos, neg = _four(index)
    there = of_steps(index, rescored_S(index, *LOGITS))
    beta = 0.0 if params.divergence == "forward_kl" else 1.0
    reference, shown = np.zeros(weight.size), np.zeros(weight.size)
    toward = partial(directions, divergence=params.divergence, temperature=params.temperature)
    shown_by = partial(evidence, divergence=params.divergence, temperature=params.temperature)
    for rows in row_pieces(weight.size, student.shape[1]):
        one = np.ones(rows.stop - rows.start)
        term = jsd(student[rows], none[rows], one, beta=beta, temperature=params.temperature)
        reference[rows] = term.loss_T
        if params.use != "am":
            task, presence = toward(none[rows], pos[rows], neg[rows])
            a, b = _mixture(params, alpha[rows, None])
            shown[rows] = shown_by(student[rows], a * task + b * presence, one).loss_T
    reference[~there] = 0.0
    shown = np.where(there, shown * weight, 0.0)
    total = params.lambda_ref * reference + (params.lambda_evi * shown if params.use != "am" else 0.0)
    return {"reference_loss": reference, "evidence_loss": shown, "aux_loss": total}
