"""OPSD: the token's advantage is how much likelier an informed teacher finds it.

Source: arXiv 2601.18734; siyan-zhao/OPSD @ 590ec26c59e6 ``opsd_trainer.py``.  Choices and differences:
docs/methods/opsd.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Finding, Parts, Term
from accredit.data.parts import Explainer
from accredit.index import Index, segment_sum
from accredit.losses import jsd, row_pieces
from accredit.methods._params import bounded, choice
from accredit.methods._registry import method
from accredit.methods._reweight import rollout_T, step_mean, step_value
from accredit.methods._teacher import (
    Gap,
    lost_finding,
    lost_prefix,
    of_steps,
    rescored_S,
    sampled_gap,
    signal_where,
    vocabulary_gap,
)
from accredit.spread import population_T, token_mask
from accredit.typing import BoolArray, Floats

__all__ = ["opsd"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `opsd`."""

    centre: str = choice(
        "none", "anchor", "group", "batch", doc="level whose mean gap is subtracted (anchor = equal state)"
    )
    source: str = choice(
        "auto", "logprobs", "logits", doc="auto = logits of student and teacher where both are there"
    )
    temperature: float = bounded(1.0, above=0, doc="divides all logits first")
    beta: float = bounded(0.5, at_least=0, at_most=1, doc="weight of the teacher in the divergence")
    top_k: int | None = bounded(
        None, at_least=1, whole=True, doc="divergence over the teacher's k likeliest words; None = all"
    )


@method(
    "opsd",
    title="How much likelier a teacher with privileged context finds each token (self-distillation)",
    family="tokens: teachers",
    params=Params,
    needs={"logprobs|student_logits", "logprobs_teacher|teacher_logits"},
    yields="token",
    tags={"no_reward"},
    cites="arXiv:2601.18734",
    loss="jsd",
)
def opsd(index: Index, params: Params) -> Parts:
    """Teacher's log-ratio as the token's advantage.

    ``A_t = d_t = log pi_T(y_t | x, r, y_<t) - log pi_S(y_t | x, y_<t)``, r the privileged context that
    only the teacher sees; no outcome enters.  Its policy gradient is, in the mean, that of the reverse
    KL.  On the student's own tokens the mean of d is ``-KL(S || T) <= 0``, so a negative d is no
    disapproval: ``centre`` subtracts a mean first.

    With logits, or a probe's ``jsd``, there is also the generalised Jensen-Shannon divergence of each
    token, as a loss term beside the advantages (``aux_loss``, `accredit.losses.jsd`), never added to them.

    Args:
        index: of the batch; log-probs, or logits and ``tokens``, of student and teacher.
        params: see `Params`.

    Returns:
        Token credit ``[T]``, nats; exactly 0 at steps that no teacher rescored.  Extras: ``gap`` d
        ``[T]``; with logits or ``jsd`` ``aux_loss`` ``[T]`` (nats, 0 where there is none).

    Raises:
        MissingSignal: a taught step lacks what the source needs; ``anchor`` without states.
        DataError: a token outside the vocabulary.

    Source: arXiv 2601.18734; OPSD ``generalized_jsd_loss`` and the ``use_thinking_machines_loss`` branch.

    Example:
        >>> import accredit as ac
        >>> steps = [{"logprobs": [-1.0, -2.0], "logprobs_teacher": [-0.5, -2.5]}]
        >>> ac.assign([{"id": "a", "group": "g", "steps": steps}], "opsd").tokens.tolist()
        [0.5, -0.5]
    """
    logits = params.source == "logits" or (
        params.source == "auto"
        and index.batch.has("student_logits_T")
        and index.batch.has("teacher_logits_T")
    )
    gap = vocabulary_gap(index, params.temperature) if logits else sampled_gap(index)
    credited_S = ~index.has_status("rejected")[index.rollout_S]
    credited = of_steps(index, credited_S)
    taught = of_steps(index, gap.taught_S & credited_S)
    mean = _means(index, gap.values, taught, params.centre)
    parts = {"gap": np.where(credited, gap.values, 0.0), "centre": np.where(taught, -mean, 0.0)}
    values = parts["gap"] + parts["centre"]
    extras = {"gap": gap.values}
    if logits:
        extras["aux_loss"] = _divergence(index, params)
    elif index.batch.has("jsd_T"):
        extras["aux_loss"] = signal_where(index, "jsd", rescored_S(index, "jsd"))
    lost = lost_prefix(index)
    return Parts(
        values,
        parts=parts,
        steps=step_mean(index, values),
        informed_S=gap.taught_S & credited_S,
        fallbacks=lost,
        findings=(*_sign_finding(index, gap, taught, params), *lost_finding(lost)),
        extras=extras,
        explain=_explainer(index, parts),
    )


def _means(index: Index, gap: Floats, taught: BoolArray, level: str) -> Floats:
    """Return the mean gap of each token's population ``[T]``, over its taught and trained tokens."""
    if level == "none":
        return np.zeros(gap.size)
    if level == "anchor":
        ids, n = index.anchor_S[index.step_T], index.n_anchors
    else:
        ids, n = population_T(index, level)
    counted = (token_mask(index) & taught).astype(np.float64)
    size = segment_sum(counted, ids, n)
    mean: Floats = (segment_sum(gap * counted, ids, n) / np.maximum(size, 1))[ids]
    return mean


def _divergence(index: Index, params: Params) -> Floats:
    """Return the divergence of each token ``[T]``; 0 where student or teacher has no logits."""
    student = index.batch.column("student_logits_T").values
    teacher = index.batch.column("teacher_logits_T").values
    found = np.zeros(index.batch.n_tokens)
    for rows in row_pieces(found.size, student.shape[1]):
        found[rows] = jsd(
            student[rows],
            teacher[rows],
            np.ones(rows.stop - rows.start),
            beta=params.beta,
            temperature=params.temperature,
            top_k=params.top_k,
        ).loss_T
    found[~of_steps(index, rescored_S(index, "student_logits", "teacher_logits"))] = 0.0
    return found


def _sign_finding(index: Index, gap: Gap, taught: BoolArray, params: Params) -> tuple[Finding, ...]:
    """Tell the mean gap, which is negative by construction, where nothing is subtracted."""
    rollouts = rollout_T(index)[taught]
    size = np.bincount(rollouts, minlength=len(index.batch))
    inside = size > 0
    if params.centre != "none" or inside.sum() < 2:
        return ()
    means = segment_sum(gap.values[taught], rollouts, len(index.batch))[inside] / size[inside]
    mean, half = float(means.mean()), 1.96 * float(means.std(ddof=1)) / np.sqrt(means.size)
    return (
        Finding(
            "ACC431",
            "info",
            f"the mean log-ratio is {mean:.3g} +/- {half:.2g} nat (95 %, {means.size} rollouts): it "
            "is negative on the student's own tokens even where the teacher agrees",
            hint="Say centre='group' or 'anchor' before you read signs",
        ),
    )


def _explainer(index: Index, parts: dict[str, Floats]) -> Explainer:
    def explain(s: int) -> Explanation:
        values = {name: step_value(index, part, s) for name, part in parts.items()}
        n = int(index.tokens_S[s])
        terms = [Term("gap", values["gap"], f"mean of log pi_T - log pi_S over {n} tokens")]
        if values["centre"]:
            terms.append(Term("centre", values["centre"], f"minus the mean gap {-values['centre']:.6g}"))
        total = sum(term.value for term in terms)
        return Explanation("opsd", *index.place_of(s), total, tuple(terms))

    return explain
