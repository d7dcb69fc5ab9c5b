"""A probe as a durable job: units of work that are done once, kept as they come, and taken up again.

A unit is done whole or not at all, and units depend on nothing but the plan, so a job that was killed
at any moment and resumed gives the numbers of one that was not.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from accredit.data import Batch
from accredit.errors import BackendError
from accredit.signals.batching import buckets, packed
from accredit.signals.request import Backend, ProbeRequest
from accredit.store.batches import save_batch
from accredit.store.journal import LineJournal
from accredit.store.kinds import file_kind
from accredit.typing import Array

__all__ = [
    "SCHEMA",
    "Answers",
    "Progress",
    "Unit",
    "check_target",
    "finish",
    "run",
    "scoring_units",
    "units_digest",
]

SCHEMA = "accredit.probe-journal/1"
Progress: TypeAlias = Callable[[int, int, str], None]
Answers: TypeAlias = Iterable[tuple[str, Mapping[str, Array]]]
_BATCH_TOKENS = 16_384  # of a unit, where the back end does not say


@dataclass(frozen=True, slots=True)
class Unit:
    """What is done, and kept, in one piece.

    Args:
        keys: names of the answers.
        tokens: how much work it is.
        work: returns one ``(key, arrays)`` a key, in any order.
    """

    keys: tuple[str, ...]
    tokens: int
    work: Callable[[], Answers]


def run(
    units: Sequence[Unit],
    plan: Mapping[str, Any],
    *,
    journal: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Iterator[tuple[str, dict[str, Array]]]:
    """Yield ``(key, arrays)`` of every unit: those of an earlier run first, then the others as they are done.

    Args:
        units: the work.
        plan: what the answers depend on; with the units' keys it must be that of the journal.
        journal: file of answers, removed by the caller's hand alone; None: nothing is kept.
        resume: take up what an earlier run left.
        progress: called with tokens done, tokens in all, and the rate.

    Raises:
        DataError: if the journal is of another job.
        BackendError: if a unit does not answer all its keys.
    """
    total, done, spent = sum(unit.tokens for unit in units), 0, 0.0
    tell = progress or (lambda done, total, now: None)
    with LineJournal(
        journal, SCHEMA, {**plan, "units": units_digest(units), "tokens": total}, resume=resume
    ) as kept:
        before: set[int] = set()
        for record in kept.records(dict):
            before.add(record["unit"])
            yield from ((key, _unpacked(arrays)) for key, arrays in record["answers"])
        done = skipped = sum(units[i].tokens for i in before)
        tell(done, total, "resumed" if before else "started")
        for i, unit in enumerate(units):
            if i in before:
                continue
            begin = time.monotonic()
            answers = _answered(unit)
            kept.add({"unit": i, "answers": [(key, _packed(arrays)) for key, arrays in answers]})
            yield from answers
            done, spent = done + unit.tokens, spent + time.monotonic() - begin
            tell(done, total, f"{(done - skipped) / max(spent, 1e-9):,.0f} tokens/s")


def _answered(unit: Unit) -> list[tuple[str, dict[str, Array]]]:
    found = [(key, dict(arrays)) for key, arrays in unit.work()]
    if sorted(key for key, _ in found) != sorted(unit.keys):
        raise BackendError(
            f"the back end answered {len(found)} of {len(unit.keys)} requests, or others",
            code="ACC755",
            hint="Resume: what was answered before is kept",
        )
    return found


def units_digest(units: Sequence[Unit]) -> str:
    """Return the fingerprint of what is asked, unit by unit."""
    text = "\n".join(" ".join(unit.keys) for unit in units)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def scoring_units(backend: Backend, requests: Sequence[ProbeRequest]) -> list[Unit]:
    """Return units of requests of like length, each as large as the back end takes at once.

    Args:
        backend: who answers; its ``batch_tokens``, if it has one, is the size.
        requests: with unique keys.
    """
    budget = int(getattr(backend, "batch_tokens", _BATCH_TOKENS))
    parts = [
        [requests[i] for row in bucket for i in row.members]
        for bucket in buckets(packed(requests, budget), budget)
    ]
    empty = [request for request in requests if not request.positions.size]
    return [_scoring(backend, part) for part in [*parts, empty] if part]


def _scoring(backend: Backend, requests: Sequence[ProbeRequest]) -> Unit:
    def work() -> Answers:
        return [(scores.key, scores.arrays()) for scores in backend.score(requests)]

    return Unit(tuple(r.key for r in requests), sum(r.ids.size for r in requests), work)


def check_target(out: str | Path) -> None:
    """Refuse a name that `finish` could not write to, before anything is asked.

    Raises:
        StoreError: if the name does not say the kind of file.
    """
    file_kind(out)


def finish(batch: Batch, out: str | Path, journal: str | Path) -> None:
    """Write a job's result, then remove its journals: work is lost at no moment.

    Args:
        batch: what the job made.
        out: file of it, see `save_batch`.
        journal: of the job; journals of its parts have this name and more.
    """
    save_batch(batch, out)
    for path in Path(journal).parent.glob(f"{escape(Path(journal).name)}*"):
        path.unlink()


def _packed(arrays: Mapping[str, Array]) -> dict[str, list[Any]]:
    return {
        name: [a.dtype.str, list(a.shape), base64.b64encode(np.ascontiguousarray(a).tobytes()).decode()]
        for name, a in arrays.items()
    }


def _unpacked(fields: Mapping[str, Sequence[Any]]) -> dict[str, Array]:
    return {
        name: np.frombuffer(base64.b64decode(data), np.dtype(kind)).reshape(shape)
        for name, (kind, shape, data) in fields.items()
    }
