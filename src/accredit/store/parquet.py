"""Batches as Parquet: one row a rollout, its steps a list of structs, so that any tool can read them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from accredit.data import Batch
from accredit.data.builder import MAX_TOKENS
from accredit.data.column import Column
from accredit.data.export import windows
from accredit.data.header import Header, header_of, parse_header
from accredit.data.layout import Layout, field_names
from accredit.data.parse import MAX_STEP_TOKENS
from accredit.data.ragged import offsets
from accredit.data.vocabulary import KNOWN_COLUMNS, STATUSES
from accredit.errors import DataError
from accredit.store.atomic import atomic_file
from accredit.store.columns import arrow_type, from_arrow, to_arrow, word_type, words_of
from accredit.store.encode import encode
from accredit.store.schema import ROLLOUTS, check_schema
from accredit.typing import Array, Ints

__all__ = ["KEY", "parquet_batches", "parquet_header", "write_parquet"]

KEY = b"accredit"
_GROUP_TOKENS = 1 << 20
_GROUP_STEPS = 1 << 15
_CONTEXT = {"context_token_C": "context_tokens", "context_reset_S": "context_reset", "row_S": "row"}


def write_parquet(batch: Batch, path: Path) -> None:
    """Write a batch, a bounded row group at a time (see `save_batch`)."""
    names = field_names(batch) | {c: f for c, f in _CONTEXT.items() if batch.has(c)}
    schema = _schema(batch, names)
    with atomic_file(path) as out, pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for first, last in windows(batch, _GROUP_TOKENS, _GROUP_STEPS):
            writer.write_table(_table(batch, names, schema, first, last))


def _schema(batch: Batch, names: Mapping[str, str]) -> Any:
    heads = [
        pa.field("id", pa.string(), nullable=False),
        pa.field("group", word_type(batch.group_names) or pa.string()),
    ]
    rewards, steps = [], [pa.field("n_tokens", pa.int64(), nullable=False)]
    for name, field in names.items():
        column = batch.columns[name]
        found = pa.field(field.removeprefix("rewards."), arrow_type(column))
        if column.level != "rollout":
            steps.append(found)
        elif field.startswith("rewards."):
            rewards.append(found)
        else:
            heads.append(found)
    if rewards:
        heads.append(pa.field("rewards", pa.struct(rewards)))
    heads.append(pa.field("steps", pa.list_(pa.struct(steps))))
    texts = [n for n in names if (w := batch.columns[n].words) is not None and word_type(w) is None]
    texts += [] if word_type(batch.group_names) else ["group"]
    return pa.schema(heads, {KEY: encode(header_of(batch) | {"json_words": texts})})


def _table(batch: Batch, names: Mapping[str, str], schema: Any, first: int, last: int) -> Any:
    groups = Column("rollout", batch.group_R, None, batch.group_names)
    found = {"id": pa.array(batch.ids[first:last], pa.string()), "group": to_arrow(groups, first, last)}
    rewards: dict[str, Any] = {}
    for name, field in names.items():
        column = batch.columns[name]
        if column.level == "rollout":
            inside = field.startswith("rewards.")
            target = rewards if inside else found
            target[field.removeprefix("rewards.")] = to_arrow(column, first, last)
    if rewards:
        found["rewards"] = pa.StructArray.from_arrays(list(rewards.values()), list(rewards))
    found["steps"] = _steps(batch, names, first, last)
    return pa.table([found[name] for name in schema.names], schema=schema)


def _steps(batch: Batch, names: Mapping[str, str], first: int, last: int) -> Any:
    start = batch.step_start_R1[first : last + 1]
    low, high = int(start[0]), int(start[-1])
    fields = {"n_tokens": pa.array(np.diff(batch.token_start_S1[low : high + 1]))}
    for name, field in names.items():
        column = batch.columns[name]
        if column.level != "rollout":
            fields[field] = to_arrow(column, low, high, _starts(batch, column))
    struct = pa.StructArray.from_arrays(list(fields.values()), list(fields))
    return pa.ListArray.from_arrays(pa.array((start - low).astype(np.int32)), struct)


def _starts(batch: Batch, column: Column) -> Ints | None:
    if column.level == "token":
        return batch.token_start_S1
    return batch.context_start_S1 if column.level == "context" else None


# -- reading ------------------------------------------------------------------------------------


def parquet_header(file: Any, where: str) -> tuple[Header, frozenset[str]]:
    """Return the header of a Parquet file that accredit wrote, and its columns of JSON words.

    Raises:
        VersionError: if it has a newer schema.
        DataError: if it has another schema.
    """
    try:
        fields = json.loads((file.schema_arrow.metadata or {})[KEY])
        texts = frozenset(map(str, fields.get("json_words", ())))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unfit(where, error) from error
    check_schema(fields.get("schema"), ROLLOUTS, where)
    return parse_header(fields), texts


def parquet_batches(path: Path) -> Iterator[Batch]:
    """Yield the batch of each row group of a Parquet file that accredit wrote (one, if it is empty).

    The first one has the findings and exclusions of the whole source.

    Raises:
        VersionError: if it has a newer schema.
        DataError: if its content is not what its header says.
    """
    where = str(path)
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            header, texts = parquet_header(file, where)
            for i in range(max(1, file.num_row_groups)):
                table = file.read_row_group(i) if file.num_row_groups else file.schema_arrow.empty_table()
                batch = _batch(table.combine_chunks(), header, texts)
                yield batch if i else batch.annotated(header.findings, header.excluded)
    except (pa.ArrowException, ValueError, KeyError, TypeError, OSError, IndexError, OverflowError) as error:
        if isinstance(error, DataError):
            raise
        raise _unfit(where, error) from error


def _unfit(where: str, error: Exception) -> DataError:
    return DataError(
        f"the Parquet file does not hold what its header says: {type(error).__name__}: {str(error)[:200]}",
        code="ACC915",
        where=where,
        hint="Write it again with `accredit convert` or `save_batch`",
    )


def _batch(table: Any, header: Header, texts: frozenset[str]) -> Batch:
    ids = table["id"].to_pylist()
    if any(not isinstance(name, str) or not name for name in ids) or len(set(ids)) < len(ids):
        raise ValueError("ids are missing or not unique")
    lists = _only(table["steps"])
    step_start = _list_offsets(lists)
    steps = lists.flatten()
    counts = np.asarray(steps.field("n_tokens"), np.int64)
    if counts.size and counts.min() < 0:
        raise ValueError("n_tokens is negative")
    if counts.max(initial=0) > MAX_STEP_TOKENS or counts.sum() > MAX_TOKENS:
        raise ValueError(f"n_tokens passes {MAX_STEP_TOKENS} in a step or {MAX_TOKENS} in all")
    context = _context_counts(steps)
    columns = {}
    for layout in header.layouts:
        array = _array(table, steps, layout)
        sizes = {"token": counts, "context": context}.get(layout.level)
        column = from_arrow(array, layout, sizes)
        columns[layout.column] = _checked(layout, _spoken(column, layout.column in texts))
    group_R, group_names = words_of(_only(table["group"]))
    groups = _spoken(Column("rollout", group_R, None, group_names), "group" in texts)
    return Batch(
        tuple(ids),
        groups.values,
        groups.words or (),
        step_start,
        offsets(counts),
        columns,
        context_start_S1=None if context is None else offsets(context),
        outcome_in_steps=header.outcome_in_steps,
        provenance=dict(header.provenance),
    )


def _only(chunked: Any) -> Any:
    """Return the one chunk of a column (an empty array where it has none)."""
    if chunked.num_chunks == 1:
        return chunked.chunk(0)
    return pa.concat_arrays(chunked.chunks) if chunked.num_chunks else pa.array([], chunked.type)


def _list_offsets(lists: Any) -> Ints:
    if lists.null_count:
        raise ValueError("steps are null")
    counts = np.asarray(pc.list_value_length(lists), np.int64)
    return offsets(counts)


def _context_counts(steps: Any) -> Ints | None:
    names = {steps.type.field(i).name for i in range(steps.type.num_fields)}
    if "context_tokens" not in names:
        return None
    lengths = pc.list_value_length(steps.field("context_tokens"))
    return np.asarray(pc.fill_null(lengths, 0), np.int64)


def _array(table: Any, steps: Any, layout: Layout) -> Any:
    field = _CONTEXT.get(layout.column, layout.field)
    if layout.level != "rollout":
        return steps.field(field)
    if field.startswith("rewards."):
        return _only(table["rewards"]).field(field.removeprefix("rewards."))
    return _only(table[field])


def _spoken(column: Column, as_text: bool) -> Column:
    """Return a column of JSON texts as the words that they spell."""
    if not as_text or column.words is None:
        return column
    words = tuple(json.loads(str(w)) if w else "" for w in column.words)
    if not {type(w) for w in words} <= {str, int, float, bool}:
        raise ValueError("a word is not a JSON scalar")
    return Column(column.level, column.values, column.valid, words, column.provenance)


_KINDS = {"number": "number", "tokens": "number", "signal": "number", "json": "json"}
_KINDS |= {"vector": "vector", "vectors": "vector", "signals": "none of its own"}


def _checked(layout: Layout, column: Column) -> Column:
    """Refuse a known column of another kind than the vocabulary's: methods rely on it."""
    field = KNOWN_COLUMNS.get(layout.column)
    if field is None:
        return column
    ragged = field.kind == "vector" and layout.kind == "json"
    if _KINDS.get(field.kind, "word") != layout.kind and not ragged:
        raise ValueError(f"{layout.field} is of kind {layout.kind}, not {field.kind}")
    if layout.column == "status_R" and not _used(column) <= set(STATUSES):
        raise ValueError(f"status is not one of {', '.join(STATUSES)}")
    return column


def _used(column: Column) -> set[Any]:
    codes: Array = np.unique(column.values[column.mask(column.values.size)])
    return {(column.words or ())[c] for c in codes.tolist()}
