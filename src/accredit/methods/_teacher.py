"""What methods with a teacher share: the gap between teacher and student on the student's tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from accredit.data import Finding
from accredit.errors import DataError, MissingSignal
from accredit.index import Index
from accredit.losses import log_softmax, row_pieces
from accredit.typing import Array, BoolArray, Floats, Ints

__all__ = [
    "Gap",
    "chosen_T",
    "lost_finding",
    "lost_prefix",
    "of_steps",
    "rescored_S",
    "sampled_gap",
    "signal_where",
    "vocabulary_gap",
]

_COLUMNS = {"logprobs": "logprob_T"}


@dataclass(frozen=True)
class Gap:
    """How much likelier a teacher finds each token than the student does.

    Args:
        values: ``d = log pi_teacher - log pi_student`` ``[T]``, nats; exactly 0 where not taught.
        taught_S: steps with tokens that a teacher rescored.
    """

    values: Floats
    taught_S: BoolArray


def sampled_gap(index: Index) -> Gap:
    """Return the gap from ``logprobs`` and ``logprobs_teacher``.

    A step without ``logprobs_teacher`` has no privileged context: its gap is 0.  So is that of a step
    with an infinite one, which a batch takes as absent (ACC306).

    Args:
        index: of the batch.

    Raises:
        MissingSignal: a step that a teacher rescored has no ``logprobs``.
    """
    taught = rescored_S(index, "logprobs_teacher")
    values = signal_where(index, "logprobs_teacher", taught)
    values -= signal_where(index, "logprobs", taught)
    if not taught.all():
        values[~of_steps(index, taught)] = 0.0
    return Gap(values, taught)


def vocabulary_gap(index: Index, temperature: float) -> Gap:
    """Return the gap from ``student_logits`` and ``teacher_logits`` at the sampled tokens.

    Args:
        index: of the batch.
        temperature: divides both first.

    Raises:
        MissingSignal: without ``tokens``.
        DataError: a token outside the vocabulary.
    """
    taught = rescored_S(index, "student_logits", "teacher_logits")
    student, teacher = (index.batch.column(f"{who}_logits_T").values for who in ("student", "teacher"))
    tokens = chosen_T(index, student.shape[1])
    values = np.zeros(tokens.size)
    for rows in row_pieces(tokens.size, student.shape[1]):
        at = np.arange(rows.stop - rows.start), tokens[rows]
        values[rows] = log_softmax(teacher[rows], temperature)[at]
        values[rows] -= log_softmax(student[rows], temperature)[at]
    values[~of_steps(index, taught)] = 0.0
    return Gap(values, taught)


def rescored_S(index: Index, *fields: str) -> BoolArray:
    """Return which steps have tokens and all of these token fields ``[S]``.

    Args:
        index: of the batch.
        *fields: token fields; a batch without one of them has it at no step.
    """
    found = index.tokens_S > 0
    for field in fields:
        column = index.batch.columns.get(_COLUMNS.get(field, f"{field}_T"))
        found = found & (column is not None and column.mask(index.batch.n_steps))
    return found


def of_steps(index: Index, steps_S: BoolArray) -> BoolArray:
    """Return which tokens belong to these steps ``[T]``."""
    return np.repeat(steps_S, index.tokens_S)


def signal_where(index: Index, field: str, where_S: BoolArray) -> Floats:
    """Return a fresh copy of a token signal ``[T]`` that some steps must have; 0 where it is absent.

    Args:
        index: of the batch.
        field: ``logprobs``, ``logprobs_teacher``, ``old_logprobs``.
        where_S: steps that must have it.

    Raises:
        MissingSignal: naming the first of these steps that lacks it.
    """
    lacks = where_S & ~rescored_S(index, field)
    if lacks.any():
        raise MissingSignal(
            f"{index.where(int(np.flatnonzero(lacks)[0]))} has no {field}",
            code="ACC401",
            hint=f"Give {field} at every step that a teacher rescored",
        )
    column = index.batch.columns.get(_COLUMNS.get(field, f"{field}_T"))
    return np.zeros(index.batch.n_tokens) if column is None else np.array(column.values, np.float64)


def chosen_T(index: Index, words: int) -> Ints:
    """Return the sampled word of each token ``[T]``.

    Args:
        index: of the batch.
        words: size of the vocabulary.

    Raises:
        MissingSignal: without ``tokens``.
        DataError: a token outside the vocabulary.
    """
    if not index.batch.has("token_T"):
        raise MissingSignal(
            "logits need the token ids of the steps",
            code="ACC401",
            hint="Give `tokens`, or give chosen-token log-probs instead of logits",
        )
    tokens: Array = index.batch.column("token_T").values
    if tokens.size and not (0 <= tokens.min() and tokens.max() < words):
        raise DataError(
            f"token ids reach from {tokens.min()} to {tokens.max()}, and the logits have {words} words",
            hint="Logits must stand in the order of the token ids",
        )
    return tokens


def lost_prefix(index: Index) -> Mapping[str, int]:
    """Return how many rollouts or steps say ``prefix_lost``, as a fallback.

    A teacher's prompt that is too long loses its left end, the privileged text, and the teacher is the
    student again.

    Args:
        index: of the batch.
    """
    count = 0
    for name, size in (("prefix_lost_R", len(index.batch)), ("prefix_lost_S", index.batch.n_steps)):
        column = index.batch.columns.get(name)
        if column is not None:
            count += int((column.decoded().astype(bool) & column.mask(size)).sum())
    return {"prefix_lost": count}


def lost_finding(lost: Mapping[str, int]) -> tuple[Finding, ...]:
    """Return what `lost_prefix` found as a finding.

    Args:
        lost: from `lost_prefix`.
    """
    count = lost["prefix_lost"]
    if not count:
        return ()
    return (
        Finding(
            "ACC432",
            "warning",
            f"{count} teacher prompts lost their privileged text to the length limit: there the teacher is "
            "the student",
            hint="Raise the limit or shorten the prompt, so that nothing is cut from its left end",
            count=count,
        ),
    )
