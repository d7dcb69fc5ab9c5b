"""One JSON document: a list of native records, or one record, over any number of lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from accredit.errors import DataError
from accredit.readers.formats import Format, Head, Item, Reading, register

__all__ = ["DOCUMENT"]

_elements = msgspec.json.Decoder(list[msgspec.Raw])
_BLANK = b" \t\r\n"


def _score(head: Head) -> int:
    text = head.text.lstrip(_BLANK)
    if text.startswith(b"["):
        return 1
    # An object that does not end in its first line.
    return 1 if text.startswith(b"{") and head.first is None and b"\n" in text and b'"' in text else 0


def _items(reading: Reading) -> Iterator[Item]:
    text, name = _whole(reading), reading.source.name
    if not text.lstrip(_BLANK).startswith(b"["):
        yield from _unpacked(reading.decoder.decode(text, name), name)
        return
    try:
        elements = _elements.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        reading.decoder.decode(text, name)  # says what is wrong, exactly
        raise
    for i, raw in enumerate(elements):
        where = f"{name} element {i}"
        try:
            yield Item(where, reading.decoder.decode(bytes(raw), where))
        except DataError as error:
            yield Item(where, error)


def _unpacked(value: Any, name: str) -> Iterator[Item]:
    inner = value.get("rollouts") if isinstance(value, Mapping) else None
    if isinstance(inner, list):
        for i, record in enumerate(inner):
            yield Item(f"{name} rollout {i}", record)
    else:
        yield Item(name, value)


def _whole(reading: Reading) -> bytes:
    pieces, size = [], 0
    for piece in reading.source.pieces():
        size += len(piece)
        reading.limits.check("the document has bytes:", size, "line_bytes", reading.source.name)
        pieces.append(piece)
    if reading.source.broken is not None:
        raise reading.source.broken
    return b"".join(pieces).removeprefix(b"\xef\xbb\xbf")


DOCUMENT = register(Format("json", "one JSON document: a list of native records", _score, _items))
