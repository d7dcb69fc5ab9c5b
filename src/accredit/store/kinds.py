"""Kinds of files by the end of their names, and compressed streams for writing."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, cast

from accredit.errors import StoreError
from accredit.store.atomic import atomic_file

__all__ = ["SUFFIXES", "FileKind", "file_kind", "lines_file"]

FileKind: TypeAlias = Literal["parquet", "jsonl", "jsonl.gz", "jsonl.zst"]
SUFFIXES: dict[str, FileKind] = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".jsonl.gz": "jsonl.gz",
    ".jsonl.zst": "jsonl.zst",
}
_GZIP_LEVEL = 6


def file_kind(path: str | Path) -> FileKind:
    """Return the kind of file that a name asks for.

    Raises:
        StoreError: if the name ends in none of the known suffixes.

    Example:
        >>> file_kind("run7/rollouts.jsonl.zst")
        'jsonl.zst'
    """
    name = Path(path).name.lower()
    for suffix, kind in SUFFIXES.items():
        if name.endswith(suffix):
            return kind
    raise StoreError(
        f"the kind of file is not clear from the name {Path(path).name!r}",
        code="ACC913",
        where=str(path),
        hint=f"End the name in one of {', '.join(SUFFIXES)}",
    )


@contextmanager
def lines_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open a JSON Lines file for writing: atomic, compressed as its name says.

    Args:
        path: ends in ``.jsonl``, ``.jsonl.gz`` or ``.jsonl.zst``.

    Raises:
        StoreError: if it cannot be written.
    """
    kind = file_kind(path)
    with atomic_file(path) as raw:
        if kind == "jsonl.gz":
            # No name and no time inside: equal rollouts give equal bytes.
            with gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0) as packed:
                yield cast("BinaryIO", packed)
        elif kind == "jsonl.zst":
            import pyarrow as pa  # a quarter of a second that other files need not pay

            with pa.CompressedOutputStream(pa.PythonFile(_Kept(raw), "w"), "zstd") as packed:
                yield cast("BinaryIO", packed)
        else:
            yield raw


class _Kept(io.RawIOBase):
    """A stream that stays open when its compressor closes: the atomic file still has to flush it."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._raw.write(data)
