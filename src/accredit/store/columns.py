"""Columns to Arrow arrays and back, one field at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accredit.data.column import Column
from accredit.data.layout import Layout, kind_of
from accredit.data.ragged import offsets, spans
from accredit.store.encode import encode
from accredit.typing import Array, BoolArray, Ints, Scalar

__all__ = ["arrow_type", "from_arrow", "json_values", "to_arrow", "word_type", "words_of"]

_INT64 = (-(1 << 63), (1 << 63) - 1)


def word_type(words: Sequence[Scalar]) -> Any:
    """Return the Arrow type that holds these words as they are, or None: then as their JSON text."""
    kinds = {type(w) for w in words}
    if kinds <= {str}:
        return pa.string()
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {float}:
        return pa.float64()
    if kinds == {int} and all(_INT64[0] <= w <= _INT64[1] for w in words):  # type: ignore[operator]
        return pa.int64()
    return None


def arrow_type(column: Column) -> Any:
    """Return the Arrow type of one value of a column (of one list, for token columns)."""
    kind = kind_of(column)
    if kind == "json":
        found = pa.string()
    elif kind == "word":
        found = word_type(column.words or ()) or pa.string()
    else:
        found = pa.from_numpy_dtype(column.values.dtype)
    if kind == "vector":
        found = pa.list_(found)
        return pa.list_(found) if column.level == "token" else found
    return pa.list_(found) if column.level in ("token", "context") else found


def to_arrow(column: Column, first: int, last: int, start: Ints | None = None) -> Any:
    """Return rows ``first .. last`` of a column as an Arrow array.

    Args:
        column: any column.
        first: first row (rollout or step).
        last: one past the last.
        start: offsets of each row's values, for token and context columns.
    """
    valid = None if column.valid is None else column.valid[first:last]
    kind = kind_of(column)
    if start is not None:
        low, high = int(start[first]), int(start[last])
        keep, counts = _valid_lists(start[first : last + 1], valid)
        values = column.values[low:high] if keep is None else column.values[low:high][keep]
        flat = _vector_lists(values) if kind == "vector" else _flat(column, kind, values, None)
        return _lists(flat, counts, valid)
    values = column.values[first:last]
    if kind == "vector":
        counts = np.full(last - first, values.shape[1], np.int64)
        if valid is not None:
            values, counts = values[valid], np.where(valid, counts, 0)
        return _lists(pa.array(np.ascontiguousarray(values).reshape(-1)), counts, valid)
    return _flat(column, kind, values, valid)


def _valid_lists(start: Ints, valid: BoolArray | None) -> tuple[BoolArray | None, Ints]:
    counts = np.diff(start)
    if valid is None or valid.all():
        return None, counts
    return np.repeat(valid, counts), np.where(valid, counts, 0)


def _lists(flat: Any, counts: Ints, valid: BoolArray | None) -> Any:
    start = pa.array(offsets(counts).astype(np.int32))
    absent = None if valid is None else pa.array(~valid)
    return pa.ListArray.from_arrays(start, flat, mask=absent)


def _vector_lists(values: Array) -> Any:
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return _lists(flat, np.full(len(values), values.shape[1], np.int64), None)


def _flat(column: Column, kind: str, values: Array, valid: BoolArray | None) -> Any:
    absent = None if valid is None else ~valid
    if kind == "word":
        words = column.words or ()
        plain = word_type(words)
        table = pa.array(list(words) if plain else [encode(w).decode() for w in words], plain or pa.string())
        if not len(table):
            return pa.nulls(values.size, plain or pa.string())
        return table.take(pa.array(values, pa.int32(), mask=absent))
    if kind == "json":
        shown = values.tolist()
        there = [True] * len(shown) if valid is None else valid.tolist()
        return pa.array(
            [encode(v).decode() if ok else None for v, ok in zip(shown, there, strict=True)], pa.string()
        )
    return pa.array(values, mask=absent)


def from_arrow(array: Any, layout: Layout, counts: Ints | None) -> Column:
    """Return the column that an Arrow array holds.

    Args:
        array: one value (or list) a row.
        layout: what the column was when it was written.
        counts: length of each row's list, for token and context columns.

    Raises:
        ValueError: if lists have other lengths than ``counts``, or values are not what they should be.
    """
    valid = None if array.null_count == 0 else np.asarray(array.is_valid())
    if counts is None and layout.kind != "vector":
        values, words = _unflat(array, layout)
        return Column(layout.level, values, valid, words, layout.provenance)
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0), np.int64)
    if counts is not None and layout.kind == "vector":
        values, words = _token_vectors(array.flatten(), layout), None
    else:
        values, words = _unflat(array.flatten(), layout)
    if counts is None:
        return _vectors(values, lengths, valid, layout)
    wanted = counts if valid is None else np.where(valid, counts, 0)
    if not np.array_equal(lengths, wanted):
        raise ValueError(f"lists of {layout.field} do not have one value a token")
    if valid is not None:
        full = np.zeros((int(counts.sum()), *values.shape[1:]), values.dtype)
        full[spans(offsets(counts)[:-1][valid], counts[valid])] = values
        values = full
    return Column(layout.level, values, valid, words, layout.provenance)


def _vectors(values: Array, lengths: Ints, valid: BoolArray | None, layout: Layout) -> Column:
    there = np.ones(lengths.size, bool) if valid is None else valid
    if (lengths[there] != layout.width).any():
        raise ValueError(f"vectors of {layout.field} do not have {layout.width} numbers")
    full = np.zeros((lengths.size, layout.width), values.dtype)
    full[there] = values.reshape(int(there.sum()), layout.width)
    return Column(layout.level, full, valid, None, layout.provenance)


def _token_vectors(lists: Any, layout: Layout) -> Array:
    """Return the vectors ``[n, width]`` of n lists."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0), np.int64)
    if (lengths != layout.width).any():
        raise ValueError(f"vectors of {layout.field} do not have {layout.width} numbers")
    values, _ = _unflat(lists.flatten(), layout)
    return values.reshape(len(lists), layout.width)


def _unflat(array: Any, layout: Layout) -> tuple[Array, tuple[Scalar, ...] | None]:
    if layout.kind == "word":
        return words_of(array)
    if layout.kind == "json":
        return json_values(array), None
    if array.null_count:
        array = pc.fill_null(array, False if pa.types.is_boolean(array.type) else 0)
    values = array.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError(f"{layout.field} holds NaN or infinity")
    return values.astype(layout.dtype, copy=False), None


def words_of(array: Any) -> tuple[Array, tuple[Scalar, ...]]:
    """Return int32 codes and the vocabulary of an array of scalars (or of their JSON texts)."""
    coded = array.dictionary_encode()
    codes = np.asarray(pc.fill_null(coded.indices, 0), np.int32)
    return codes, tuple(coded.dictionary.to_pylist()) or ("",)


def json_values(array: Any) -> Array:
    """Return the values of JSON texts as an object array."""
    found = np.empty(len(array), object)
    for i, text in enumerate(array.to_pylist()):
        if text is not None:
            found[i] = msgspec.json.decode(text)
    return found
