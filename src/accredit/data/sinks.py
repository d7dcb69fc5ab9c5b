"""Growing columns: each sink takes values with their rows and becomes one Column.

Numbers are flushed into arrays every few thousand values, so that memory stays that of the
columns whatever the length of the stream.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from accredit.data.column import Column
from accredit.data.ragged import offsets, spans
from accredit.typing import Array, Ints, Level, Scalar

__all__ = [
    "JsonSink",
    "ListSink",
    "NumberSink",
    "Sink",
    "VectorSink",
    "WordSink",
    "as_json",
    "as_vectors",
    "new_sink",
    "number_rows",
    "numbers",
]

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


def number_rows(values: Any, dtype: str = "f8") -> Array | None:
    """Return the array ``[n, d]`` of a list of equally long number lists, or None for anything else.

    Args:
        values: a list or tuple of lists, or an array; an empty list has n = d = 0.
        dtype: of the result, where values are Python numbers: ``f8``, ``f4``, ``i8`` or ``u8``.
    """
    if isinstance(values, list | tuple):
        if not values:
            return np.zeros((0, 0), dtype)
        if type(values[0]) is list:
            return _packed_rows(values, np.dtype(dtype))
    try:
        found = np.asarray(values)
    except (ValueError, OverflowError, TypeError):
        return None
    if found.ndim == 1 and not found.size:
        return np.zeros((0, 0), found.dtype)
    return found if found.ndim == 2 and found.dtype.kind in "iuf" else None


def _packed_rows(values: Sequence[Any], dtype: np.dtype[Any]) -> Array | None:
    if set(map(type, values)) != {list} or len(set(map(len, values))) > 1:
        return None
    kinds = set(map(type, chain.from_iterable(values)))
    if not kinds <= ({int} if dtype.kind in "iu" else {int, float}):
        return None
    n, d = len(values), len(values[0])
    try:
        flat = np.fromiter(chain.from_iterable(values), np.float64 if dtype.kind == "f" else dtype, n * d)
    except OverflowError:
        return None
    if dtype.kind == "f" and int in kinds and flat.size and np.abs(flat).max() >= _EXACT:
        return None  # an integer that float64 would round
    return flat.reshape(n, d)


_EXACT = 1 << 53


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

    def flat(self, dtype: Any = None) -> Array:
        """Return all values in order of arrival; each part is let go as soon as it is copied."""
        self._flush()
        values = np.empty(sum(p.size for p in self._chunks), self.dtype if dtype is None else dtype)
        at = 0
        self._chunks.reverse()
        with np.errstate(over="ignore"):  # an infinite value is found at the end
            while self._chunks:
                part = self._chunks.pop()
                values[at : at + part.size] = part
                at += part.size
        self._chunks = [values]
        return values

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

    def token_column(self, counts_S: Ints, level: Level = "token", dtype: Any = None) -> Column:
        """Return the token column over steps of ``counts_S`` tokens each: ``[T]`` or ``[T, d]``."""
        rows = np.array(self._rows, np.int64)
        flat = self.flat(dtype)
        have = _valid(rows, counts_S.size)
        if have is None and np.all(rows[1:] > rows[:-1]):
            return Column(level, flat, None)
        start = offsets(counts_S)
        values = np.zeros((int(start[-1]), *flat.shape[1:]), flat.dtype)
        values[spans(start[rows], counts_S[rows])] = flat
        return Column(level, values, have)

    def vector_column(self, level: Level, size: int, width: int) -> Column:
        """Return the column ``[size, width]`` of lists that all have this width."""
        rows = np.array(self._rows, np.int64)
        values = np.zeros((size, width))
        values[rows] = self.flat().reshape(rows.size, width)
        return Column(level, values, _valid(rows, size))


class VectorSink(ListSink):
    """Lists of equally long number lists, one list a policy token: ``[n, d]`` a row.

    float16 and float32 arrays stay what they are until something wider comes.

    Args:
        dtype: the widest that is kept: f4, f8, or i8 and u8 for whole numbers alone.
    """

    def __init__(self, dtype: str = "f4") -> None:
        super().__init__(dtype)
        self.width: int | None = None  # the first list that is not empty says it
        self._widest = self.dtype
        if self.dtype.kind == "f":
            self.dtype = np.dtype("f2")

    def add(self, rows: Sequence[int], values: Sequence[Any]) -> bool:
        """Append lists; return False (nothing appended) if one is not like those before it."""
        found = [number_rows(v, self._widest.str) for v in values]
        kept = [f for f in found if f is not None]
        widths = {f.shape[1] for f in kept if f.shape[0]} | ({self.width} - {None})
        if len(kept) < len(found) or len(widths) > 1 or not all(self._holds(f) for f in kept):
            return False
        self.width = widths.pop() if widths else None
        self._widen(kept)
        self._lengths.extend([f.shape[0] for f in kept])
        self._rows.extend(rows)
        self._open.extend([f.reshape(-1) for f in kept if f.size])
        self._waiting += sum(f.size for f in kept)
        if self._waiting >= _FLUSH or len(self._open) >= _FLUSH:
            self._flush()
        return True

    def _holds(self, found: Array) -> bool:
        return not found.size or self.dtype.kind == "f" or found.dtype.kind in "iu"

    def _widen(self, kept: Sequence[Array]) -> None:
        if self.dtype == self._widest or self.dtype.kind != "f":
            return
        narrow = all(not f.size or np.can_cast(f.dtype, self.dtype) for f in kept)
        if not narrow:
            single = all(not f.size or np.can_cast(f.dtype, np.float32) for f in kept)
            self.dtype = np.dtype("f4") if single else self._widest

    def flat(self, dtype: Any = None) -> Array:
        """Return all vectors ``[n, d]`` in order of arrival."""
        return super().flat(dtype).reshape(sum(self._lengths), self.width or 0)

    def items(self) -> tuple[Ints, list[Any]]:
        """Return rows and lists collected so far; what is not finite is None in them."""
        flat = self.flat()
        cuts = np.cumsum(np.array(self._lengths, np.int64))[:-1]
        lists = [_known(part) for part in np.split(flat, cuts)] if self._lengths else []
        return np.array(self._rows, np.int64), lists


def _known(values: Array) -> list[Any]:
    plain: list[Any] = values.tolist()
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return plain
    return [[v if math.isfinite(v) else None for v in row] for row in plain]


class JsonSink:
    """Any JSON value, kept as the object it is."""

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._rows = array("q")

    def add(self, rows: Sequence[int], values: Sequence[Any]) -> bool:
        """Append values; always True."""
        self._values.extend([v.tolist() if isinstance(v, np.ndarray | np.generic) else v for v in values])
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


Sink: TypeAlias = NumberSink | WordSink | ListSink | VectorSink | JsonSink


def new_sink(value: Any) -> Sink:
    """Return the sink for extra signals whose first value this is."""
    if _is_number(value):
        return NumberSink()
    if isinstance(value, str | bool):
        return WordSink()
    if isinstance(value, list | tuple | np.ndarray) and numbers(value) is not None:
        return ListSink("f8")
    if isinstance(value, list | tuple | np.ndarray) and number_rows(value) is not None:
        return VectorSink("f8")
    return JsonSink()


def as_vectors(sink: Sink) -> VectorSink | None:
    """Return a sink of vectors that holds the empty lists of another one; None if it holds more."""
    if not isinstance(sink, ListSink) or isinstance(sink, VectorSink):
        return None
    if any(sink._lengths):
        return None
    fresh = VectorSink("f8")
    fresh.add(sink._rows, [[]] * len(sink._rows))
    return fresh


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
