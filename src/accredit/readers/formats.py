"""The table of formats: each says whether a file is its own, and yields its rollouts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from accredit.data import Batch, Rollout
from accredit.data.builder import BatchBuilder
from accredit.errors import AccreditError, DataError, suggest
from accredit.readers.columns import mapping_hint
from accredit.store.decode import Decoder
from accredit.store.limits import Limits
from accredit.store.streams import Source

__all__ = ["Format", "Head", "Item", "Reading", "formats", "get_format", "keys_at", "recognise", "register"]


class Head(NamedTuple):
    """What can be told from the beginning of a file.

    Args:
        name: the file's name.
        magic: its first bytes as they are on the disk.
        text: its first bytes of content (decompressed, byte order mark taken off).
        first: its first JSON value, if the first line that is not blank is one.
        columns: column names, if it is Parquet.
        note: its schema name, if it is Parquet that accredit wrote.
    """

    name: str
    magic: bytes
    text: bytes
    first: Any = None
    columns: tuple[str, ...] = ()
    note: str = ""


class Item(NamedTuple):
    """One rollout of a file, with its place: a record, a Rollout, or why it cannot be used.

    A format whose file already holds columns yields whole Batches.
    """

    where: str
    content: Mapping[str, Any] | Rollout | Batch | AccreditError


@dataclass(slots=True)
class Reading:
    """What a format may use while it yields.

    Args:
        source: the file.
        limits: bounds.
        builder: takes the header, and findings by its ``log``.
        decoder: JSON lines to values, exactly.
        mapping: which column holds a field, for columns of the user's own (field to column).
    """

    source: Source
    limits: Limits
    builder: BatchBuilder
    decoder: Decoder
    mapping: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of file.

    Args:
        name: what ``format=`` says.
        title: one line for people.
        score: how surely a file is of this format: 0 no, 1 it can be read so, 2 its fields are
            these, 3 unmistakable.
        items: yields the rollouts one at a time.
    """

    name: str
    title: str
    score: Callable[[Head], int]
    items: Callable[[Reading], Iterator[Item]]


_FORMATS: dict[str, Format] = {}


def register(found: Format) -> Format:
    """Add a format to the table; a name can be taken once."""
    assert found.name not in _FORMATS, found.name
    _FORMATS[found.name] = found
    return found


def formats() -> tuple[Format, ...]:
    """Return all formats, in order of registration."""
    return tuple(_FORMATS.values())


def get_format(name: str) -> Format:
    """Return a format by name.

    Raises:
        DataError: naming the nearest one.
    """
    if name not in _FORMATS:
        raise DataError(f"no format {name!r}", code="ACC903", hint=suggest(name, _FORMATS))
    return _FORMATS[name]


def recognise(head: Head, path: Path) -> Format:
    """Return the format of a file, told from its content.

    Raises:
        DataError: naming what was found in it, if no format knows it.
    """
    scores = [(f.score(head), f) for f in _FORMATS.values()]
    best = max(score for score, _ in scores)
    if best > 0:
        return next(f for score, f in scores if score == best)
    found, mend = _describe(head)
    raise DataError(f"{path.name} {found}", code="ACC903", where=str(path), hint=mend)


_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"(\s*:)?|[{}\[\]]', re.DOTALL)


@lru_cache(maxsize=8)
def keys_at(text: bytes, level: int) -> frozenset[str]:
    """Return the keys of objects at a level of nesting, in a text that may end anywhere."""
    depth, found = 0, set()
    for token in _TOKEN.finditer(text):
        mark = token.group(0)[:1]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
        elif token.group(2) is not None and depth == level:
            found.add(token.group(1).decode("utf-8", "replace"))
    return frozenset(found)


_PACKED = {b"PK\x03\x04": "a zip archive", b"BZh": "compressed by bzip2", b"\xfd7zXZ": "compressed by xz"}
_WIDE = (b"\xff\xfe", b"\xfe\xff")
_FIELDS = "`id`, `group`, `reward` and `steps`"


def _describe(head: Head) -> tuple[str, str]:
    """Return what the file seems to be, and what to do about it."""
    for magic, what in _PACKED.items():
        if head.magic.startswith(magic):
            return f"is {what}", "Unpack it first; gzip and zstandard are read as they are"
    if head.magic.startswith(_WIDE):
        return "is UTF-16 text", "Save it as UTF-8: iconv -f utf-16 -t utf-8"
    if head.columns:
        names = ", ".join(head.columns[:20])
        hint = mapping_hint(head.columns, "completion")
        return f"has columns {names}; no format knows these", f"{hint}; or name them as a native record does"
    if isinstance(head.first, Mapping):
        names = ", ".join(str(k)[:40] for k in list(head.first)[:20])
        return f"has keys {names}; no format knows these", (
            f"Name them as a native record does ({_FIELDS}), or force a format: "
            f"format={' or '.join(repr(n) for n in _FORMATS)}. "
            f"{mapping_hint([str(k) for k in head.first][:20], 'completion')}"
        )
    if b"\0" in head.text or any(byte < 9 for byte in head.text[:512]):
        return f"holds bytes that are not text (it begins {head.magic[:8].hex(' ')})", (
            "Give JSON Lines (.jsonl, .gz, .zst) or Parquet"
        )
    begins = head.text[:40].decode("utf-8", "replace")
    return f"is not JSON Lines: it begins {begins!r}", "Give one JSON object a line, or Parquet"
