"""Answers read out along a rollout: how likely each candidate is after every step.

A readout ends the prefix with a fixed frame and scores whole answers, terminator and all.  Candidates
of one prefix are requests that share all ids before their first span: a back end computes the shared
part once and no candidate sees another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from accredit.data import Batch
from accredit.errors import DataError
from accredit.signals.chat import Tokenizer
from accredit.signals.hints import word_of
from accredit.signals.job import run, scoring_units
from accredit.signals.passages import passages_of
from accredit.signals.request import CONTEXT, Backend, Passage, ProbeRequest, Span, Want
from accredit.typing import Array, Floats, Ints

__all__ = [
    "Equivalence",
    "Frame",
    "before_steps",
    "candidate_logprobs",
    "continuation_logprobs",
    "distinct",
    "encoded",
    "exact_match",
    "framed",
    "group_answers",
    "json_column",
    "score_continuations",
    "step_prefixes",
    "with_items",
]

Equivalence: TypeAlias = Callable[[str, str], bool]
_LOGPROB = Want(logprob=True)


@dataclass(frozen=True, slots=True)
class Frame:
    r"""What stands around an answer that is read out.

    Args:
        before: text between the prefix and the answer.
        after: text that ends the answer; its tokens are the terminator.
        close: text of an end-of-turn token that is dropped where a prefix ends with it: a readout goes
            on where the policy spoke.  "" keeps it.

    Example:
        >>> Frame(before="\nAnswer: ").after
        '<|im_end|>'
    """

    before: str = "\nNow there's enough information to answer\n<answer>\n"
    after: str = "<|im_end|>"
    close: str = "<|im_end|>"


def score_continuations(backend: Backend, prefix: Ints, candidates: Sequence[Ints]) -> Floats:
    """Return the sum of log-probabilities of each continuation of a prefix.

    Args:
        backend: who scores.
        prefix: ids before the continuations, at least one; shared, so computed once.
        candidates: ids of each continuation, its terminator included; at least one id each.

    Returns:
        Sums ``[n]``, nats, at most 0.  Candidates do not see each other.

    Raises:
        DataError: for an empty prefix or candidate.
        BackendError: if the model does not answer.

    Example:
        >>> from accredit.signals.fake import FakeBackend
        >>> score_continuations(FakeBackend(), np.array([1, 2]), [np.array([3]), np.array([3, 4])]).shape
        (2,)
    """
    [found] = continuation_logprobs(backend, [(prefix, candidates)])
    return np.array([row.sum(dtype=np.float64) for row in found])


def continuation_logprobs(
    backend: Backend, asked: Iterable[tuple[Ints, Sequence[Ints]]], **job: Any
) -> list[list[Array]]:
    """Return the log-probability of each token of each continuation of each prefix.

    Args:
        backend: who scores; all is asked in one call, so prefixes that recur are computed once.
        asked: a prefix and its continuations, each.
        **job: ``journal``, ``resume`` and ``progress``, as in `probe`.

    Raises:
        DataError: for an empty prefix or candidate.
        BackendError: if an answer is missing.
    """
    wanted = [[_request(prefix, ids) for ids in candidates] for prefix, candidates in asked]
    unique = {request.key: request for requests in wanted for request in requests}
    plan = {"probe": "readout", **backend.provenance.to_dict()}
    found = dict(run(scoring_units(backend, list(unique.values())), plan, **job))
    return [[found[request.key]["logprob"] for request in requests] for requests in wanted]


def _request(prefix: Ints, ids: Ints) -> ProbeRequest:
    if not prefix.size or not ids.size:
        raise DataError("a continuation and what stands before it have at least one token each")
    whole = np.concatenate([prefix, ids]).astype(np.int64)
    return ProbeRequest(whole, (Span(CONTEXT, prefix.size, whole.size),), _LOGPROB, "readout")


def step_prefixes(batch: Batch) -> Iterator[tuple[int, list[Ints] | None]]:
    """Yield each rollout's K + 1 prefixes: before its first step, and after each step.

    The prefix after a step is what the model had read and said by its last policy token; where a call
    has a prompt of its own, that prompt and the call's answer.

    Args:
        batch: rollouts with token and context ids.

    Yields:
        Position of the rollout, and its prefixes; None where a step has no ids or nothing stands
        before the first.
    """
    passages, unknown = passages_of(batch)
    lost = {int(np.searchsorted(batch.step_start_R1, s, "right")) - 1 for s in unknown.tolist()}
    by_rollout: dict[int, list[Passage]] = {}
    for passage in passages:
        by_rollout.setdefault(passage.rollout, []).append(passage)
    for r in range(len(batch)):
        found = None if r in lost else _prefixes(by_rollout.get(r, []))
        yield r, found


def _prefixes(passages: Sequence[Passage]) -> list[Ints] | None:
    found: list[Ints] = []
    for passage in passages:
        ids = np.zeros(0, np.int64)
        for segment in passage.segments:
            if segment.step != CONTEXT and not ids.size:
                return None  # nothing stands before this call
            if segment.step != CONTEXT and not found:
                found.append(ids)
            ids = np.concatenate([ids, segment.ids])
            if segment.step != CONTEXT:
                found.append(ids)
    return found or None


def before_steps(batch: Batch) -> Iterator[tuple[int, Ints]]:
    """Yield each step with all ids that the policy had read and said before its first token.

    Args:
        batch: rollouts with token and context ids.

    Yields:
        Step of the batch and its prefix; none for steps whose prefix is not known or empty.

    Raises:
        DataError: if no ids were recorded.
    """
    for passage in passages_of(batch)[0]:
        ids = np.zeros(0, np.int64)
        for segment in passage.segments:
            if segment.step != CONTEXT and ids.size:
                yield segment.step, ids
            ids = np.concatenate([ids, segment.ids])


def framed(prefix: Ints, frame: Frame, tokenizer: Tokenizer) -> Ints:
    """Return a prefix with what stands before an answer.

    Args:
        prefix: ids of a rollout so far.
        frame: of the answer.
        tokenizer: of the model.
    """
    close = np.asarray(tokenizer.encode(frame.close), np.int64) if frame.close else np.zeros(0, np.int64)
    if close.size and prefix.size > close.size and np.array_equal(prefix[-close.size :], close):
        prefix = prefix[: -close.size]
    return np.concatenate([prefix, tokenizer.encode(frame.before)]).astype(np.int64)


def candidate_logprobs(
    batch: Batch,
    backend: Backend,
    tokenizer: Tokenizer,
    *,
    gold: str = "gold",
    candidates: Callable[[Batch, int], Sequence[str]] | None = None,
    same: Equivalence | None = None,
    frame: Frame | None = None,
    **job: Any,
) -> Batch:
    """Return the batch with ``candidate_logprobs``: K + 1 lists a rollout, the gold answer first.

    ``l_k(a)`` is the sum of log-probs of the whole answer and its terminator after step k, in a fixed
    frame.  The candidates are the same at every step of a rollout: the gold answer, then the rollout's
    own and its group's, equivalent ones once.  A rollout without a gold answer or without a competitor
    gets none.

    Args:
        batch: rollouts with ids, ``answer``, and a gold answer.
        backend: who scores: the policy.
        tokenizer: of the model.
        gold: field, or key of ``metadata``, of the gold answer.
        candidates: ``(batch, rollout)`` to further answers, in place of the group's.
        same: whether two answers mean the same; None: `exact_match`.
        frame: of the answer.
        **job: ``journal``, ``resume`` and ``progress``, as in `probe`.

    Raises:
        BackendError: if the model does not answer.

    Source: methods/dcsd.md, section 4b.
    """
    frame, same = frame or Frame(), same or exact_match
    others = candidates or group_answers
    rows: list[int] = []
    asked: list[tuple[Ints, list[Ints]]] = []
    for r, prefixes in step_prefixes(batch):
        right = word_of(batch, r, gold)
        if not right or prefixes is None:
            continue
        answers = distinct([right, *others(batch, r)], same)
        if len(answers) < 2:
            continue
        ids = [encoded(tokenizer, answer + frame.after) for answer in answers]
        rows.append(r)
        asked += [(framed(prefix, frame, tokenizer), ids) for prefix in prefixes]
    sums = iter(
        [
            [float(row.sum(dtype=np.float64)) for row in found]
            for found in continuation_logprobs(backend, asked, **job)
        ]
    )
    values: list[Any] = [None] * len(batch)
    for r in rows:
        values[r] = [next(sums) for _ in range(len(batch.steps_of(r)) + 1)]
    return with_items(batch, "candidate_logprobs_R", values, backend, frame)


def group_answers(batch: Batch, r: int) -> list[str]:
    """Return a rollout's own answer, then those of its group, as they come.

    Args:
        batch: rollouts with ``answer``.
        r: position of one.
    """
    group = np.flatnonzero(batch.group_R == batch.group_R[r]).tolist()
    said = (word_of(batch, other, "answer") for other in [r, *group])
    return [text for text in said if text]


def distinct(answers: Sequence[str], same: Equivalence | None = None) -> list[str]:
    """Return answers without those that are the same as an earlier one.

    Args:
        answers: in order.
        same: whether two answers mean the same; None: `exact_match`.
    """
    same = same or exact_match
    found: list[str] = []
    for answer in answers:
        if not any(same(answer, other) for other in found):
            found.append(answer)
    return found


def encoded(tokenizer: Tokenizer, text: str) -> Ints:
    """Return the ids of a text, int64.

    Args:
        tokenizer: of the model.
        text: special tokens in it become their ids.
    """
    return np.asarray(tokenizer.encode(text), np.int64)


def exact_match(a: str, b: str) -> bool:
    """Return whether two answers are the same text, capitals, spaces and a final full stop aside.

    Args:
        a: an answer.
        b: another.

    Example:
        >>> exact_match(" The Nile.", "the  nile"), exact_match("3", "3.5")
        (True, False)
    """
    return _canonical(a) == _canonical(b)


def _canonical(text: str) -> str:
    return " ".join(text.casefold().split()).removesuffix(".")


def with_items(batch: Batch, name: str, values: list[Any], backend: Backend, frame: Frame) -> Batch:
    """Return the batch with a readout, one item a rollout, and where it came from.

    Args:
        batch: rollouts.
        name: of the column.
        values: items; None = none.
        backend: who scored.
        frame: of the answers.
    """
    made = {
        **backend.provenance.to_dict(),
        "context": "readout",
        "before": frame.before,
        "after": frame.after,
    }
    return json_column(batch, name, values, made)


def json_column(batch: Batch, name: str, values: list[Any], made: Mapping[str, Any]) -> Batch:
    """Return the batch with lists or objects, one a rollout.

    Args:
        batch: rollouts.
        name: of the column.
        values: JSON-ready; None = none.
        made: provenance.
    """
    table = np.empty(len(values), object)
    table[:] = [None] * len(values)
    for r, value in enumerate(values):
        table[r] = value
    return batch.with_column(name, table, made)
