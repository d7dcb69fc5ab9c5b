"""Native JSON Lines: one record a line, a header first if there is one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from accredit.data.header import parse_header
from accredit.data.vocabulary import CONTROL, ROLLOUT_FIELDS
from accredit.errors import DataError, VersionError
from accredit.readers.formats import Format, Head, Item, Reading, register
from accredit.store.schema import ROLLOUTS, check_schema, header_fields

__all__ = ["JSONL", "is_native", "is_native_key", "native_items"]

_NATIVE = set(ROLLOUT_FIELDS) | CONTROL


def is_native(first: Any) -> int:
    """Score an object as a native record or header (see `Format.score`)."""
    if not isinstance(first, Mapping):
        return 0
    if str(first.get("schema", "")).startswith("accredit."):
        return 3
    if isinstance(first.get("steps"), list) and {"id", "group", "reward"} & first.keys():
        return 2
    return 1 if "steps" in first or len(_NATIVE & first.keys()) >= 2 else 0


def is_native_key(keys: Collection[str]) -> bool:
    """Return whether any of an object's keys is a field of a native record."""
    return not _NATIVE.isdisjoint(keys)


def _score(head: Head) -> int:
    if head.first is None:  # no line could be decoded: each of them says why
        start = head.text.lstrip()
        line, end, _ = start.partition(b"\n")
        return int(start.startswith(b"{") and (not end or line.rstrip().endswith(b"}")))
    return is_native(head.first)


def native_items(reading: Reading) -> Iterator[Item]:
    """Yield the records of a native JSONL file.

    Raises:
        VersionError: if the header names a newer schema.
        DataError: if the header names another schema, or a limit on the whole file is passed.
    """
    begun = False
    for number, line in reading.source.lines():
        if isinstance(line, DataError):
            begun = True
            yield Item(reading.source.place(number), line)
            continue
        if line.isspace() or not line:
            continue
        item = _item(reading, line, reading.source.place(number), first=not begun)
        begun = True
        if item is not None:
            yield item


def _item(reading: Reading, line: bytes, where: str, *, first: bool) -> Item | None:
    try:
        value = reading.decoder.decode(line, where)
        header = header_fields(value) if first else None
        if header is None and isinstance(value, Mapping) and "schema" in value:
            check_schema(value["schema"], ROLLOUTS, where)
    except (DataError, VersionError) as error:
        return Item(where, error)
    if header is not None:
        check_schema(header["schema"], ROLLOUTS, str(reading.source.path))
        reading.builder.open(parse_header(header))
        return None
    return Item(where, value)


JSONL = register(Format("jsonl", "native JSON Lines (also .gz, .zst)", _score, native_items))
