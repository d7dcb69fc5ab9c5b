"""Long lines fast: lists of numbers are converted as text, all lists of a line at once.

A line of a thousand numbers costs msgspec one Python object a number, and numpy as much again to
read them. Here msgspec only checks the grammar of each list and hands over its bytes; the lists of
one field are joined and converted in one call. Whatever is not exactly a flat list of plain
numbers makes `decode_bulk` return None, and the exact decoder takes the line.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accredit.data.vocabulary import ROLLOUT_FIELDS, STEP_FIELDS
from accredit.store.decode import count_keys, count_members, deeper
from accredit.store.limits import Limits
from accredit.typing import Array

__all__ = ["BULK_BYTES", "decode_bulk"]

# Below this, the calls cost more than they save.
BULK_BYTES = 8192
_INTS = {"tokens", "prompt_tokens", "context_tokens"}
_FLOATS = {f.name for f in STEP_FIELDS.values() if f.kind == "signal"}
_SHORT = 16
# Integers of more digits do not all fit 64 bits, and the exact way knows them from floats.
_SAFE = 10**18
_decode = msgspec.json.Decoder().decode
_NAMES = ["id", "group", "row", "rewards", "truncated", "schema", *ROLLOUT_FIELDS]
_Line = msgspec.defstruct(
    "_Line",
    [
        ("steps", list[dict[str, msgspec.Raw]]),
        *((name, msgspec.Raw, msgspec.field(default=msgspec.Raw())) for name in _NAMES),
    ],
)
_split: Callable[[bytes], Any] = msgspec.json.Decoder(_Line).decode


def decode_bulk(line: bytes, limits: Limits) -> dict[str, Any] | None:
    """Return the record of a long line with arrays for its lists of numbers, or None if in doubt."""
    try:
        split = _split(line)
        raw_steps: list[dict[str, msgspec.Raw]] = split.steps
        record = {name: _decode(raw) for name in _NAMES if (raw := getattr(split, name))}
        steps, rest = _sorted_fields(raw_steps)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    members = len(record) + 1 + sum(len(s) for s in raw_steps)
    if line.count(b":") != members:
        inner = count_members(list(record.values())) + count_members(rest)
        if count_keys(line) != members + inner:
            return None
    depth = limits.depth - 4
    if len(steps) > limits.steps or deeper(list(record.values()), depth) or deeper(rest, depth):
        return None
    for name in _INTS | _FLOATS:
        at = [s for s in steps if type(s.get(name)) is msgspec.Raw]
        arrays = _convert([s[name] for s in at], whole=name in _INTS)
        if arrays is None:
            return None
        for step, values in zip(at, arrays, strict=True):
            step[name] = values
    return record | {"steps": steps}


def _sorted_fields(split: list[dict[str, msgspec.Raw]]) -> tuple[list[dict[str, Any]], list[Any]]:
    """Decode everything but long lists under the names of number lists; return it also by itself."""
    steps, rest = [], []
    for raw_step in split:
        step: dict[str, Any] = {}
        for name, raw in raw_step.items():
            text = memoryview(raw)
            if text.nbytes > _SHORT and text[0] == _OPEN and (name in _INTS or name in _FLOATS):
                step[name] = raw
            else:
                step[name] = value = _decode(raw)
                if type(value) is dict or type(value) is list:
                    rest.append(value)
        steps.append(step)
    return steps, rest


_OPEN, _COMMA = b"[,"
_BLANK = b"[] \t\r"


def _convert(raws: Sequence[msgspec.Raw], *, whole: bool) -> list[Array] | None:
    """Return one array a list, or None if one of them is not a flat list of plain numbers."""
    if not raws:
        return []
    joined = b",".join(raws)
    if joined.count(b"[") != len(raws):
        return None
    commas = np.flatnonzero(np.frombuffer(joined, np.uint8) == _COMMA)
    flat = _ints(joined) if whole else _floats(joined)
    if flat is None or flat.size != commas.size + 1 or flat.max() >= _SAFE or flat.min() <= -_SAFE:
        return None
    # The comma after each list ends it; the last list has none.
    ends = np.cumsum([memoryview(raw).nbytes + 1 for raw in raws[:-1]]) - 1
    bounds = [0, *(np.searchsorted(commas, ends) + 1).tolist(), flat.size]
    return [flat[a:b] for a, b in pairwise(bounds)]


def _ints(joined: bytes) -> Array | None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return np.fromstring(joined.translate(None, _BLANK), np.int64, sep=",")
        except (DeprecationWarning, ValueError):
            return None


def _floats(joined: bytes) -> Array | None:
    text = joined.translate(None, _BLANK)
    start = pa.py_buffer(np.array([0, len(text)], np.int64))
    try:
        whole = pa.LargeStringArray.from_buffers(1, start, pa.py_buffer(text))
        found: Array = pc.split_pattern(whole, ",").values.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        return None
    return found
