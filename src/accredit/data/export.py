"""From columns back to native records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from accredit.data.batch import Batch
from accredit.data.column import Column
from accredit.data.vocabulary import ROLLOUT_FIELDS, STEP_FIELDS
from accredit.typing import Array

__all__ = ["records"]

_ROLLOUT_NAMES = {f.column: f.name for f in ROLLOUT_FIELDS.values()}
_STEP_NAMES = {f.column: f.name for f in STEP_FIELDS.values()}
_HIDDEN = {"row_S", "context_token_C", "context_reset_S"}
_WHOLE = {"fork_step", "n_tokens"}


def records(batch: Batch) -> Iterator[dict[str, Any]]:
    """Yield the native records of a batch, one rollout (or row of it) at a time."""
    counts = "n_tokens_S" not in batch.columns and not batch.has("token_T")
    for r, name in enumerate(batch.ids):
        head = {"id": name, "group": batch.group_names[int(batch.group_R[r])]}
        head |= _rollout_fields(batch, r)
        steps = batch.steps_of(r)
        for row, part in _parts(batch, steps):
            extra = {} if row is None else {"row": row}
            yield head | extra | {"steps": [_step(batch, s, counts) for s in part]}


def _parts(batch: Batch, steps: range) -> Iterator[tuple[Any, range]]:
    column = batch.columns.get("row_S")
    if column is None or not len(steps):
        yield None, steps
        return
    labels = [_present(column, s) for s in steps]
    cut = 0
    for i in range(1, len(labels) + 1):
        if i == len(labels) or labels[i] != labels[cut]:
            yield labels[cut], steps[cut:i]
            cut = i


def _rollout_fields(batch: Batch, r: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, column in batch.columns.items():
        if column.level != "rollout":
            continue
        value = _present(column, r)
        if name.startswith("rewards."):
            found.setdefault("rewards", {})[name[len("rewards.") : -2]] = value
        elif value is not None:
            field = _ROLLOUT_NAMES.get(name, name[:-2])
            found[field] = int(value) if field in _WHOLE else value
    return found


def _step(batch: Batch, s: int, counts: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    tokens = slice(int(batch.token_start_S1[s]), int(batch.token_start_S1[s + 1]))
    for name, column in batch.columns.items():
        if column.level in ("rollout", "context") or name in _HIDDEN:
            continue
        field = _STEP_NAMES.get(name, name[:-2])
        if column.level == "token":
            if column.valid is None or column.valid[s]:
                found[field] = _numbers(column.values[tokens])
        elif (value := _present(column, s)) is not None:
            found[field] = int(value) if field in _WHOLE else value
    if counts and tokens.stop > tokens.start and not _has_tokens(found):
        found["n_tokens"] = tokens.stop - tokens.start
    return found | _context(batch, s)


def _has_tokens(step: dict[str, Any]) -> bool:
    return any(k in step for k in ("tokens", "logprobs", "entropies", "token_values"))


def _context(batch: Batch, s: int) -> dict[str, Any]:
    start = batch.context_start_S1
    if start is None:
        return {}
    added = batch.context_token_C[int(start[s]) : int(start[s + 1])]
    reset = bool(batch.context_reset_S[s])
    return {"prompt_tokens" if reset else "context_tokens": added.tolist()}


def _present(column: Column, i: int) -> Any:
    if column.valid is not None and not column.valid[i]:
        return None
    return column.item(i)


def _numbers(values: Array) -> list[Any]:
    """Return float32 values by their shortest decimal form, so that files stay small."""
    if values.dtype == np.float32:
        return [float(str(v)) for v in values]
    found: list[Any] = values.tolist()
    return found
