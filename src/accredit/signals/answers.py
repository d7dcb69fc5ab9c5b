"""Final answers of rollouts: clusters by meaning, their references' support, and evidence for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from accredit.data import Batch
from accredit.errors import DataError, ParamError
from accredit.signals.chat import Tokenizer
from accredit.signals.hints import word_of
from accredit.signals.readout import (
    Equivalence,
    Frame,
    continuation_logprobs,
    encoded,
    exact_match,
    framed,
    json_column,
    step_prefixes,
    with_items,
)
from accredit.signals.request import Backend
from accredit.typing import Ints

__all__ = ["Evidence", "answer_clusters", "evidence_of", "reference_logprobs"]

Evidence: TypeAlias = Callable[[str, str], float]
_OBSERVED = 2000  # characters of an observation that evidence is taken from


def answer_clusters(batch: Batch, same: Equivalence | None = None) -> Batch:
    """Return the batch with ``answer_cluster``: which answers of a group mean the same.

    Greedy in rollout order: the first answer that is in no cluster opens one, and takes every later
    free answer that is equivalent to it.  Numbers are those of the group, from 0.

    Args:
        batch: rollouts with ``answer``; empty or absent = none.
        same: whether two answers mean the same (for a judge or an entailment model, with the question
            put before both); None: `exact_match`.

    Source: dl-m9/SIOP ``siop_cluster_pass``.
    """
    same = same or exact_match
    values: list[Any] = [None] * len(batch)
    for members in _groups(batch):
        texts = {r: text for r in members if (text := word_of(batch, r, "answer"))}
        free, cluster = list(texts), 0
        while free:
            first = free[0]
            taken = [r for r in free if r == first or same(texts[first], texts[r])]
            for r in taken:
                values[r] = cluster
            free = [r for r in free if r not in taken]
            cluster += 1
    there = np.array([v is not None for v in values], bool)
    plain = [0 if v is None else v for v in values]
    made = {"made_by": "answer_clusters", "same": getattr(same, "__name__", "callable")}
    return batch.with_column("answer_cluster_R", plain, made, valid=there)


def reference_logprobs(
    batch: Batch,
    backend: Backend,
    tokenizer: Tokenizer,
    *,
    num_refs: int = 3,
    frame: Frame | None = None,
    **job: Any,
) -> Batch:
    """Return the batch with ``ref_logprobs``: support for each rollout's own cluster along its steps.

    The references of a cluster are its first distinct answers; each entry is ``[weight, mean log-prob]``
    of a reference's own tokens inside the frame, before the first step (``baseline``) and after each.
    Rollouts without an answer get none.

    Args:
        batch: rollouts with ids, ``answer`` and ``answer_cluster`` (see `answer_clusters`).
        backend: who scores.
        tokenizer: of the model.
        num_refs: references of a cluster.
        frame: of the answer.
        **job: ``journal``, ``resume`` and ``progress``, as in `probe`.

    Raises:
        ParamError: for fewer than one reference.
        DataError: if the answers have no clusters.

    Source: dl-m9/SIOP ``siop_process_reward.py``.
    """
    if num_refs < 1:
        raise ParamError(f"num_refs must be at least 1, got {num_refs}")
    if not batch.has("answer_cluster_R"):
        raise DataError("the answers have no clusters", hint="Call answer_clusters first")
    frame = frame or Frame()
    references = _references(batch, num_refs)
    rows: list[int] = []
    asked: list[tuple[Ints, list[Ints]]] = []
    for r, prefixes in step_prefixes(batch):
        if r not in references or prefixes is None:
            continue
        ids = [encoded(tokenizer, text) for text in references[r]]
        rows.append(r)
        asked += [(framed(prefix, frame, tokenizer), ids) for prefix in prefixes]
    found = iter(continuation_logprobs(backend, asked, **job))
    values: list[Any] = [None] * len(batch)
    for r in rows:
        share = 1.0 / len(references[r])
        pairs = [
            [[share, float(row.mean(dtype=np.float64))] for row in next(found)]
            for _ in range(len(batch.steps_of(r)) + 1)
        ]
        values[r] = {"baseline": pairs[0], "after_step": pairs[1:]}
    return with_items(batch, "ref_logprobs_R", values, backend, frame)


def _references(batch: Batch, num_refs: int) -> Mapping[int, list[str]]:
    clusters = batch.column("answer_cluster_R")
    there = clusters.mask(len(batch))
    found: dict[int, list[str]] = {}
    for members in _groups(batch):
        named: dict[Any, dict[str, None]] = {}
        for r in members:
            text = word_of(batch, r, "answer")
            if there[r] and text:
                named.setdefault(clusters.item(r), {})[text] = None
        for r in members:
            if there[r] and word_of(batch, r, "answer"):
                found[r] = list(named[clusters.item(r)])[:num_refs]
    return found


def evidence_of(batch: Batch, judge: Evidence) -> Batch:
    """Return the batch with ``evidence``: how far each observation supports the rollout's answer.

    The answer is the first one of the rollout's cluster; rollouts without an answer get none, steps
    without an observation are left out.

    Args:
        batch: rollouts with ``answer``, ``answer_cluster`` and ``observation`` at their steps.
        judge: ``(observation, answer)`` to a probability of entailment; observations are cut to 2,000
            characters.

    Raises:
        DataError: if the answers have no clusters, or the judge returns no probability.

    Source: dl-m9/SIOP ``siop_process_reward.py``.
    """
    if not batch.has("answer_cluster_R"):
        raise DataError("the answers have no clusters", hint="Call answer_clusters first")
    references = _references(batch, 1)
    values: list[Any] = [None] * len(batch)
    for r, [reference] in references.items():
        values[r] = [_judged(judge, text[:_OBSERVED], reference) for text in _observations(batch, r)]
    made = {"made_by": "evidence_of", "judge": getattr(judge, "__name__", "callable")}
    return json_column(batch, "evidence_R", values, made)


def _judged(judge: Evidence, observation: str, reference: str) -> float:
    value = float(judge(observation, reference))
    if not 0.0 <= value <= 1.0:
        raise DataError(f"the judge of evidence returned {value}, not a probability")
    return value


def _observations(batch: Batch, r: int) -> list[str]:
    if not batch.has("observation_S"):
        return []
    column = batch.column("observation_S")
    there = column.mask(batch.n_steps)
    return [str(column.item(s)) for s in batch.steps_of(r) if there[s]]


def _groups(batch: Batch) -> Iterator[list[int]]:
    for group in np.unique(batch.group_R).tolist():
        yield np.flatnonzero(batch.group_R == group).tolist()
