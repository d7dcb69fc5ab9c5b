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
# An int64 has at most 18 digits that are always safe; longer tokens are left to the exact decoder.
_SAFE_DIGITS = 18
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


_OPEN, _CLOSE, _COMMA = b"[],"


def _convert(raws: Sequence[msgspec.Raw], *, whole: bool) -> list[Array] | None:
    """Return one array a list, or None if one of them is not a flat list of plain numbers."""
    if not raws:
        return []
    joined = b",".join(raws)
    if joined.count(b"[") != len(raws):
        return None
    codes = np.frombuffer(joined, np.uint8)
    commas, ends = np.flatnonzero(codes == _COMMA), np.flatnonzero(codes == _CLOSE)
    if ends.size != len(raws):
        return None
    flat = _ints(joined, commas) if whole else _floats(joined, commas)
    if flat is None or flat.size != commas.size + 1:
        return None
    bounds = [0, *(np.searchsorted(commas, ends) + 1).tolist()]
    return [flat[a:b] for a, b in pairwise(bounds)]


def _ints(joined: bytes, commas: Array) -> Array | None:
    text = joined.translate(None, b"[] \t\r")
    if _longest(commas, len(joined)) > _SAFE_DIGITS:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return np.fromstring(text, np.int64, sep=",")
        except (DeprecationWarning, ValueError):
            return None


def _floats(joined: bytes, commas: Array) -> Array | None:
    text = joined.translate(None, b"[] \t\r")
    if _longest(commas, len(joined)) > _SAFE_DIGITS and _may_be_huge_integer(text):
        return None
    try:
        found = pc.split_pattern(_one_string(text), ",").values.cast(pa.float64())
    except pa.ArrowInvalid:
        return None
    values: Array = found.to_numpy()
    return values if np.isfinite(values).all() else None


def _longest(commas: Array, size: int) -> int:
    """Return at least the length of the longest number."""
    cuts = np.concatenate([[-1], commas, [size]])
    return int(np.diff(cuts).max()) - 1


def _may_be_huge_integer(text: bytes) -> bool:
    """Whether a number may have more than 18 characters and neither point nor exponent."""
    codes = np.frombuffer(text, np.uint8)
    cuts = np.concatenate([[-1], np.flatnonzero(codes == _COMMA), [codes.size]])
    long = np.flatnonzero(np.diff(cuts) - 1 > _SAFE_DIGITS)
    start = cuts[long] + 1
    return not np.all((codes[start + 1] == _POINT) | (codes[start + 2] == _POINT))


_POINT = ord(".")


def _one_string(text: bytes) -> Any:
    start = pa.py_buffer(np.array([0, len(text)], np.int64))
    return pa.LargeStringArray.from_buffers(1, start, pa.py_buffer(text))
