"""Final answers of rollouts: their clusters, how reliable they are, and their support along the way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accredit.data.values import is_number
from accredit.errors import DataError
from accredit.index import Index, segment_sum
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["Answers", "answers_of", "reliability", "support_change"]

_TINY = 1e-12  # added to a cluster's share


@dataclass(frozen=True)
class Answers:
    """Clusters of the final answers, numbered in the order in which rollouts open them.

    Args:
        cluster_R: cluster of each rollout ``[R]``; -1 = no answer.
        group_C: group of each cluster ``[C]``.
        size_C: rollouts of each cluster ``[C]``.
        share_R: size of the own cluster over the answers of the group ``[R]``; 0 = no answer.
        reference_R: rollout that opened the own cluster ``[R]``; -1 = no answer.
        use_R: rollouts that are not rejected ``[R]``.
        by_text: rollouts whose cluster was not given, in groups with several answers.
    """

    cluster_R: Ints
    group_C: Ints
    size_C: Ints
    share_R: Floats
    reference_R: Ints
    use_R: BoolArray
    by_text: int


def answers_of(index: Index) -> Answers:
    """Return the clusters of the batch's answers; an answer without a cluster joins equal texts.

    Args:
        index: of the batch, with ``answer`` and perhaps ``answer_cluster``.
    """
    n = len(index.batch)
    use = ~index.has_status("rejected")
    texts, given = _items(index, "answer_R"), _items(index, "answer_cluster_R")
    found, opened = np.full(n, -1), np.full(n, -1)
    table: dict[tuple[int, Any], int] = {}
    first: list[int] = []
    for r in np.flatnonzero(use).tolist():
        if texts[r] is None or texts[r] == "":
            continue
        label = ("text", repr(texts[r])) if given[r] is None else ("cluster", given[r])
        code = table.setdefault((int(index.group_R[r]), label), len(table))
        if code == len(first):
            first.append(r)
        found[r], opened[r] = code, first[code]
    has = found >= 0
    size = np.bincount(found[has], minlength=len(table))
    answers_R = np.bincount(index.group_R[has], minlength=index.n_groups)[index.group_R]
    share = np.zeros(n)
    share[has] = size[found[has]] / answers_R[has]
    lacks = np.array([value is None for value in given], bool)
    by_text = int((has & lacks & (answers_R > 1)).sum())
    return Answers(found, index.group_R[first], size, share, opened, use, by_text)


def _items(index: Index, name: str) -> list[Any]:
    """Return the values of a rollout column, None where absent."""
    if not index.batch.has(name):
        return [None] * len(index.batch)
    column = index.batch.column(name)
    there = column.mask(len(index.batch)).tolist()
    return [column.item(r) if there[r] else None for r in range(len(there))]


def reliability(index: Index, answers: Answers, eta: float | None) -> Floats:
    """Return q of each rollout's cluster ``[R]``, 0 without an answer; q sums to 1 over clusters.

    Args:
        index: of the batch, perhaps with ``evidence``.
        answers: of the batch.
        eta: weight of the evidence; None = 1 if it is there, else 0.
    """
    weight = float(index.batch.has("evidence_R")) if eta is None else eta
    has = answers.cluster_R >= 0
    n = answers.size_C.size
    logit = np.zeros(n)
    share = np.zeros(n)
    share[answers.cluster_R[has]] = answers.share_R[has]
    np.log(share + _TINY, out=logit)
    if weight:
        logit += weight * _evidence(index, answers)
    top = np.full(index.n_groups, -np.inf)
    np.maximum.at(top, answers.group_C, logit)
    raw = np.exp(logit - top[answers.group_C])
    q = raw / segment_sum(raw, answers.group_C, index.n_groups)[answers.group_C]
    found = np.zeros(len(index.batch))
    found[has] = q[answers.cluster_R[has]]
    return found


def _evidence(index: Index, answers: Answers) -> Floats:
    """Return the mean evidence of each cluster ``[C]`` over its rollouts that have some."""
    n = answers.size_C.size
    total, count = np.zeros(n), np.zeros(n)
    for r, value in enumerate(_items(index, "evidence_R")):
        cluster = int(answers.cluster_R[r])
        if value is None or cluster < 0:
            continue
        numbers = value if isinstance(value, list) else [value]
        if not all(is_number(x) for x in numbers):
            raise _odd(index, r, "evidence", "a list of probabilities, one a tool observation")
        if numbers:
            total[cluster] += sum(numbers) / len(numbers)
            count[cluster] += 1
    return total / np.maximum(count, 1)


def support_change(
    index: Index, rollouts: BoolArray, num_refs: int, epsilon: float
) -> tuple[Floats, BoolArray]:
    """Return what each turn changes in the log-support ``[S]``, and which rollouts are measured ``[R]``.

    Args:
        index: of the batch, with ``ref_logprobs``.
        rollouts: to be measured ``[R]``; the others get 0.
        num_refs: references that count, the first ones.
        epsilon: added to the support.

    Raises:
        DataError: naming the rollout whose ``ref_logprobs`` has another form.
    """
    change, measured = np.zeros(index.batch.n_steps), np.zeros(len(index.batch), bool)
    items = _items(index, "ref_logprobs_R")
    for r in np.flatnonzero(rollouts).tolist():
        if items[r] is None:
            continue
        steps = index.batch.steps_of(r)
        supports = [_support(index, r, refs, num_refs) for refs in _prefixes(index, r, items[r])]
        if None in supports:
            continue
        log_p = np.log(np.array(supports, np.float64) + epsilon)
        difference = np.diff(log_p)
        difference[np.isnan(difference)] = 0.0  # no finite log-prob on one side: no change is known
        change[steps.start : steps.stop] = difference
        measured[r] = True
    return change, measured


def _prefixes(index: Index, r: int, item: Any) -> list[Any]:
    """Return the references' scores before the first turn and after each one."""
    form = isinstance(item, dict) and isinstance(item.get("after_step"), list)
    if not form or len(item["after_step"]) != index.steps_R[r]:
        wanted = f"baseline and after_step, one entry a step (here {index.steps_R[r]})"
        raise _odd(index, r, "ref_logprobs", wanted)
    return [item.get("baseline"), *item["after_step"]]


def _support(index: Index, r: int, refs: Any, num_refs: int) -> float | None:
    """Return sum of weight x likelihood; None = not measured, NaN = no log-prob is finite."""
    if not refs:
        return None
    pairs = isinstance(refs, list) and all(_is_pair(ref) for ref in refs)
    if not pairs:
        raise _odd(index, r, "ref_logprobs", "lists of [weight, mean log-prob]")
    kept = refs[:num_refs]
    scale = sum(weight for weight, _ in refs) / sum(weight for weight, _ in kept)
    known = [weight * scale * math.exp(logprob) for weight, logprob in kept if is_number(logprob)]
    return sum(known) if known else math.nan


def _is_pair(ref: Any) -> bool:
    return isinstance(ref, Sequence) and len(ref) == 2 and is_number(ref[0]) and ref[0] > 0


def _odd(index: Index, r: int, field: str, wanted: str) -> DataError:
    return DataError(
        f"rollout {index.batch.ids[r]!r} has {field} of another form",
        code="ACC401",
        hint=f"Give {wanted}; null where it was not measured",
    )
