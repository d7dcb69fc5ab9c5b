"""Where process rewards come from: the columns, their checks, and what a rule makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from accredit.data import Column, Finding
from accredit.errors import DataError, MissingSignal, ParamError
from accredit.index import Index, segment_sum
from accredit.typing import BoolArray, Floats

__all__ = [
    "ACCEPTS",
    "Choice",
    "Signal",
    "chosen",
    "joined_R",
    "log_ratios",
    "potentials",
    "scores",
    "step_rewards",
]

# In order of preference; a potential is used only where it, or its rule, is named.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "logratio": ("prm_logratio_T",),
    "scores": ("prm_logits_S", "prm_prob_S", "step_score_S"),
    "progress": ("progress_S", "progress_R"),
    "reward": ("reward_S",),
    "potential": ("potential_S",),
}
# The first rule of a source is its default.
ACCEPTS: Mapping[str, tuple[str, ...]] = {
    "logratio": ("prime", "prime-code", "grpo-process"),
    "scores": ("pure", "grpo-process", "milestone"),
    "progress": ("milestone", "grpo-process", "pbrs", "immediate"),
    "reward": ("grpo-process", "milestone"),
    "potential": ("immediate", "pbrs"),
}
OF_POTENTIALS = frozenset({"pbrs", "immediate"})


class Choice(NamedTuple):
    """The source and the rule in force."""

    source: str
    rule: str


@dataclass(frozen=True, slots=True)
class Signal:
    """One number a step ``[S]``, and which steps have it.

    Args:
        values: ``[S]``; 0 where absent.
        there: ``[S]``.
        findings: about records that do not fit.
    """

    values: Floats
    there: BoolArray
    findings: tuple[Finding, ...] = ()


def chosen(index: Index, source: str, rule: str) -> Choice:
    """Return the source and the rule that ``auto`` stands for.

    Raises:
        ParamError: if the rule cannot work on the source.
        MissingSignal: naming the columns of the sources that would do.
    """
    if source != "auto" and rule not in ("auto", *ACCEPTS[source]):
        raise ParamError(
            f"rule {rule!r} cannot work on source {source!r}",
            hint=f"Rules for it: {', '.join(ACCEPTS[source])}",
        )
    among = [source] if source != "auto" else _candidates(rule)
    for name in among:
        if any(index.batch.has(column) for column in COLUMNS[name]):
            return Choice(name, ACCEPTS[name][0] if rule == "auto" else rule)
    columns = [column for name in among for column in COLUMNS[name]]
    raise MissingSignal(
        f"method 'prm' needs one of the columns {', '.join(columns)}, which these rollouts lack",
        code="ACC401",
        hint="Give prm_logratio, prm_logits, prm_prob, step_score, progress, potential or a step's reward",
    )


def _candidates(rule: str) -> list[str]:
    if rule in OF_POTENTIALS:
        return ["potential", "progress"]
    return [name for name in COLUMNS if name != "potential" and rule in ("auto", *ACCEPTS[name])]


def joined_R(index: Index, truncated: str, incomplete: str, *, outcome: bool) -> BoolArray:
    """Return which rollouts take part ``[R]``: scored ones, as the policies say.

    Where no rollout can have an outcome and the rule does without it, all but rejected ones do.

    Args:
        index: of the batch.
        truncated: keep or drop.
        incomplete: keep or drop.
        outcome: whether the rule uses the outcome.

    Raises:
        MissingSignal: if it does and the batch has none.
    """
    if index.batch.has("reward_R"):
        return index.counted_R(truncated, incomplete)
    if outcome:
        raise MissingSignal(
            "the rule uses the outcome, and these rollouts have no `reward`",
            code="ACC401",
            hint="Give `reward`, or a rule that does without it: rule='grpo-process'",
        )
    return index.counted_R(truncated, incomplete, ~index.has_status("rejected"))


def scores(index: Index) -> Signal:
    """Return p_t, the probability that each step is right, from logits or as recorded.

    Raises:
        DataError: for logits that are not two numbers a step, or a score outside [0, 1].
    """
    batch = index.batch
    if batch.has("prm_logits_S"):
        column = batch.column("prm_logits_S")
        if column.values.ndim != 2 or column.values.shape[1] != 2:
            raise DataError(
                "prm_logits must be two numbers a step",
                code="ACC110",
                hint="Give [logit of bad, logit of good]; null where a step has none",
            )
        gap = column.values[:, 1] - column.values[:, 0]
        there = column.mask(batch.n_steps) & np.isfinite(gap)
        return Signal(np.where(there, 0.5 + 0.5 * np.tanh(np.where(there, gap, 0.0) / 2), 0.0), there)
    name = "prm_prob_S" if batch.has("prm_prob_S") else "step_score_S"
    found = _numbers(index, name)
    odd = np.flatnonzero(found.there & ((found.values < 0) | (found.values > 1)))
    if odd.size:
        s = int(odd[0])
        raise DataError(
            f"{name[:-2]} is {found.values[s]:g}, not a probability",
            code="ACC426",
            where=index.where(s),
            hint="Give P(step is right): (s + 1) / 2 for scores in [-1, 1]",
        )
    return found


def _numbers(index: Index, name: str) -> Signal:
    column = index.batch.column(name)
    if column.values.dtype.kind not in "fiu" or column.values.ndim != 1 or column.words is not None:
        hint = "Give a number; null where a step has none"
        raise DataError(f"{name[:-2]} must be one number a step", code="ACC110", hint=hint)
    values = np.asarray(column.values, np.float64)
    there = column.mask(index.batch.n_steps) & np.isfinite(values)
    return Signal(np.where(there, values, 0.0), there)


def log_ratios(index: Index) -> Signal:
    """Return log pi_prm - log pi_ref of each policy token ``[T]``, nats, and which tokens have it."""
    column = index.batch.column("prm_logratio_T")
    there = np.repeat(column.mask(index.batch.n_steps), index.tokens_S)
    return Signal(np.where(there, np.asarray(column.values, np.float64), 0.0), there)


def step_rewards(index: Index, source: str, *, form: str, beta: float) -> Signal:
    """Return the step reward that a source stands for ``[S]``.

    Args:
        index: of the batch.
        source: reward, progress (increments), scores (p_t) or logratio (beta times the step's sum).
        form: of increments: difference, or first (each check pays once).
        beta: weight of log ratios.
    """
    if source == "reward":
        there = index.batch.column("reward_S").mask(index.batch.n_steps)
        return Signal(np.where(there, index.paid_S, 0.0), there)
    if source == "scores":
        return scores(index)
    if source == "progress":
        return first_passed(index) if form == "first" else increments(index)
    tokens = log_ratios(index)
    total = segment_sum(tokens.values, index.step_T, index.batch.n_steps)
    there = index.batch.column("prm_logratio_T").mask(index.batch.n_steps) & (index.tokens_S > 0)
    return Signal(beta * total, there)


def potentials(index: Index, source: str) -> Signal:
    """Return the potential of the state before each step ``[S]``."""
    if source == "potential":
        return _numbers(index, "potential_S")
    before, _, findings = _progress(index)
    return Signal(before.values, before.there, findings)


def increments(index: Index) -> Signal:
    """Return how much progress each step made, ``phi_{t+1} - phi_t`` ``[S]``."""
    before, after, findings = _progress(index)
    there = before.there & after.there
    return Signal(np.where(there, after.values - before.values, 0.0), there, findings)


def _progress(index: Index) -> tuple[Signal, Signal, tuple[Finding, ...]]:
    """Return phi before and after each step, and findings of annotations that do not fit."""
    findings: tuple[Finding, ...] = ()
    if index.batch.has("progress_S"):
        after = _numbers(index, "progress_S")
        column = index.batch.columns.get("progress0_R")
        first = np.zeros(len(index.batch)) if column is None else np.asarray(column.values, np.float64)
    else:
        after, first, findings = _told_progress(index)
    heads = index.position_S == 0
    before = np.where(heads, first[index.rollout_S], np.concatenate([[0.0], after.values])[:-1])
    known = np.where(heads, _annotated(index, after.there), np.concatenate([[False], after.there])[:-1])
    return Signal(before, known), after, findings


def _annotated(index: Index, there_S: BoolArray) -> BoolArray:
    """Return the steps of rollouts that have the signal anywhere ``[S]``."""
    found: BoolArray = (segment_sum(there_S, index.rollout_S, len(index.batch)) > 0)[index.rollout_S]
    return found


def _told_progress(index: Index) -> tuple[Signal, Floats, tuple[Finding, ...]]:
    """Return phi after each step, phi_0 ``[R]`` and findings from the rollouts' `progress` field."""
    batch = index.batch
    values, there = np.zeros(batch.n_steps), np.zeros(batch.n_steps, bool)
    first, odd = np.zeros(len(batch)), []
    for r, told in _told(batch.column("progress_R"), len(batch)):
        steps = slice(int(batch.step_start_R1[r]), int(batch.step_start_R1[r + 1]))
        phi = _vector(told.get("values") if isinstance(told, Mapping) else told)
        if phi is None or phi.ndim != 1 or phi.size != steps.stop - steps.start + 1:
            odd.append(r)
            continue
        first[r], values[steps], there[steps] = phi[0], phi[1:], True
    return Signal(values, there), first, _misfits(index, odd)


def first_passed(index: Index) -> Signal:
    """Return the weight of the checks that each step passed for the first time ``[S]``.

    Raises:
        MissingSignal: if no rollout's `progress` has ``checks``.
    """
    batch = index.batch
    values, there = np.zeros(batch.n_steps), np.zeros(batch.n_steps, bool)
    odd, any_checks = [], False
    column = batch.columns.get("progress_R")
    for r, told in () if column is None else _told(column, len(batch)):
        if not isinstance(told, Mapping) or told.get("checks") is None:
            continue
        any_checks = True
        steps = slice(int(batch.step_start_R1[r]), int(batch.step_start_R1[r + 1]))
        paid = _paid_once(told, steps.stop - steps.start)
        if paid is None:
            odd.append(r)
        else:
            values[steps], there[steps] = paid, True
    if not any_checks:
        raise MissingSignal(
            "milestone='first' needs the single checks, progress.checks, which these rollouts lack",
            code="ACC401",
            hint="Give progress: {values, checks} with n_steps + 1 rows of checks, or say "
            "milestone='difference'",
        )
    return Signal(values, there, _misfits(index, odd))


def _paid_once(told: Mapping[str, Any], n_steps: int) -> Floats | None:
    checks = _vector(told.get("checks"))
    if checks is None or checks.ndim != 2 or checks.shape[0] != n_steps + 1 or not checks.shape[1]:
        return None
    weights = _vector(told.get("weights", [1.0] * checks.shape[1]))
    if weights is None or weights.shape != checks.shape[1:] or not weights.sum() > 0:
        return None
    ever = np.maximum.accumulate(checks != 0, axis=0)
    found: Floats = (np.diff(ever.astype(np.float64), axis=0) @ weights) / weights.sum()
    return found


def _told(column: Column, n: int) -> list[tuple[int, Any]]:
    return [(r, column.item(r)) for r in np.flatnonzero(column.mask(n)).tolist()]


def _vector(values: Any) -> Floats | None:
    """Return the numbers of a JSON list (of lists), or None if they are anything else."""
    try:
        found = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        return None
    return found if found.ndim and np.isfinite(found).all() else None


def _misfits(index: Index, odd: list[int]) -> tuple[Finding, ...]:
    if not odd:
        return ()
    return (
        Finding(
            "ACC424",
            "warning",
            f"progress of {len(odd)} rollouts does not fit their steps: they count as not annotated",
            f"rollout {index.batch.ids[odd[0]]!r}",
            "Give n_steps + 1 numbers: before the first step, and after each step",
            len(odd),
        ),
    )
