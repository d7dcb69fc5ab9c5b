"""Data blocks of the report: a JSON head and flat arrays, gzipped, in base64.

A block is ``gzip(uint32 head length | head JSON | array bytes)``. The head's ``arrays`` entry says
for each array its type, its offset after the head, and its length; ``report.js`` reads the same
layout with typed arrays.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accredit.typing import Array

__all__ = ["Block", "pack", "unpack"]

_TYPES = {"f4": "<f4", "i4": "<i4", "u2": "<u2", "i1": "i1", "u1": "u1"}
_ALIGN = 4


@dataclass(slots=True)
class Block:
    """What one data block holds.

    Args:
        head: JSON-ready fields.
        arrays: flat arrays by name; the dtype must be one of f4, i4, u2, i1, u1 (bool is u1).
    """

    head: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)


def pack(block: Block) -> str:
    """Return a block as base64 text, the same text for the same content.

    Raises:
        ValueError: an array holds NaN or infinity, or has a type that the page cannot read.

    Example:
        >>> block = unpack(pack(Block({"n": 2}, {"credit": np.array([0.5, -1], "f4")})))
        >>> block.head["n"], block.arrays["credit"].tolist()
        (2, [0.5, -1.0])
    """
    bodies, table = _bodies(block.arrays)
    head = json.dumps(
        {**block.head, "arrays": table}, ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )
    # Lone surrogates cannot be UTF-8; they are shown as the replacement character.
    encoded = head.encode("utf-8", "replace")
    encoded += b" " * (-len(encoded) % _ALIGN)
    raw = b"".join([np.uint32(len(encoded)).astype("<u4").tobytes(), encoded, *bodies])
    return base64.b64encode(_gzip(raw)).decode("ascii")


def unpack(text: str) -> Block:
    """Return the block that :func:`pack` wrote as ``text``."""
    raw = zlib.decompress(base64.b64decode(text), wbits=31)
    length = int(np.frombuffer(raw[:4], "<u4")[0])
    head: dict[str, Any] = json.loads(raw[4 : 4 + length])
    base = 4 + length
    table: Mapping[str, list[Any]] = head.pop("arrays")
    arrays = {
        name: np.frombuffer(raw, _TYPES[kind], count, base + offset)
        for name, (kind, offset, count) in table.items()
    }
    return Block(head, arrays)


def _bodies(arrays: Mapping[str, Array]) -> tuple[list[bytes], dict[str, list[Any]]]:
    """Return the aligned bytes of the arrays, and the table that finds them."""
    bodies: list[bytes] = []
    table: dict[str, list[Any]] = {}
    offset = 0
    for name, array in arrays.items():
        kind = _kind(name, array)
        body = array.astype(_TYPES[kind]).tobytes()
        body += b"\0" * (-len(body) % _ALIGN)
        table[name] = [kind, offset, int(array.size)]
        bodies.append(body)
        offset += len(body)
    return bodies, table


def _kind(name: str, array: Array) -> str:
    if array.dtype == np.bool_:
        return "u1"
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"array {name!r} of a report block holds NaN or infinity")
    kind = f"{array.dtype.kind}{array.dtype.itemsize}"
    if kind not in _TYPES:
        raise ValueError(
            f"array {name!r} of a report block has type {array.dtype}, use one of {list(_TYPES)}"
        )
    return kind


def _gzip(raw: bytes) -> bytes:
    """Gzip with no time stamp and no system byte, so that equal reports are equal files."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    out = bytearray(squeeze.compress(raw) + squeeze.flush())
    out[9] = 255
    return bytes(out)
