"""Credit on disk: one row a step, and everything needed to know where the numbers come from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from accredit.data import Credit
from accredit.data.column import Column
from accredit.data.ragged import offsets
from accredit.errors import DataError
from accredit.store.atomic import atomic_file
from accredit.store.columns import to_arrow, word_type
from accredit.store.encode import encode
from accredit.store.kinds import file_kind, lines_file
from accredit.store.limits import Limits
from accredit.store.lines import is_header, read_objects
from accredit.store.parquet import KEY
from accredit.store.schema import CREDIT, check_schema
from accredit.typing import Array, Floats, Ints, Scalar

__all__ = ["SavedCredit", "read_credit", "save_credit"]

_ROWS_AT_ONCE = 1 << 15
_GIVE = "Give a file that `credit.save` wrote"


@dataclass(frozen=True, slots=True, eq=False)
class SavedCredit:
    """Credit read back from a file.

    Args:
        header: method, params, card, versions, input hash, exclusions, findings, coverage …
        rollout_S: rollout id of each step.
        group_S: group of each step.
        row_S: label of the record that the step came in, None where there was one record.
        step_S: 0-based step within the rollout ``[S]``.
        steps: credit ``[S]``, float64.
        tokens: advantages ``[T]``, float64.
        token_start_S1: offsets of each step's tokens.
        parts: named addends ``[S]``, or ``[T]`` where the method yields one number a token.
    """

    header: Mapping[str, Any]
    rollout_S: tuple[str, ...]
    group_S: tuple[Scalar, ...]
    row_S: tuple[Scalar | None, ...]
    step_S: Ints
    steps: Floats
    tokens: Floats
    token_start_S1: Ints
    parts: Mapping[str, Floats]

    @property
    def method(self) -> str:
        """The method's id."""
        return str(self.header.get("method", ""))

    @property
    def params(self) -> Mapping[str, Any]:
        """Every parameter that was in force."""
        found = self.header.get("params")
        return found if isinstance(found, Mapping) else {}

    def by_rollout(self) -> dict[str, Floats]:
        """Return each rollout's step credit, in the file's order."""
        cuts = [i for i in range(1, len(self.rollout_S)) if self.rollout_S[i] != self.rollout_S[i - 1]]
        bounds = [0, *cuts, len(self.rollout_S)] if self.rollout_S else [0]
        return {self.rollout_S[a]: self.steps[a:b] for a, b in pairwise(bounds)}


def save_credit(credit: Credit, path: str | Path) -> Path:
    """Write credit (schema ``accredit.credit/1``); the file appears whole or not at all.

    Args:
        credit: from `assign`.
        path: ends in ``.parquet``, ``.jsonl``, ``.jsonl.gz`` or ``.jsonl.zst``.

    Returns:
        The path.

    Raises:
        StoreError: if the file cannot be written or its kind is not known.
    """
    target = Path(path)
    header = credit_header(credit)
    if file_kind(target) == "parquet":
        schema = _schema(credit, header)
        with atomic_file(target) as out, pq.ParquetWriter(out, schema, compression="zstd") as writer:
            for table in _tables(credit, schema):
                writer.write_table(table)
        return target
    with lines_file(target) as out:
        out.write(encode(header) + b"\n")
        for table in _tables(credit, _schema(credit, header)):
            for row in table.to_pylist():
                spelled = {
                    k: msgspec.Raw(row[k].encode()) for k in header["json_words"] if row[k] is not None
                }
                out.write(encode({k: v for k, v in (row | spelled).items() if v is not None}) + b"\n")
    return target


def credit_header(credit: Credit) -> dict[str, Any]:
    """Return what a credit file says about its numbers, JSON-ready."""
    batch = credit.batch
    return {
        "schema": CREDIT,
        "method": credit.method,
        "params": dict(credit.params),
        "card": credit.card.to_dict(),
        "versions": {k: v for k, v in credit.provenance.items() if isinstance(v, str)},
        "provenance": credit.provenance,
        "input_hash": batch.batch_hash,
        "rows": batch.n_steps if _has_steps(credit) else 0,
        "rollouts": {"read": len(batch) + len(batch.excluded), "used": len(batch), "steps": batch.n_steps},
        "excluded": [e.to_dict() for e in batch.excluded],
        "uncounted": {reason: list(ids) for reason, ids in credit.uncounted.items()},
        "findings": [f.to_dict() for f in (*batch.findings, *credit.findings)],
        "fallbacks": credit.fallbacks,
        "coverage": credit.coverage,
        "unused": list(credit.result.unused),
        "json_words": _texts(credit),
        "table": None if credit.table is None else _listed(credit.table),
    }


def _texts(credit: Credit) -> list[str]:
    """Return the columns whose values are of several types, and so written as their JSON text."""
    row = credit.batch.columns.get("row_S")
    words = {"group": credit.batch.group_names, "row": row.words or () if row else ()}
    return [name for name, found in words.items() if word_type(found) is None]


def _listed(table: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in table.items()}


def _has_steps(credit: Credit) -> bool:
    return credit.steps.shape == (credit.batch.n_steps,) and credit.card.yields != "table"


def _schema(credit: Credit, header: Mapping[str, Any]) -> Any:
    group = word_type(credit.batch.group_names) or pa.string()
    row = credit.batch.columns.get("row_S")
    fields = [("rollout", pa.string()), ("group", group), ("step", pa.int64())]
    if row is not None:
        fields.append(("row", word_type(row.words or ()) or pa.string()))
    fields += [("credit", pa.float64()), ("advantages", pa.list_(pa.float64()))]
    if credit.parts:
        per_token = credit.card.yields == "token"
        value = pa.list_(pa.float64()) if per_token else pa.float64()
        fields.append(("parts", pa.struct([(name, value) for name in credit.parts])))
    return pa.schema(fields, {KEY: encode(header)})


def _tables(credit: Credit, schema: Any) -> Iterator[Any]:
    batch = credit.batch
    if not _has_steps(credit):
        return
    rollout_S = np.repeat(np.arange(len(batch)), np.diff(batch.step_start_R1))
    step_S = np.arange(batch.n_steps) - np.repeat(batch.step_start_R1[:-1], np.diff(batch.step_start_R1))
    groups = Column("step", batch.group_R[rollout_S], None, batch.group_names)
    ids = pa.array(batch.ids, pa.string())
    for first in range(0, batch.n_steps, _ROWS_AT_ONCE):
        last = min(first + _ROWS_AT_ONCE, batch.n_steps)
        found = {
            "rollout": ids.take(pa.array(rollout_S[first:last])),
            "group": to_arrow(groups, first, last),
            "step": pa.array(step_S[first:last]),
            "credit": pa.array(credit.steps[first:last]),
            "advantages": _per_token(credit.tokens, batch.token_start_S1, first, last),
        }
        if batch.has("row_S"):
            found["row"] = to_arrow(batch.columns["row_S"], first, last)
        if credit.parts:
            found["parts"] = _parts(credit, first, last)
        yield pa.table([found[name] for name in schema.names], schema=schema)


def _per_token(values: Array, start: Ints, first: int, last: int) -> Any:
    low, high = int(start[first]), int(start[last])
    cuts = pa.array((start[first : last + 1] - low).astype(np.int32))
    return pa.ListArray.from_arrays(cuts, pa.array(np.asarray(values[low:high], np.float64)))


def _parts(credit: Credit, first: int, last: int) -> Any:
    start = credit.batch.token_start_S1
    per_token = credit.card.yields == "token"
    arrays = [
        _per_token(v, start, first, last) if per_token else pa.array(np.asarray(v[first:last], np.float64))
        for v in credit.parts.values()
    ]
    return pa.StructArray.from_arrays(arrays, list(credit.parts))


# -- reading ------------------------------------------------------------------------------------


def read_credit(path: str | Path, *, limits: Limits | None = None) -> SavedCredit:
    """Return the credit that `save_credit` wrote.

    Args:
        path: a Parquet or JSON Lines file.
        limits: bounds of the reading.

    Raises:
        VersionError: if it has a newer schema.
        DataError: if it is not such a file.
    """
    where = Path(path)
    try:
        with where.open("rb") as raw:
            parquet = raw.read(4) == b"PAR1"
        return _read_parquet(where) if parquet else _read_lines(where, limits or Limits())
    except (pa.ArrowException, ValueError, KeyError, TypeError, OverflowError, FileNotFoundError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{where.name} is not a credit file: {type(error).__name__}: {str(error)[:200]}",
            code="ACC915",
            where=str(where),
            hint=_GIVE,
        ) from error


def _read_parquet(path: Path) -> SavedCredit:
    table = pq.read_table(path)
    header = json.loads((table.schema.metadata or {}).get(KEY, b"{}"))
    _check_kind(header, header | dict.fromkeys(table.column_names), path)
    _check_rows(header, table.num_rows, path)
    advantages = table["advantages"].combine_chunks()
    parts: dict[str, Floats] = {}
    if "parts" in table.column_names:
        struct = table["parts"].combine_chunks()
        parts = {f.name: _numbers(struct.field(f.name)) for f in struct.type}
    texts = header.get("json_words", ())
    row = _scalars(table, "row", texts) if "row" in table.column_names else [None] * table.num_rows
    return SavedCredit(
        header,
        tuple(table["rollout"].to_pylist()),
        tuple(_scalars(table, "group", texts)),
        tuple(row),
        table["step"].to_numpy(),
        table["credit"].to_numpy(),
        _numbers(advantages),
        offsets(np.asarray(pc.list_value_length(advantages), np.int64)),
        parts,
    )


def _scalars(table: Any, name: str, texts: Any) -> list[Any]:
    found: list[Any] = table[name].to_pylist()
    return [v if v is None else json.loads(v) for v in found] if name in texts else found


def _numbers(array: Any) -> Floats:
    flat = array.flatten() if pa.types.is_list(array.type) else array
    found = np.asarray(flat, np.float64)
    if not np.isfinite(found).all():
        raise ValueError("a number is missing or not finite")
    return found


def _read_lines(path: Path, limits: Limits) -> SavedCredit:
    objects = read_objects(path, CREDIT, limits)
    _, header = next(objects, ("", None))
    if header is None:
        raise DataError(f"{path.name} is empty", code="ACC902", where=str(path), hint=_GIVE)
    if not is_header(header):
        _check_kind({}, header, path)
    rows = [msgspec.convert(row, _Row) for _, row in objects]
    _check_rows(header, len(rows), path)
    names = tuple(rows[0].parts) if rows else ()
    return SavedCredit(
        header,
        tuple(r.rollout for r in rows),
        tuple(r.group for r in rows),
        tuple(r.row for r in rows),
        np.array([r.step for r in rows], np.int64),
        np.array([r.credit for r in rows], np.float64),
        np.array([v for r in rows for v in r.advantages], np.float64),
        offsets(np.array([len(r.advantages) for r in rows], np.int64)),
        {name: _joined([r.parts[name] for r in rows]) for name in names},
    )


def _check_kind(header: Mapping[str, Any], first: Mapping[str, Any], path: Path) -> None:
    """Say what a file is that has no header of credit; ``first`` has the keys of its first row."""
    if "schema" in header:
        check_schema(header["schema"], CREDIT, str(path))
        return
    what = "holds rollouts, not credit" if "steps" in first else "has no header of credit"
    raise DataError(f"{path.name} {what}", code="ACC915", where=str(path), hint=_GIVE)


def _check_rows(header: Mapping[str, Any], rows: int, path: Path) -> None:
    """Refuse a file that was cut between two rows: nothing else in it shows that."""
    wanted = header.get("rows", rows)  # files of early releases do not tell
    if wanted != rows:
        raise DataError(
            f"{path.name} holds {rows:,} of {wanted:,} steps",
            code="ACC915",
            where=str(path),
            hint="Copy or write the file again",
        )


class _Row(msgspec.Struct):
    rollout: str
    step: int
    credit: float
    group: str | int | float | bool
    advantages: list[float] = []
    row: str | int | float | bool | None = None
    parts: dict[str, float | list[float]] = {}


def _joined(values: list[Any]) -> Floats:
    flat = [v for value in values for v in (value if isinstance(value, list) else [value])]
    return np.array(flat, np.float64)
