"""The same response tokens under several contexts or models at once, reduced while they stream."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from accredit.data import Batch
from accredit.data.likeness import require_alike
from accredit.errors import BackendError, ParamError
from accredit.signals.columns import Filler
from accredit.signals.divergences import Measure
from accredit.signals.job import Answers, Progress, Unit, run
from accredit.signals.passages import placed
from accredit.signals.reductions import BLOCK_BYTES, rows_at_a_time
from accredit.signals.request import SAMPLED, Context, Distributions, ProbeRequest, Want
from accredit.typing import Array

__all__ = ["View", "joint"]

_COPIES = 8  # of a piece of rows that a measure holds at once, in float64


@dataclass(frozen=True, slots=True)
class View:
    """A model in a context.

    Args:
        backend: shows whole distributions.
        context: what stands before the response.
    """

    backend: Distributions
    context: Context = SAMPLED


def joint(
    batch: Batch,
    views: Mapping[str, View],
    measures: Sequence[Measure],
    *,
    journal: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Batch:
    """Return the batch with one column a measure: moments or divergences of several distributions.

    Memory is that of one piece of rows a view, some 16 MiB in all. Rollouts that one of the contexts
    has nothing for are missing in the columns.

    Args:
        batch: rollouts with ids.
        views: model and context by role, e.g. ``student``, ``none``, ``pos``, ``neg``.
        measures: `FisherMoments`, `Divergence`.
        journal: file that keeps what was done, for a job that can be killed.
        resume: go on with what the journal holds.
        progress: called with tokens done, tokens in all, and the rate.

    Raises:
        ParamError: if a role is missing.
        DataError: if the views differ in temperature, dtype, back end or vocabulary.
    """
    roles = tuple(dict.fromkeys(role for measure in measures for role in measure.roles))
    missing = [role for role in roles if role not in views]
    if missing or not measures:
        raise ParamError(f"no view {', '.join(missing)}" if missing else "no measure is asked for")
    made = {role: _made(views[role]) for role in roles}
    for role in roles[1:]:
        require_alike(roles[0], made[roles[0]], role, made[role], allow=("weights", "model"))
    together = _together(batch, {role: views[role].context for role in roles})
    units = {key: _unit(key, views, group[0], measures) for key, group in together.items()}
    plan = {"probe": "joint", "views": made, "measures": [repr(measure) for measure in measures]}
    filler = Filler(batch)
    for key, arrays in run(list(units.values()), plan, journal=journal, resume=resume, progress=progress):
        for asks in together[key]:
            filler.add(asks[roles[0]], arrays)
    return filler.filled(
        {m.column: (m.column, {"probe": "joint", "views": made, "measure": repr(m)}) for m in measures}
    )


def _made(view: View) -> dict[str, Any]:
    context = {"context": view.context.name, **dict(view.context.describe or {})}
    return {**view.backend.provenance.to_dict(), **context}


def _together(batch: Batch, contexts: Mapping[str, Context]) -> dict[str, list[dict[str, ProbeRequest]]]:
    """Requests of all roles of each passage that every context has, by fingerprint."""
    by_role = {
        role: {tuple(s.step for s in r.spans): r for r in placed(batch, Want(), context).requests}
        for role, context in contexts.items()
    }
    first = next(iter(by_role.values()))
    found: dict[str, list[dict[str, ProbeRequest]]] = {}
    for steps in first:
        if all(steps in requests for requests in by_role.values()):
            asks = {role: requests[steps] for role, requests in by_role.items()}
            key = hashlib.sha256(" ".join(ask.place for ask in asks.values()).encode()).hexdigest()[:32]
            found.setdefault(key, []).append(asks)
    return found


def _unit(
    key: str, views: Mapping[str, View], asks: Mapping[str, ProbeRequest], measures: Sequence[Measure]
) -> Unit:
    def work() -> Answers:
        chosen = next(iter(asks.values()))
        ids = chosen.ids[chosen.positions]
        parts: dict[str, list[Array]] = {measure.column: [] for measure in measures}
        at = 0
        for rows in _streams(views, asks):
            n = len(next(iter(rows.values())))
            for measure in measures:
                parts[measure.column].append(measure.of(rows, ids[at : at + n]).astype(np.float32))
            at += n
        yield key, {name: np.concatenate(pieces) for name, pieces in parts.items() if pieces}

    return Unit((key,), sum(ask.ids.size for ask in asks.values()), work)


def _streams(views: Mapping[str, View], asks: Mapping[str, ProbeRequest]) -> Iterator[dict[str, Array]]:
    """Pieces of rows of all roles, side by side; identical views are computed once."""
    distinct: dict[tuple[int, str], list[str]] = {}
    for role, ask in asks.items():
        distinct.setdefault((id(views[role].backend), ask.place), []).append(role)
    widest = max(views[role].backend.vocabulary for role in asks)
    size = rows_at_a_time(widest, BLOCK_BYTES // (_COPIES * len(distinct)))
    streams = [(roles, views[roles[0]].backend.rows(asks[roles[0]], size)) for roles in distinct.values()]
    while True:
        pieces = [(roles, next(rows, None)) for roles, rows in streams]
        if any(piece is None for _, piece in pieces):
            return
        found = {role: piece for roles, piece in pieces for role in roles if piece is not None}
        if len({piece.shape for piece in found.values()}) > 1:
            raise BackendError(
                "the views have other vocabularies", code="ACC755", hint="Give models with the same tokenizer"
            )
        yield found
