"""From columns back to native records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from accredit.data.batch import Batch
from accredit.data.column import Column
from accredit.data.layout import HIDDEN, field_names
from accredit.data.vocabulary import NAMED_SIGNALS, TOKEN_FIELDS, is_named_signal
from accredit.typing import Array, Ints

__all__ = ["Lists", "plain_lists", "records", "windows"]

# Values of a token column and the offsets of its steps, to one JSON-ready list a step.
Lists: TypeAlias = Callable[[Array, Ints], Sequence[Any]]
Named: TypeAlias = list[tuple[str, Sequence[Any]]]

_WHOLE = {"fork_step"}
# Fields whose length says how many policy tokens a step has.
_COUNTED = frozenset(TOKEN_FIELDS) | {NAMED_SIGNALS}
_WINDOW_TOKENS = 1 << 18
_WINDOW_STEPS = 1 << 14


def plain_lists(values: Array, start: Ints) -> Sequence[Any]:
    """Return Python lists (of lists, for vectors); float32 numbers by their shortest decimal form."""
    flat = _shortest(values.reshape(-1)).reshape(values.shape).tolist()
    return [flat[a:b] for a, b in pairwise(start.tolist())]


def _shortest(values: Array) -> Array:
    if values.dtype != np.float32 or not values.size:
        return values
    if values.size < 256:
        return np.array([float(str(v)) for v in values])
    import pyarrow as pa  # costs a quarter of a second, and only large exports need it

    return pa.array(values).cast(pa.string()).cast(pa.float64()).to_numpy()  # type: ignore[no-any-return]


def windows(
    batch: Batch, max_tokens: int = _WINDOW_TOKENS, max_steps: int = _WINDOW_STEPS
) -> Iterator[tuple[int, int]]:
    """Yield half-open ranges of rollouts that hold at most so many tokens and steps (or one rollout).

    Where tokens have vectors, each of a vector's numbers counts as one token.
    """
    wide = [c.values.shape[1] for c in batch.columns.values() if c.level == "token" and c.values.ndim > 1]
    max_tokens //= max([1, *wide])
    tokens = batch.token_start_S1[batch.step_start_R1]
    first = 0
    while first < len(batch):
        by_tokens = int(np.searchsorted(tokens, tokens[first] + max_tokens, side="right")) - 1
        limit = batch.step_start_R1[first] + max_steps
        by_steps = int(np.searchsorted(batch.step_start_R1, limit, side="right")) - 1
        last = max(first + 1, min(by_tokens, by_steps, len(batch)))
        yield first, last
        first = last


def records(batch: Batch, lists: Lists = plain_lists) -> Iterator[dict[str, Any]]:
    """Yield the native records of a batch, one rollout (or row of it) at a time.

    Args:
        batch: the rollouts.
        lists: turns token columns into one value a step.
    """
    names = field_names(batch)
    for first, last in windows(batch):
        heads = _heads(batch, names, first, last)
        base = int(batch.step_start_R1[first])
        steps = _steps(batch, names, base, int(batch.step_start_R1[last]), lists)
        for r in range(first, last):
            inside = batch.steps_of(r)
            for row, part in _parts(batch, inside):
                extra = {} if row is None else {"row": row}
                taken = steps[part.start - base : part.stop - base]
                yield heads[r - first] | extra | {"steps": taken}


def _parts(batch: Batch, steps: range) -> Iterator[tuple[Any, range]]:
    column = batch.columns.get("row_S")
    if column is None or not len(steps):
        yield None, steps
        return
    labels = _values(column, steps.start, steps.stop)
    cut = 0
    for i in range(1, len(labels) + 1):
        if i == len(labels) or labels[i] != labels[cut]:
            yield labels[cut], steps[cut:i]
            cut = i


def _heads(batch: Batch, names: dict[str, str], first: int, last: int) -> list[dict[str, Any]]:
    groups = batch.group_R[first:last].tolist()
    heads: list[dict[str, Any]] = [
        {"id": name, "group": batch.group_names[code]}
        for name, code in zip(batch.ids[first:last], groups, strict=True)
    ]
    for column, name in names.items():
        c = batch.columns[column]
        if c.level != "rollout":
            continue
        for head, value in zip(heads, _values(c, first, last), strict=True):
            if value is None:
                continue
            if name.startswith("rewards."):
                head.setdefault("rewards", {})[name[len("rewards.") :]] = value
            else:
                head[name] = int(value) if name in _WHOLE else value
    return heads


def _steps(batch: Batch, names: dict[str, str], first: int, last: int, lists: Lists) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{} for _ in range(last - first)]
    for column, name in names.items():
        if batch.columns[column].level == "rollout" or column in HIDDEN:
            continue
        for step, value in zip(found, _step_values(batch, column, first, last, lists), strict=True):
            if value is None:
                continue
            if is_named_signal(column):
                step.setdefault(NAMED_SIGNALS, {})[name[len(NAMED_SIGNALS) + 1 :]] = value
            else:
                step[name] = value
    counts = np.diff(batch.token_start_S1[first : last + 1]).tolist()
    for step, count in zip(found, counts, strict=True):
        if count and not _COUNTED & step.keys():
            step["n_tokens"] = count
    _add_context(batch, found, first, last, lists)
    return found


def _step_values(batch: Batch, column: str, first: int, last: int, lists: Lists) -> Sequence[Any]:
    c = batch.columns[column]
    if c.level == "step":
        return _values(c, first, last)
    starts = batch.token_start_S1 if c.level == "token" else batch.context_start_S1
    assert starts is not None, column
    start = starts[first : last + 1]
    values = c.values[start[0] : start[-1]]
    if c.words is not None or c.is_json:
        flat = Column(c.level, values, None, c.words).decoded().tolist()
        per_step: Sequence[Any] = [flat[a:b] for a, b in pairwise((start - start[0]).tolist())]
    else:
        if values.dtype == bool:
            values = values.astype(np.int8)
        per_step = lists(values, start - start[0])
    if c.valid is None:
        return per_step
    there = c.valid[first:last].tolist()
    return [v if ok else None for v, ok in zip(per_step, there, strict=True)]


def _add_context(batch: Batch, found: list[dict[str, Any]], first: int, last: int, lists: Lists) -> None:
    if not batch.has("context_token_C"):
        return
    added = _step_values(batch, "context_token_C", first, last, lists)
    resets = batch.context_reset_S[first:last].tolist()
    for step, piece, reset in zip(found, added, resets, strict=True):
        if piece is not None:
            step["prompt_tokens" if reset else "context_tokens"] = piece


def _values(column: Column, first: int, last: int) -> list[Any]:
    """Return the values of some rows as Python objects, None where absent."""
    window = Column(column.level, column.values[first:last], None, column.words)
    values: list[Any] = window.decoded().tolist()
    if column.valid is None:
        return values
    there = column.valid[first:last].tolist()
    return [v if ok else None for v, ok in zip(values, there, strict=True)]
