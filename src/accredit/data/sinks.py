"""Growing columns: each sink takes values with their rows and becomes one Column.

Numbers are flushed into arrays every few thousand values, so that memory stays that of the
columns whatever the length of the stream.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from accredit.data.column import Column
from accredit.data.ragged import offsets, spans
from accredit.typing import Array, Ints, Level, Scalar

__all__ = ["JsonSink", "ListSink", "NumberSink", "Sink", "WordSink", "as_json", "new_sink", "numbers"]

_FLUSH = 1 << 16


def numbers(values: Any, code: str = "") -> Array | None:
    """Return a 1-D number array of a list, or None if it is anything else.

    Args:
        values: a list, tuple or array.
        code: ``q`` (int64), ``d`` (float64) or ``f`` (float32): tried first, several times faster
            than finding out what a list holds.
    """
    if type(values) is list and code and values and type(values[0]) in _PLAIN:
        try:
            return np.frombuffer(_packer(code, len(values))(*values), code)
        except (struct.error, OverflowError):
            pass
    try:
        found = np.asarray(values)
    except (ValueError, OverflowError, TypeError):
        return None
    if found.ndim != 1 or (found.dtype.kind not in "iuf" and found.size):
        return None
    return found


@lru_cache(maxsize=4096)
def _packer(code: str, size: int) -> Callable[..., bytes]:
    return struct.Struct(f"{size}{code}").pack


_PLAIN = (int, float)


class NumberSink:
    """Numbers, one a row."""

    def __init__(self) -> None:
        self._values = array("d")
        self._rows = array("q")

    def add(self, rows: Sequence[int], values: Sequence[Any]) -> bool:
        """Append values; return False (nothing appended) if one is not a number."""
        if any(type(v) not in (float, int) and not _is_number(v) for v in values):
            return False
        try:
            found = array("d", values)
        except OverflowError:
            return False
        self._values.extend(found)
        self._rows.extend(rows)
        return True

    def items(self) -> tuple[Ints, list[Any]]:
        """Return rows and values collected so far."""
        return np.array(self._rows, np.int64), self._values.tolist()

    def column(self, level: Level, size: int) -> Column:
        """Return the column of ``size`` rows."""
        rows = np.frombuffer(self._rows, np.int64) if len(self._rows) else np.zeros(0, np.int64)
        found = np.frombuffer(self._values, np.float64) if len(self._values) else np.zeros(0)
        values = np.zeros(size)
        values[rows] = found
        return Column(level, values, _valid(rows, size))


class WordSink:
    """Scalars interned to codes; 1, 1.0, True and "1" stay different words."""

    def __init__(self, table: dict[tuple[type, Scalar], int] | None = None) -> None:
        self._codes = array("i")
        self._rows = array("q")
        self._table = {} if table is None else table

    def add(self, rows: Sequence[int], values: Sequence[Any]) -> bool:
        """Append values; return False (nothing appended) if one is not a scalar."""
        if not {type(v) for v in values} <= {str, int, float, bool}:
            return False
        table = self._table
        self._codes.extend([table.setdefault((type(v), v), len(table)) for v in values])
        self._rows.extend(rows)
        return True

    def items(self) -> tuple[Ints, list[Any]]:
        """Return rows and values collected so far."""
        words = self.words()
        return np.array(self._rows, np.int64), [words[c] for c in self._codes]

    def words(self) -> tuple[Scalar, ...]:
        """Return the vocabulary in order of first appearance."""
        return tuple(word for _, word in self._table)

    def column(self, level: Level, size: int) -> Column:
        """Return the column of ``size`` rows; the vocabulary may be shared with another sink."""
        rows = np.array(self._rows, np.int64)
        codes = np.zeros(size, np.int32)
        codes[rows] = np.array(self._codes, np.int32)
        return Column(level, codes, _valid(rows, size), self.words() or ("",))


class ListSink:
    """Lists of numbers, one a row: token signals or vectors, settled at the end."""

    def __init__(self, dtype: str = "f4") -> None:
        self.dtype = np.dtype(dtype)
        self._chunks: list[Array] = []
        self._open: list[Array] = []
        self._waiting = 0
        self._lengths = array("q")
        self._rows = array("q")

    def add(self, rows: Sequence[int], values: Sequence[Any]) -> bool:
        """Append lists; return False (nothing appended) if one is not a list of numbers."""
        code = "d" if self.dtype.kind == "f" else "q" if self.dtype == np.int64 else ""
        found = [numbers(v, code) if isinstance(v, list | tuple | np.ndarray) else None for v in values]
        kept = [f for f in found if f is not None]
        if len(kept) < len(found) or (
            self.dtype.kind in "iu" and any(f.dtype.kind == "f" and f.size for f in kept)
        ):
            return False
        self._open.extend(kept)
        sizes = [f.size for f in kept]
        self._lengths.extend(sizes)
        self._rows.extend(rows)
        self._waiting += sum(sizes)
        if self._waiting >= _FLUSH or len(self._open) >= _FLUSH:
            self._flush()
        return True

    def _flush(self) -> None:
        if self._open:
            # An empty list has no kind of its own: numpy's float64 would round 64-bit ids beside it.
            filled = [part for part in self._open if part.size] or [np.zeros(0, self.dtype)]
            with np.errstate(over="ignore"):  # what float32 cannot hold is found as infinite at the end
                self._chunks.append(np.concatenate(filled).astype(self.dtype, copy=False))
        self._open, self._waiting = [], 0

    def flat(self) -> Array:
        """Return all values in order of arrival."""
        self._flush()
        self._chunks = [np.concatenate(self._chunks)] if self._chunks else []
        return self._chunks[0] if self._chunks else np.zeros(0, self.dtype)

    def items(self) -> tuple[Ints, list[Any]]:
        """Return rows and lists collected so far."""
        cuts = np.cumsum(np.array(self._lengths, np.int64))[:-1]
        lists = [part.tolist() for part in np.split(self.flat(), cuts)] if self._lengths else []
        return np.array(self._rows, np.int64), lists

    def lengths(self, size: int) -> Ints:
        """Return each row's list length, -1 where the row has none."""
        found = np.full(size, -1, np.int64)
        found[np.array(self._rows, np.int64)] = np.array(self._lengths, np.int64)
        return found

    def token_column(self, counts_S: Ints, level: Level = "token") -> Column:
        """Return the token column over steps of ``counts_S`` tokens each."""
        rows = np.array(self._rows, np.int64)
        flat = self.flat()
        have = _valid(rows, counts_S.size)
        if have is None and np.all(rows[1:] > rows[:-1]):
            return Column(level, flat, None)
        start = offsets(counts_S)
        values = np.zeros(int(start[-1]), flat.dtype)
        values[spans(start[rows], counts_S[rows])] = flat
        return Column(level, values, have)

    def vector_column(self, level: Level, size: int, width: int) -> Column:
        """Return the column ``[size, width]`` of lists that all have this width."""
        rows = np.array(self._rows, np.int64)
        values = np.zeros((size, width))
        values[rows] = self.flat().reshape(rows.size, width)
        return Column(level, values, _valid(rows, size))


class JsonSink:
    """Any JSON value, kept as the object it is."""

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._rows = array("q")

    def add(self, rows: Sequence[int], values: Sequence[Any]) -> bool:
        """Append values; always True."""
        self._values.extend(values)
        self._rows.extend(rows)
        return True

    def items(self) -> tuple[Ints, list[Any]]:
        """Return rows and values collected so far."""
        return np.array(self._rows, np.int64), self._values

    def column(self, level: Level, size: int) -> Column:
        """Return the object column of ``size`` rows, None where absent."""
        rows = np.array(self._rows, np.int64)
        values = np.empty(size, object)
        for row, value in zip(rows.tolist(), self._values, strict=True):
            values[row] = value
        return Column(level, values, _valid(rows, size))


Sink: TypeAlias = NumberSink | WordSink | ListSink | JsonSink


def new_sink(value: Any) -> Sink:
    """Return the sink for extra signals whose first value this is."""
    if _is_number(value):
        return NumberSink()
    if isinstance(value, str | bool):
        return WordSink()
    if isinstance(value, list | tuple | np.ndarray) and numbers(value) is not None:
        return ListSink("f8")
    return JsonSink()


def as_json(sink: Sink) -> JsonSink:
    """Return the values of a sink in one that takes any JSON value."""
    if isinstance(sink, JsonSink):
        return sink
    rows, values = sink.items()
    fresh = JsonSink()
    fresh.add(rows.tolist(), values)
    return fresh


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _valid(rows: Ints, size: int) -> Any:
    if rows.size == size:
        return None
    mask = np.zeros(size, bool)
    mask[rows] = True
    return mask
