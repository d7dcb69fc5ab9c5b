"""Two contexts scored by one model, so that their difference is the context's doing alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from accredit.data import Batch, Finding
from accredit.signals.columns import column_name, free_name
from accredit.signals.job import Progress
from accredit.signals.passages import passages_of
from accredit.signals.request import SAMPLED, Backend, Context, Passage, Want
from accredit.signals.rescore import backend_of, context_of, probe
from accredit.typing import BoolArray, Ints

__all__ = ["SAMPLER", "paired"]

SAMPLER = "sampler_logprobs_T"  # where the recorded log-probabilities go


def paired(
    batch: Batch,
    model: Any,
    context: Context | str | Sequence[Context | str],
    want: str | Want = "logprob",
    *,
    journal: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Batch:
    """Return the batch with what a model says in the sampled context and in another one.

    A method that subtracts the two needs both from one back end: a sampler's own log-probabilities
    differ from any scorer's by more than many contexts do.  So ``logprob_T`` becomes the model's, and
    what was recorded there stays as ``sampler_logprobs_T``.  Steps that the context leaves as they were
    are not scored twice: they take the plain numbers, so their difference is exactly 0.  Plain numbers
    that an earlier pair left are used again.

    Args:
        batch: rollouts with token ids and context ids.
        model: as in `probe`.
        context: the other context, or its name; or several, each with a column of its own.
        want: what is asked for, in both.
        journal: file that keeps what was done; the plain context and a second one, ... have their own
            beside it (``.plain``, ``.1``, ...).
        resume: go on with what the journals hold.
        progress: as in `probe`.
        **options: of the transformers back end, where ``model`` is no back end.

    Raises:
        DataError: if no step can be scored.
        BackendError: if the model cannot give what is asked for.

    Example:
        >>> from accredit.signals import FakeBackend
        >>> step = {"prompt_tokens": [1, 2], "tokens": [3, 4], "logprobs": [-1.0, -1.0]}
        >>> batch = Batch.from_records([{"id": "a", "reward": 1, "steps": [step]}])
        >>> same = Context("mine", lambda batch, passage: passage)
        >>> found = paired(batch, FakeBackend(vocabulary=5), same)
        >>> bool((found.logprobs_mine_T == found.logprob_T).all()), found.sampler_logprobs_T.tolist()
        (True, [-1.0, -1.0])
    """
    asked = Want.parse(want) if isinstance(want, str) else want
    backend = backend_of(model, **options)
    named = [context] if isinstance(context, str | Context) else list(context)
    contexts = [context_of(one, backend) for one in named]
    more: dict[str, Any] = {"resume": resume, "progress": progress}
    known = _is_known(batch, backend, asked)
    found = batch if known else probe(batch, backend, asked, journal=_beside(journal, "plain"), **more)
    for i, one in enumerate(contexts):
        found = _told_apart(batch, found, one, asked, backend, journal=_beside(journal, i), **more)
    return _promoted(found)


def _beside(journal: str | Path | None, name: str | int) -> str | Path | None:
    return journal if journal is None or name == 0 else f"{journal}.{name}"


def _told_apart(
    batch: Batch, plain: Batch, context: Context, want: Want, backend: Backend, **job: Any
) -> Batch:
    """Return the batch with one more context, where what it leaves as it was has the plain numbers."""
    told = _told(batch, context)
    other, found = _only_changed(context), plain
    if told.edited:
        found = probe(plain, backend, want, context=other, **job)
    for kind in _fields(want):
        source = free_name(batch, column_name(kind, SAMPLED.name))
        target = free_name(batch, column_name(kind, context.name))
        found = _copied(found, source, target, told.same_S, backend, context)
    return found.annotated((*plain.findings, *_findings(batch, told, context)), found.excluded)


def _is_known(batch: Batch, backend: Backend, want: Want) -> bool:
    """Whether an earlier pair left the plain numbers of this very model."""
    made = {**backend.provenance.to_dict(), "probe": "rescore", "context": SAMPLED.name}
    if "weights" not in made:
        return False  # the model of that name may be another one by now
    columns = [batch.columns.get(column_name(kind, SAMPLED.name)) for kind in _fields(want)]
    return all(column is not None and made.items() <= column.provenance.items() for column in columns)


def _fields(want: Want) -> list[str]:
    return [*sorted(want.kinds - {"topk"}), *(("topk_ids", "topk_logprobs") if want.topk else ())]


class _Told(NamedTuple):
    """What a context does.

    Args:
        same_S: steps that it leaves as they were.
        edited: passages that it edits.
        without: rollouts that it has nothing for.
    """

    same_S: BoolArray
    edited: int
    without: Ints


def _told(batch: Batch, context: Context) -> _Told:
    same, edited, without = np.zeros(batch.n_steps, bool), 0, set()
    for passage in passages_of(batch)[0]:
        found = context.of(batch, passage)
        if found is None:
            without.add(passage.rollout)
        elif _equal(passage, found):
            same[list(passage.steps)] = True
        else:
            edited += 1
    return _Told(same, edited, np.array(sorted(without), np.int64))


def _equal(a: Passage, b: Passage) -> bool:
    pairs = zip(a.segments, b.segments, strict=False)
    return len(a.segments) == len(b.segments) and all(np.array_equal(x.ids, y.ids) for x, y in pairs)


def _only_changed(context: Context) -> Context:
    def edit(batch: Batch, passage: Passage) -> Passage | None:
        found = context.edit(batch, passage)
        return None if found is not None and _equal(passage, found) else found

    return Context(context.name, edit, context.describe)


def _copied(
    batch: Batch, source: str, target: str, same: BoolArray, backend: Backend, context: Context
) -> Batch:
    """Return the batch whose ``target`` has the numbers of ``source`` at the steps that are the same."""
    plain = batch.column(source)
    there = plain.mask(batch.n_steps) & same
    if not there.any():
        return batch
    values, valid, made = np.zeros_like(plain.values), np.zeros(batch.n_steps, bool), _made(backend, context)
    if batch.has(target):
        column = batch.column(target)
        values, valid, made = column.values.copy(), column.mask(batch.n_steps), dict(column.provenance)
    at = np.repeat(there, np.diff(batch.token_start_S1))
    values[at] = plain.values[at]
    return batch.with_column(target, values, made, valid=valid | there)


def _made(backend: Backend, context: Context) -> Mapping[str, Any]:
    settings = {"context_settings": dict(context.describe)} if context.describe else {}
    return {"probe": "rescore", **backend.provenance.to_dict(), "context": context.name, **settings}


def _findings(batch: Batch, told: _Told, context: Context) -> Iterator[Finding]:
    same = np.unique(np.searchsorted(batch.step_start_R1, np.flatnonzero(told.same_S), "right") - 1)
    said = (
        ("ACC764", same, f"are as they were in context {context.name!r}: their difference is 0"),
        ("ACC753", told.without, f"have nothing for context {context.name!r}"),
    )
    for code, rollouts, what in said:
        if rollouts.size:
            names = tuple(batch.ids[r] for r in rollouts[:5].tolist())
            n = int(rollouts.size)
            yield Finding(code, "info", f"{n} rollouts {what}", names[0], count=n, examples=names)


def _promoted(batch: Batch) -> Batch:
    """Return the batch whose ``logprob_T`` is the probe's, the recorded one kept as `SAMPLER`."""
    if not batch.has("probe_logprob_T"):
        return batch
    recorded, mine = batch.column("logprob_T"), batch.column("probe_logprob_T")
    kept = batch.with_column(SAMPLER, recorded.values, recorded.provenance, valid=recorded.valid)
    moved = kept.with_column("logprob_T", mine.values, mine.provenance, valid=mine.valid)
    return moved.without_column("probe_logprob_T")
