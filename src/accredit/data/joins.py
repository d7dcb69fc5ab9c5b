"""Batches put together and compared: new columns, concatenation, equality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from accredit.data.batch import Batch
from accredit.data.column import Column, level_of
from accredit.data.ragged import offsets
from accredit.data.sinks import WordSink
from accredit.data.vocabulary import KNOWN_COLUMNS
from accredit.errors import DataError
from accredit.typing import Array, BoolArray, Level, Scalar

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["absent_values", "concat", "equal", "make_column"]


def make_column(
    batch: Batch, name: str, values: Any, valid: BoolArray | None, provenance: Mapping[str, Any]
) -> Column:
    """Return the column of ``values`` for ``batch`` (see `Batch.with_column`)."""
    try:
        level = level_of(name)
    except ValueError as error:
        raise DataError(str(error)) from None
    found, words = _converted(name, values)
    size = _sizes(batch)[level]
    if found.shape[:1] != (size,):
        raise DataError(
            f"column {name!r} has {found.shape[0] if found.ndim else 'no'} values for {size} {level}s",
            hint=f"Give one value a {level}, in the order of the batch",
        )
    if found.ndim > 2 or (found.ndim == 2 and level == "context"):
        raise DataError(
            f"column {name!r} has values of shape {found.shape[1:]}",
            hint="Give one number a row, or one vector a rollout, step or policy token",
        )
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        at = int(np.flatnonzero(~np.isfinite(found))[0])
        raise DataError(
            f"column {name!r} is not finite at position {at}",
            hint="Mark absent values in `valid` and give 0 there",
        )
    keep = None if valid is None else np.array(valid, bool)
    rows = len(batch) if level == "rollout" else batch.n_steps
    if keep is not None and keep.shape != (rows,):
        raise DataError(f"`valid` of column {name!r} has shape {keep.shape}, not ({rows},)")
    if found.dtype == object and level in ("rollout", "step"):
        there = np.array([v is not None for v in found], bool)
        keep = there if keep is None else keep & there
    stored = _stored(found, level)
    if keep is not None:
        stored[absent_values(batch, level, keep)] = None if stored.dtype == object else 0
    return Column(level, stored, keep, words, dict(provenance))


def absent_values(batch: Batch, level: Level, valid: BoolArray) -> BoolArray:
    """Return which values of a column are absent: a step has all its tokens' values or none."""
    if level == "token":
        return np.repeat(~valid, np.diff(batch.token_start_S1))
    if level == "context":
        return np.repeat(~valid, np.diff(_context_start(batch)))
    return ~valid


def _stored(values: Array, level: Level) -> Array:
    if values.dtype.kind == "f":
        if values.dtype == np.float16 and values.ndim == 2 and level == "token":
            return np.array(values)
        return np.array(values, np.float32 if level in ("token", "context") else np.float64)
    return np.array(values)


def _converted(name: str, values: Any) -> tuple[Array, tuple[Scalar, ...] | None]:
    """Return the values as an array, and the vocabulary if they are words.

    A column of the vocabulary keeps its own kind, whatever the values come as: a state given as a
    number is a word.
    """
    field = KNOWN_COLUMNS.get(name)
    plain = values.tolist() if isinstance(values, np.ndarray) and values.ndim < 2 else values
    scalars = isinstance(plain, list | tuple) and {type(v) for v in plain} <= {str, int, float, bool}
    if field is not None and field.kind in ("word", "flag") and scalars:
        return _intern(plain)
    if field is None and scalars and any(type(v) is str for v in plain):
        return _intern(plain)
    if field is not None and field.kind == "json":
        return _objects(plain), None
    try:
        found = np.asarray(values)
    except ValueError:
        return _objects(plain), None
    if field is None:
        return found, None
    axes = 2 if field.kind in ("vector", "vectors") else 1 if field.kind != "signals" else 0
    if field.kind in ("word", "flag") or found.dtype.kind not in "biuf" or found.ndim != axes:
        raise DataError(
            f"column {name!r} holds {field.kind}s: {field.meaning}",
            hint="Give values of that kind, or another name",
        )
    if field.kind == "vectors" and found.dtype == np.float16:
        return found, None
    stored = {"tokens": np.int64, "signal": np.float32, "vectors": np.float32}.get(field.kind, np.float64)
    return found.astype(stored, copy=False), None


def _objects(values: Sequence[Any]) -> Array:
    found = np.empty(len(values), object)
    for i, value in enumerate(values):
        found[i] = value
    return found


def _intern(values: Sequence[Scalar]) -> tuple[Array, tuple[Scalar, ...]]:
    sink = WordSink()
    sink.add(range(len(values)), values)
    column = sink.column("step", len(values))
    return column.values, column.words or ()


def _sizes(batch: Batch) -> dict[Level, int]:
    context = 0 if batch.context_start_S1 is None else int(batch.context_start_S1[-1])
    return {
        "rollout": len(batch),
        "step": batch.n_steps,
        "token": batch.n_tokens,
        "context": context,
    }


def concat(batches: Sequence[Batch]) -> Batch:
    """Return one batch of several, in order (see `Batch.concat`)."""
    if not batches:
        raise DataError("no batches to put together", hint="Give at least one")
    ids = tuple(name for b in batches for name in b.ids)
    if len(set(ids)) != len(ids):
        seen: set[str] = set()
        twice = next(n for n in ids if n in seen or seen.add(n))  # type: ignore[func-returns-value]
        raise DataError(
            f"rollout id {twice!r} occurs in two batches",
            code="ACC101",
            hint="Make ids unique, for example by a prefix of the source",
        )
    group_R, group_names = _join_words([(b.group_R, b.group_names) for b in batches])
    names = dict.fromkeys(n for b in batches for n in b.columns)
    has_context = any(b.context_start_S1 is not None for b in batches)
    return Batch(
        ids=ids,
        group_R=group_R,
        group_names=group_names,
        step_start_R1=_join_offsets([b.step_start_R1 for b in batches]),
        token_start_S1=_join_offsets([b.token_start_S1 for b in batches]),
        columns={n: _join_columns(n, batches) for n in names},
        context_start_S1=_join_offsets([_context_start(b) for b in batches]) if has_context else None,
        # Parts of one batch carry the same ones: each is told, and counted, once.
        findings=tuple(dict.fromkeys(f for b in batches for f in b.findings)),
        excluded=tuple(dict.fromkeys(e for b in batches for e in b.excluded)),
        outcome_in_steps=_agreed([b._outcome_in_steps for b in batches]),
        provenance={"sources": [dict(b.provenance) for b in batches]},
    )


def _agreed(decided: Sequence[bool | None]) -> bool | None:
    """Return the one decision of all parts; None (decide again, on the whole) if there is none."""
    return decided[0] if len(set(decided)) == 1 else None


def _context_start(batch: Batch) -> Array:
    start = batch.context_start_S1
    return np.zeros(batch.n_steps + 1, np.int64) if start is None else start


def _join_offsets(starts: Sequence[Array]) -> Array:
    return offsets(np.concatenate([np.diff(s) for s in starts]))


def _join_words(
    parts: Iterable[tuple[Array, tuple[Scalar, ...]]],
) -> tuple[Array, tuple[Scalar, ...]]:
    table: dict[tuple[type, Scalar], int] = {}
    codes = []
    for values, words in parts:
        recode = [table.setdefault((type(w), w), len(table)) for w in words]
        codes.append(np.array(recode, np.int32)[values] if recode else values.astype(np.int32))
    return np.concatenate(codes), tuple(w for _, w in table)


def _join_columns(name: str, batches: Sequence[Batch]) -> Column:
    parts = [b.columns.get(name) for b in batches]
    first = next(c for c in parts if c is not None)
    hollow = [c is not None and _hollow(c, b) for c, b in zip(parts, batches, strict=True)]
    first = next((c for c, none in zip(parts, hollow, strict=True) if c is not None and not none), first)
    parts = [_absent(first, b, c) if none else c for c, b, none in zip(parts, batches, hollow, strict=True)]
    kinds = {(c.level, c.words is not None, c.values.dtype.kind, c.values.shape[1:]) for c in parts if c}
    level = first.level
    if len(kinds) > 1:
        raise DataError(
            f"column {name!r} holds different kinds of values in two batches",
            hint="Read both sources the same way, or drop the column from one",
        )
    filled = [c or _absent(first, b) for c, b in zip(parts, batches, strict=True)]
    masks = [
        c.mask(len(b) if level == "rollout" else b.n_steps) for c, b in zip(filled, batches, strict=True)
    ]
    valid = None if all(c.valid is None for c in filled) else np.concatenate(masks)
    if first.words is not None:
        values, words = _join_words([(c.values, c.words or ()) for c in filled])
        return Column(level, values, valid, words, first.provenance)
    return Column(level, np.concatenate([c.values for c in filled]), valid, None, first.provenance)


def _hollow(column: Column, batch: Batch) -> bool:
    """Whether a column has no value at all, so that its kind says nothing."""
    if column.values.ndim == 2 and column.level == "token":  # vectors of no token have no width
        return not np.diff(batch.token_start_S1)[column.mask(batch.n_steps)].any()
    return column.valid is not None and not column.valid.any()


def _absent(like: Column, batch: Batch, column: Column | None = None) -> Column:
    """Return a column like another, without a value; valid where ``column`` is."""
    size = _sizes(batch)[like.level]
    if like.is_json:
        values: Array = np.empty(size, object)
    else:
        values = np.zeros((size, *like.values.shape[1:]), like.values.dtype)
    steps = len(batch) if like.level == "rollout" else batch.n_steps
    words = None if like.words is None else like.words[:1] or ("",)
    return Column(like.level, values, np.zeros(steps, bool) if column is None else column.valid, words)


def equal(a: Batch, b: Batch) -> bool:
    """Return whether two batches hold the same rollouts: ids, groups, shape and every column."""
    if a.ids != b.ids or set(a.columns) != set(b.columns):
        return False
    if not (
        np.array_equal(a.step_start_R1, b.step_start_R1)
        and np.array_equal(a.token_start_S1, b.token_start_S1)
        and np.array_equal(_context_start(a), _context_start(b))
    ):
        return False
    if [_typed(a.group_names[i]) for i in a.group_R] != [_typed(b.group_names[i]) for i in b.group_R]:
        return False
    return all(_same_column(a, a.columns[n], b.columns[n]) for n in a.columns)


def _same_column(batch: Batch, a: Column, b: Column) -> bool:
    size = len(batch) if a.level == "rollout" else batch.n_steps
    if a.level != b.level or not np.array_equal(a.mask(size), b.mask(size)):
        return False
    if (a.words is None) != (b.words is None) or a.is_json != b.is_json:
        return False
    if a.words is None and not a.is_json:
        return np.array_equal(a.values, b.values)
    keep = a.mask(size)
    if a.level in ("token", "context"):
        keep = ~absent_values(batch, a.level, keep)
    left, right = a.decoded()[keep].tolist(), b.decoded()[keep].tolist()
    if a.is_json:
        left, right = _plain(left), _plain(right)
    return [_typed(v) for v in left] == [_typed(v) for v in right]


def _plain(value: Any) -> Any:
    """Return a JSON value with lists and numbers in place of numpy's, which do not compare as one."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def _typed(value: Any) -> tuple[type, Any]:
    return type(value), value
