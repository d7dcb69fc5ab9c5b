"""Values of each kind of field, checked and made plain."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from accredit.data.finding import Finding
from accredit.data.sinks import number_rows, numbers
from accredit.errors import DataError
from accredit.typing import Array

__all__ = ["CHECKS", "LARGEST_ID", "SCALARS", "At", "is_number", "wrong"]

At: TypeAlias = tuple[str, str, list[Finding]]  # rollout, place, findings so far
SCALARS = {str, int, float, bool}
LARGEST_ID = (1 << 63) - 1


def is_number(value: object) -> bool:
    """Return whether a value is a finite number that fits a float; true and false are none.

    Example:
        >>> [is_number(x) for x in (1, 0.5, True, float("inf"), 10**400, "1")]
        [True, True, False, False, False, False]
    """
    if type(value) is float:
        return math.isfinite(value)
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond the floats
        return False


def _numbers(key: str, values: list[Any], at: At) -> list[Any]:
    if {type(v) for v in values} <= {float, int}:
        if any(type(v) is int and abs(v) > 1 << 1000 for v in values):
            raise wrong(key, "a huge integer", "a number within float range", at[0], at[1])
        return values
    plain = [v.item() if isinstance(v, np.generic) else v for v in values]
    for v in plain:
        if not isinstance(v, int | float):
            raise wrong(key, v, "a number", at[0], at[1])
    return [float(v) for v in plain]


def _words(key: str, values: list[Any], at: At) -> list[Any]:
    if {type(v) for v in values} <= SCALARS:
        return values
    fixed = []
    for v in values:
        plain = v.tolist() if isinstance(v, np.generic | np.ndarray) else v
        if type(plain) not in SCALARS:
            plain = _canonical(key, plain, at)
        fixed.append(plain)
    return fixed


def _canonical(key: str, value: Any, at: At) -> str:
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (TypeError, ValueError):
        raise wrong(key, value, "a JSON scalar", at[0], at[1]) from None
    at[2].append(
        Finding(
            "ACC105",
            "info",
            f"{key} is an object or a list: its canonical JSON text is used",
            at[1],
            f"Give {key} as a string or a number to choose the key yourself",
        )
    )
    return text


def _flags(key: str, values: list[Any], at: At) -> list[Any]:
    plain = [v.item() if isinstance(v, np.generic) else v for v in values]
    for v in plain:
        if v not in (True, False):
            raise wrong(key, v, "true or false", at[0], at[1])
    return [bool(v) for v in plain]


def _token_lists(key: str, values: list[Any], at: At) -> list[Array]:
    checked = []
    for value in values:
        ids = numbers(value, "q")
        if ids is None or (ids.size and ids.dtype.kind not in "iu"):
            raise wrong(key, value, "a list of token ids (whole numbers)", at[0], at[1])
        if ids.dtype.kind == "u" and ids.size and ids.max() > LARGEST_ID:
            raise wrong(key, int(ids.max()), "token ids below 2**63", at[0], at[1])
        checked.append(ids.astype(np.int64, copy=False))
    return checked


def _signals(key: str, values: list[Any], at: At) -> list[Array]:
    return _number_lists(key, values, at, "f")


def _vectors(key: str, values: list[Any], at: At) -> list[Array]:
    return _number_lists(key, values, at, "d")


def _token_vectors(key: str, values: list[Any], at: At) -> list[Array]:
    checked = []
    for value in values:
        got = number_rows(value)
        if got is None:
            raise wrong(key, value, "one list of numbers a token, all of one length", at[0], at[1])
        checked.append(got)
    widths = {got.shape[1] for got in checked if got.shape[0]}
    if len(widths) > 1:
        raise DataError(
            f"rollout {at[0]!r} has {min(widths)} and {max(widths)} numbers a token in {key}",
            code="ACC104",
            where=at[1],
            hint=f"Give every token a list of one length, or drop {key} from the record",
        )
    return checked


def _number_lists(key: str, values: list[Any], at: At, code: str) -> list[Array]:
    checked = [numbers(v, code) for v in values]
    for value, got in zip(values, checked, strict=True):
        if got is None:
            raise wrong(key, value, "a list of numbers", at[0], at[1])
    return [c for c in checked if c is not None]


def _as_is(key: str, values: list[Any], at: At) -> list[Any]:
    return values


CHECKS: Mapping[str, Callable[[str, list[Any], At], list[Any]]] = {
    "number": _numbers,
    "word": _words,
    "flag": _flags,
    "tokens": _token_lists,
    "signal": _signals,
    "vector": _vectors,
    "vectors": _token_vectors,
    "json": _as_is,
}


def wrong(key: str, got: Any, allowed: str, name: str, place: str) -> DataError:
    """Return the error that says what a field must be, and what was got."""
    try:
        shown = repr(got)
    except RecursionError:
        shown = "a value nested very deep"
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return DataError(
        f"{key} of rollout {name!r} must be {allowed}, got {shown}",
        code="ACC110",
        where=place,
        hint=f"Mend {key}, or leave the field out",
    )
