"""One rollout given as several records (turns, segments, sub-agents): joined, counted once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accredit.data.batch import Batch
from accredit.data.column import Column
from accredit.data.finding import Finding
from accredit.data.log import FindingLog
from accredit.data.sinks import WordSink
from accredit.typing import Ints, Scalar

__all__ = ["join_rows"]


def join_rows(batch: Batch, rows: Sequence[Scalar | None], log: FindingLog) -> Batch:
    """Return the batch with all records of one id as one rollout, steps in order of `row`.

    A rollout-level field is taken from the first record that has it; records that disagree on the
    reward are a finding.

    Args:
        batch: one rollout a record (ids may repeat).
        rows: the records' `row` labels ``[R]``, None where there was none.
        log: takes the findings.
    """
    if all(row is None for row in rows):
        return batch
    batch = _with_row_column(batch, rows)
    decided = batch._outcome_in_steps  # never decided on parts of rollouts: `take` would
    first: dict[str, int] = {}
    for r, name in enumerate(batch.ids):
        first.setdefault(name, r)
    order = sorted(range(len(batch)), key=lambda r: (first[batch.ids[r]], _rank(rows[r]), r))
    owner = np.array([first[batch.ids[r]] for r in order], np.int64)
    heads = np.flatnonzero(np.concatenate([[True], owner[1:] != owner[:-1]]))
    ordered = batch.take(np.array(order, np.int64))
    if heads.size < len(batch):
        _report(ordered, heads, log)
    starts = np.concatenate([heads, [len(batch)]])
    columns = {
        name: _first_present(c, starts) if c.level == "rollout" else c for name, c in ordered.columns.items()
    }
    return Batch(
        ids=tuple(ordered.ids[h] for h in heads),
        group_R=ordered.group_R[heads],
        group_names=ordered.group_names,
        step_start_R1=ordered.step_start_R1[starts],
        token_start_S1=ordered.token_start_S1,
        columns=columns,
        context_start_S1=ordered.context_start_S1,
        outcome_in_steps=decided,
        provenance=ordered.provenance,
    )


def _rank(row: Scalar | None) -> tuple[int, float, str]:
    """Sort numbers by value, then strings; records without a row keep their place."""
    if row is None or isinstance(row, str):
        return (1, 0.0, row or "")
    return (0, float(row), "")


def _with_row_column(batch: Batch, rows: Sequence[Scalar | None]) -> Batch:
    sink = WordSink()
    for r, row in enumerate(rows):
        if row is not None:
            steps = batch.steps_of(r)
            sink.add(steps, [row] * len(steps))
    columns = {**batch.columns, "row_S": sink.column("step", batch.n_steps)}
    return batch._replace(columns=columns)


def _first_present(column: Column, starts: Ints) -> Column:
    present = column.mask(column.values.shape[0])
    there = np.flatnonzero(present)
    at = np.searchsorted(there, starts[:-1])
    found = np.append(there, 0)[np.minimum(at, there.size)]
    valid = (at < there.size) & (found < starts[1:])
    pick = np.where(valid, found, starts[:-1])
    return Column(
        "rollout",
        column.values[pick],
        None if valid.all() else valid,
        column.words,
        column.provenance,
    )


def _report(batch: Batch, heads: Ints, log: FindingLog) -> None:
    sizes = np.diff(np.append(heads, len(batch)))
    several = int((sizes > 1).sum())
    log.put(
        Finding(
            "ACC106",
            "info",
            f"{several} rollouts are given as several records (largest: {int(sizes.max())}); "
            "each is joined and counts once",
            count=several,
        )
    )
    if not batch.has("reward_R"):
        return
    column = batch.column("reward_R")
    owner = np.repeat(np.arange(heads.size), sizes)
    scored = column.mask(len(batch))
    low = np.full(heads.size, np.inf)
    high = np.full(heads.size, -np.inf)
    np.minimum.at(low, owner[scored], column.values[scored])
    np.maximum.at(high, owner[scored], column.values[scored])
    for i in np.flatnonzero(high - low > 1e-9).tolist():
        log.add(
            "ACC107",
            "error",
            f"records of rollout {batch.ids[heads[i]]!r} disagree on its reward: "
            f"{low[i]:.6g} to {high[i]:.6g}; the first is used",
            where=batch.ids[heads[i]],
            hint="Repeat one outcome in every record, and put turn rewards into steps[].reward",
        )
