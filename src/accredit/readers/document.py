"""One JSON document: a list of native records, or one record, over any number of lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from accredit.errors import DataError
from accredit.readers.formats import Format, Head, Item, Reading, keys_at, register
from accredit.readers.jsonl import is_native_key

__all__ = ["DOCUMENT", "elements", "whole_text"]

_raw_elements = msgspec.json.Decoder(list[msgspec.Raw])
_BLANK = b" \t\r\n"


def _score(head: Head) -> int:
    text = head.text.lstrip(_BLANK)
    if text.startswith(b"["):
        return 1
    if isinstance(head.first, Mapping) and isinstance(head.first.get("rollouts"), list):
        return 1
    # An object that does not end in its first line; settings lie beside rollouts, and are none.
    if not text.startswith(b"{") or head.first is not None or b"\n" not in text or b'"' not in text:
        return 0
    keys = keys_at(text, 1)
    return int(not keys or "rollouts" in keys or is_native_key(keys))


def _items(reading: Reading) -> Iterator[Item]:
    for where, value in elements(reading):
        inner = value.get("rollouts") if isinstance(value, Mapping) and where == reading.source.name else None
        if isinstance(inner, list):
            yield from (Item(f"{where} rollout {i}", record) for i, record in enumerate(inner))
        else:
            yield Item(where, value)


def elements(reading: Reading) -> Iterator[tuple[str, Any]]:
    """Yield place and value of each element of a list, or of the one value that is no list.

    An element that cannot be decoded comes as its DataError; elements are decoded one at a time.

    Raises:
        DataError: if the document as a whole is not JSON or passes a limit.
    """
    text, name = whole_text(reading), reading.source.name
    if not text.lstrip(_BLANK).startswith(b"["):
        yield name, reading.decoder.decode(text, name)
        return
    try:
        raws = _raw_elements.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        mended = reading.decoder.decode(text, name)  # says what is wrong, exactly, or mends it
        yield from ((f"{name} element {i}", value) for i, value in enumerate(mended))
        return
    for i, raw in enumerate(raws):
        where = f"{name} element {i}"
        try:
            value = reading.decoder.decode(bytes(raw), where)
        except DataError as error:
            value = error
        yield where, value


def whole_text(reading: Reading) -> bytes:
    """Return a file's whole content, for formats that are one document.

    Raises:
        DataError: if it is longer than a line may be, or its compressed stream is broken.
    """
    pieces, size = [], 0
    for piece in reading.source.pieces():
        size += len(piece)
        reading.limits.check("the document has bytes:", size, "line_bytes", reading.source.name)
        pieces.append(piece)
    if reading.source.broken is not None:
        raise reading.source.broken
    return b"".join(pieces).removeprefix(b"\xef\xbb\xbf")


DOCUMENT = register(Format("json", "one JSON document: a list of native records", _score, _items))
