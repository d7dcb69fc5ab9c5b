"""From filled sinks to columns: the level of extra signals, declared kinds, numbers that are not finite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from accredit.data.column import Column, axis_of, level_of
from accredit.data.finding import Finding
from accredit.data.layout import Layout
from accredit.data.log import FindingLog
from accredit.data.ragged import offsets, spans
from accredit.data.sinks import JsonSink, ListSink, NumberSink, Sink, VectorSink, WordSink, as_json
from accredit.data.vocabulary import ROLLOUT_FIELDS, Field, step_field
from accredit.typing import Array, Ints, Level

__all__ = ["Settler"]

Sinks = Mapping[str, Sink]
# A header may promise wide vectors without giving one: no memory for a promise.
_MAX_VECTOR = 1 << 27


class Settler:
    """Makes the columns of sinks that hold all values of a source.

    Args:
        declared: layouts that the source's header gives, for columns that it had when written.
        counts: policy tokens of each step ``[S]``.
        context: added context tokens of each step ``[S]``.
        log: takes findings about values that are left out.
    """

    def __init__(self, declared: Iterable[Layout], counts: Ints, context: Ints, log: FindingLog) -> None:
        self.counts = counts
        self.context = context
        self.log = log
        self._declared = {(d.level == "rollout", d.field): d for d in declared}

    def rollout_columns(self, sinks: Sinks, size: int) -> dict[str, Column]:
        """Return the columns of rollout fields, by column name."""
        found: dict[str, Column] = {}
        for name, sink in sinks.items():
            declared = self._declared.get((True, name))
            field = ROLLOUT_FIELDS.get(name)
            if declared is not None and (field is None or field.column != declared.column):
                found[declared.column] = self._as_declared(declared, sink, size)
                continue
            plain = as_json(sink) if isinstance(sink, ListSink) else sink
            column = self._only_finite(name, plain.column("rollout", size))
            found[field.column if field else f"{name}_R"] = _made(column, declared)
        return found

    def step_columns(self, sinks: Sinks) -> dict[str, Column]:
        """Return the columns of step fields, by column name."""
        found: dict[str, Column] = {}
        for name, sink in sinks.items():
            declared = self._declared.get((False, name))
            field = step_field(name)
            if declared is not None and (field is None or field.column != declared.column):
                column = self._as_declared(declared, sink, self.counts.size)
                found[_free_name(found, declared.column, name, column.level)] = column
                continue
            column = self._step_column(sink, field, declared)
            wanted = field.column if field else ""
            checked = self._only_finite(name, column)
            found[_free_name(found, wanted, name, column.level)] = _made(checked, declared)
        return found

    def _step_column(self, sink: Sink, field: Field | None, declared: Layout | None) -> Column:
        kind = field.kind if field else None
        promised = declared.width if declared else 0
        if isinstance(sink, VectorSink):
            return self._token_vectors(sink, declared)
        if kind == "vector" and isinstance(sink, ListSink) and not sink.items()[0].size:
            width = promised if promised * self.counts.size <= _MAX_VECTOR else 0
            return sink.vector_column("step", self.counts.size, width)
        if not isinstance(sink, ListSink):
            return sink.column("step", self.counts.size)
        if kind in ("tokens", "signal"):
            return sink.token_column(self.counts)
        lengths = sink.lengths(self.counts.size)
        there = lengths >= 0
        if kind is None and np.array_equal(lengths[there], self.counts[there]):
            return sink.token_column(self.counts, dtype=np.float32)
        widths = np.unique(lengths[there])
        if widths.size == 1:
            return sink.vector_column("step", self.counts.size, int(widths[0]))
        return as_json(sink).column("step", self.counts.size)

    def _token_vectors(self, sink: VectorSink, declared: Layout | None) -> Column:
        """Return the vectors of tokens; JSON of steps if there is not one vector a token."""
        lengths = sink.lengths(self.counts.size)
        there = lengths >= 0
        if not np.array_equal(lengths[there], self.counts[there]):
            return as_json(sink).column("step", self.counts.size)
        promised = declared.width if declared else 0
        if sink.width is None and promised * int(self.counts.sum()) <= _MAX_VECTOR:
            sink.width = promised
        half = sink.dtype == np.float16 and sink.width is not None and lengths.max(initial=0) > 0
        column = sink.token_column(self.counts, dtype=np.float16 if half else np.float32)
        if declared is None or declared.dtype != "float16":
            return column
        return Column("token", _halved(column.values), column.valid)

    # -- declared columns -------------------------------------------------------------------

    def _as_declared(self, layout: Layout, sink: Sink, size: int) -> Column:
        """Return the column in its declared kind; as plain JSON if the values do not fit it."""
        try:
            if layout.level in ("token", "context"):
                counts = self.counts if layout.level == "token" else self.context
                column = _ragged(layout, sink, counts)
            else:
                column = _flat(layout, sink, size)
        except (ValueError, TypeError, OverflowError):
            level: Level = "rollout" if layout.level == "rollout" else "step"
            return as_json(sink).column(level, size)
        return _made(self._only_finite(layout.field, column), layout)

    # -- numbers that are not finite --------------------------------------------------------

    def _only_finite(self, name: str, column: Column) -> Column:
        """Return a column without the rows that hold NaN or infinity."""
        if column.values.dtype.kind != "f":
            return column
        bad = ~np.isfinite(column.values)
        if not bad.any():
            return column
        if column.level in ("token", "context"):
            counts = self.counts if column.level == "token" else self.context
            row = np.repeat(np.arange(counts.size), counts)
            broken = np.zeros(counts.size, bool)
            broken[row[bad if bad.ndim == 1 else bad.any(axis=1)]] = True
            values = column.values.copy()
            values[broken[row]] = 0
        else:
            broken = np.asarray(bad if bad.ndim == 1 else bad.any(axis=1))
            values = column.values.copy()
            values[broken] = 0
        self._report(name, int(broken.sum()), column.level)
        valid = column.mask(broken.size) & ~broken
        return Column(column.level, values, valid, None, column.provenance)

    def _report(self, name: str, count: int, level: Level) -> None:
        unit = "rollouts" if level == "rollout" else "steps"
        self.log.put(
            Finding(
                "ACC306",
                "warning",
                f"{name!r} is NaN or infinite in {count} {unit} and counts as absent there",
                where=f"signal {name!r}",
                hint=f"Write null, or leave {name!r} out, where a number is not known",
                count=count,
            )
        )


def _free_name(taken: Mapping[str, Column], wanted: str, field: str, level: Level) -> str:
    """Return the column's wanted name, or one of the field's where the values are of another level."""
    name = wanted if wanted and level_of(wanted) == level else f"{field}_{axis_of(level)}"
    while name in taken:
        field += "_"
        name = f"{field}_{axis_of(level)}"
    return name


def _halved(values: Array) -> Array:
    """Return the values as float16 if it holds each of them exactly, else as they are."""
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    return half if np.array_equal(half, values) else values


def _made(column: Column, layout: Layout | None) -> Column:
    if layout is None or not layout.provenance:
        return column
    return Column(column.level, column.values, column.valid, column.words, layout.provenance)


def _flat(layout: Layout, sink: Sink, size: int) -> Column:
    level: Level = "rollout" if layout.level == "rollout" else "step"
    rows, values = sink.items()
    if layout.kind == "word":
        if isinstance(sink, WordSink):
            return sink.column(level, size)
        words = WordSink()
        if not words.add(rows.tolist(), values):
            raise TypeError(layout.field)
        return words.column(level, size)
    if layout.kind == "json":
        return as_json(sink).column(level, size)
    if layout.kind == "number" and isinstance(sink, NumberSink) and layout.dtype == "float64":
        return sink.column(level, size)
    shape = (size, layout.width) if layout.kind == "vector" else (size,)
    if size * layout.width > _MAX_VECTOR and not rows.size:
        raise ValueError(layout.field)
    found = np.zeros(shape, layout.dtype)
    if rows.size:
        found[rows] = _exact(values, layout.dtype)
    return Column(level, found, _mask(rows, size))


def _ragged(layout: Layout, sink: Sink, counts: Ints) -> Column:
    if layout.kind in ("number", "vector"):
        return _ragged_numbers(layout, sink, counts)
    rows, values = sink.items()
    if [len(v) for v in values] != counts[rows].tolist():
        raise ValueError(layout.field)
    at = spans(offsets(counts)[rows], counts[rows])
    flat: WordSink | JsonSink = WordSink() if layout.kind == "word" else JsonSink()
    if not flat.add(at.tolist(), [v for part in values for v in part]):
        raise TypeError(layout.field)
    column = flat.column(layout.level, int(counts.sum()))
    return Column(layout.level, column.values, _mask(rows, counts.size), column.words)


def _ragged_numbers(layout: Layout, sink: Sink, counts: Ints) -> Column:
    wanted = VectorSink if layout.kind == "vector" else ListSink
    lists = sink if type(sink) is wanted else wanted(layout.dtype or "f4")
    if lists is not sink and sink.items()[0].size:
        raise TypeError(layout.field)
    lengths = lists.lengths(counts.size)
    if not np.array_equal(lengths[lengths >= 0], counts[lengths >= 0]):
        raise ValueError(layout.field)
    if isinstance(lists, VectorSink):
        promise = layout.width if lists.width is None else 0
        if lists.width not in (None, layout.width) or promise * int(counts.sum()) > _MAX_VECTOR:
            raise ValueError(layout.field)
        lists.width = layout.width
        column = lists.token_column(counts, layout.level, np.dtype(layout.dtype))
        return Column(layout.level, column.values, column.valid)
    column = lists.token_column(counts, layout.level)
    return Column(layout.level, column.values.astype(layout.dtype, copy=False), column.valid)


def _exact(values: list[object], dtype: str) -> Array:
    """Return the values as an array of a dtype that holds each of them exactly."""
    found = np.array(values)
    if found.dtype.kind not in "biuf":
        raise TypeError(dtype)
    stored = found.astype(dtype)
    if dtype not in ("float16", "float32") and not np.array_equal(stored, found):
        raise ValueError(dtype)
    return stored


def _mask(rows: Ints, size: int) -> Array | None:
    if rows.size == size:
        return None
    mask = np.zeros(size, bool)
    mask[rows] = True
    return mask
