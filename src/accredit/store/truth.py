"""Truth on disk: what the credit of a step should be, where it is known, to compare methods with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from accredit.data import Batch, Column
from accredit.errors import DataError
from accredit.store.atomic import atomic_file
from accredit.store.encode import encode
from accredit.store.kinds import file_kind, lines_file
from accredit.store.limits import Limits
from accredit.store.lines import is_header, read_objects
from accredit.store.parquet import KEY
from accredit.store.schema import TRUTH, check_schema
from accredit.typing import BoolArray, Floats

__all__ = ["NUMBERS", "Truth", "read_truth", "save_truth"]

NUMBERS = ("value", "q", "advantage", "se")


class _Row(msgspec.Struct):
    rollout: str
    step: int
    value: float | None = None
    q: float | None = None
    advantage: float | None = None
    se: float | None = None
    n: int | None = None
    source: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """True numbers of steps, one row a step; any of them may be unknown.

    Args:
        rollout: rollout id of each row.
        step: 0-based step of each row.
        numbers: ``value`` V of the state before the step, ``q`` of the state and action,
            ``advantage`` q - value, ``se`` its standard error, in reward units; 0 where unknown.
        known: which are known, by the same names.
        n: continuations behind each row; 0 for exact ones.
        source: ``exact``, ``monte_carlo`` or another word, of each row.
        header: what else the file says.
    """

    rollout: tuple[str, ...]
    step: tuple[int, ...]
    numbers: Mapping[str, Floats]
    known: Mapping[str, BoolArray]
    n: tuple[int, ...]
    source: tuple[str, ...]
    header: Mapping[str, Any]

    def column(self, batch: Batch, which: str = "advantage") -> Column:
        """Return one of the numbers as a step column of a batch, valid where it is known.

        Args:
            batch: the rollouts; rows of rollouts that it lacks are left out.
            which: value, q, advantage or se.

        Raises:
            DataError: if a row names a step that its rollout does not have.
        """
        values, valid = np.zeros(batch.n_steps), np.zeros(batch.n_steps, bool)
        for i in np.flatnonzero(self.known[which]).tolist():
            r = batch.rollout_of.get(self.rollout[i])
            if r is None:
                continue
            steps = batch.steps_of(r)
            if not 0 <= self.step[i] < len(steps):
                name = self.rollout[i]
                raise DataError(
                    f"truth speaks of step {self.step[i]} of rollout {name!r}, which has {len(steps)}",
                    code="ACC915",
                    hint="Give the truth of these rollouts, steps counted from 0",
                )
            values[steps[self.step[i]]], valid[steps[self.step[i]]] = self.numbers[which][i], True
        return Column("step", values, None if valid.all() else valid, None, {"truth": True})


def read_truth(path: str | Path, *, limits: Limits | None = None) -> Truth:
    """Return the rows of a truth file (schema ``accredit.truth/1``).

    Args:
        path: JSON Lines (one object a step, a header first if there is one) or Parquet.
        limits: bounds of the reading.

    Raises:
        VersionError: if it has a newer schema.
        DataError: naming the line and field that is wrong, or a step given twice.
    """
    where = Path(path)
    header: Mapping[str, Any] = {}
    rows: list[_Row] = []
    seen: set[tuple[str, int]] = set()
    for place, fields in _objects(where, limits or Limits()):
        if not rows and not header and is_header(fields):
            header = fields
            continue
        row = _row(fields, place)
        if (row.rollout, row.step) in seen:
            raise DataError(
                f"step {row.step} of rollout {row.rollout!r} is given twice", code="ACC915", where=place
            )
        seen.add((row.rollout, row.step))
        rows.append(row)
    known = {name: np.array([getattr(r, name) is not None for r in rows], bool) for name in NUMBERS}
    numbers = {name: np.array([getattr(r, name) or 0.0 for r in rows], np.float64) for name in NUMBERS}
    return Truth(
        tuple(r.rollout for r in rows),
        tuple(r.step for r in rows),
        numbers,
        known,
        tuple(r.n or 0 for r in rows),
        tuple(r.source for r in rows),
        header,
    )


def _objects(path: Path, limits: Limits) -> Any:
    try:
        with path.open("rb") as raw:
            if raw.read(4) != b"PAR1":
                return read_objects(path, TRUTH, limits)
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read: {error}", code="ACC901", where=str(path)) from error
    header = msgspec.json.decode((table.schema.metadata or {}).get(KEY, b"{}"))
    check_schema(header.get("schema"), TRUTH, str(path))
    rows = ((f"{path.name} row {i}", row) for i, row in enumerate(table.to_pylist()))
    return [(str(path), header), *rows]


def _row(fields: Mapping[str, Any], place: str) -> _Row:
    try:
        row = msgspec.convert(fields, _Row)
    except msgspec.ValidationError as error:
        raise DataError(
            f"not a row of {TRUTH}: {error}",
            code="ACC915",
            where=place,
            hint="Give rollout, step, and any of value, q, advantage, se, n, source",
        ) from error
    wrong = row.step < 0 or (row.n or 0) < 0 or (row.se or 0) < 0
    if wrong or not all(np.isfinite(getattr(row, name) or 0.0) for name in NUMBERS):
        raise DataError(
            f"step {row.step} of rollout {row.rollout!r} has a number that cannot be",
            code="ACC915",
            where=place,
            hint="step, n and se are 0 or more; unknown numbers are null",
        )
    return row


def save_truth(truth: Truth, path: str | Path) -> Path:
    """Write truth (schema ``accredit.truth/1``); the file appears whole or not at all.

    Args:
        truth: one row a step.
        path: ends in ``.parquet``, ``.jsonl``, ``.jsonl.gz`` or ``.jsonl.zst``.

    Raises:
        StoreError: if it cannot be written.
    """
    target = Path(path)
    header = {**truth.header, "schema": TRUTH}
    rows = list(map(_fields, *_listed(truth)))
    if file_kind(target) == "parquet":
        number = pa.float64()
        fields = [("rollout", pa.string()), ("step", pa.int64()), *((name, number) for name in NUMBERS)]
        schema = pa.schema([*fields, ("n", pa.int64()), ("source", pa.string())], {KEY: encode(header)})
        with atomic_file(target) as out:
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), out)
        return target
    with lines_file(target) as out:
        for row in (header, *rows):
            out.write(encode({k: v for k, v in row.items() if v is not None}) + b"\n")
    return target


def _listed(truth: Truth) -> list[list[Any]]:
    shown = [
        [v if ok else None for v, ok in zip(truth.numbers[k].tolist(), truth.known[k].tolist(), strict=True)]
        for k in NUMBERS
    ]
    return [list(truth.rollout), list(truth.step), *shown, list(truth.n), list(truth.source)]


def _fields(*values: Any) -> dict[str, Any]:
    return dict(zip(("rollout", "step", *NUMBERS, "n", "source"), values, strict=True))
