"""Untrusted bytes: decompressed piece by piece, counted, and cut into lines."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from accredit.errors import DataError
from accredit.store.limits import Limits

__all__ = ["Line", "Source"]

_CHUNK = 1 << 20
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_BOM = b"\xef\xbb\xbf"

Line = tuple[int, bytes | DataError]


class Source:
    """One file of rollouts: its name, its first bytes, and its content as pieces or lines.

    Args:
        path: the file.
        limits: bounds of the reading.

    Attributes:
        broken: why the compressed stream ended early, if it did; set while it is read.
    """

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path = path
        self.name = path.name
        self.limits = limits
        self.broken: DataError | None = None
        try:
            self.size = path.stat().st_size
            with path.open("rb") as raw:
                self.magic = raw.read(64)
        except (OSError, ValueError) as error:  # ValueError: a name with a null character
            raise DataError(
                f"{str(path)!r:.200} cannot be read: {getattr(error, 'strerror', None) or error}",
                code="ACC901",
                where=str(path),
                hint="Check the path and its permissions",
            ) from error
        self.compression = next((c for magic, c in _MAGIC.items() if self.magic.startswith(magic)), "")

    def pieces(self) -> Iterator[bytes]:
        """Yield the decompressed bytes; a stream that breaks ends early and sets ``broken``.

        Raises:
            DataError: if a limit on the decompressed size is passed.
        """
        total = 0
        with self.path.open("rb") as raw:
            stream = self._open(raw)
            while True:
                try:
                    piece = next(stream, b"")
                except (zlib.error, OSError, EOFError) as error:
                    self.broken = self._cut_off(error, total)
                    return
                if not piece:
                    return
                total += len(piece)
                self._count(total)
                yield piece

    def _open(self, raw: BinaryIO) -> Iterator[bytes]:
        if self.compression == "gzip":
            return _patient(raw, _gunzip)
        if self.compression == "zstd":
            return _patient(raw, _unzstd)
        return iter(lambda: raw.read(_CHUNK), b"")

    def _count(self, total: int) -> None:
        self.limits.check(f"{self.name} has bytes:", total, "total_bytes", str(self.path))
        if self.compression and total > self.limits.ratio_from:
            ratio = total // max(1, self.size)
            self.limits.check(f"{self.name} unpacks by a factor of", ratio, "ratio", str(self.path))

    def _cut_off(self, error: Exception, total: int) -> DataError:
        return DataError(
            f"{self.name} is a broken {self.compression or 'file'} after {total:,} bytes of content: {error}",
            code="ACC909",
            where=str(self.path),
            hint="Copy or write the file again; what came before the break is used",
        )

    def start(self, size: int = 1 << 16) -> bytes:
        """Return the first bytes of the content, without a byte order mark."""
        found = b""
        for piece in self.pieces():
            found += piece
            if len(found) >= size:
                break
        return found[:size].removeprefix(_BOM)

    def lines(self) -> Iterator[Line]:
        """Yield number (from 1) and bytes of each line, or the error in place of a line too long.

        Where the stream breaks inside a line, its beginning is the last one.
        """
        open_: list[bytes] = []
        number, size = 0, 0
        for piece in self.pieces():
            *whole, rest = piece.split(b"\n")
            for part in whole:
                number += 1
                yield number, self._line(number, open_, part, size)
                open_, size = [], 0
            size += len(rest)
            if size <= self.limits.line_bytes:
                open_.append(rest)
            else:
                open_.clear()
        if size:
            number += 1
            yield number, self._line(number, open_, b"", size)

    def _line(self, number: int, open_: list[bytes], part: bytes, size: int) -> bytes | DataError:
        if size + len(part) > self.limits.line_bytes:
            try:
                self.limits.check("the line has bytes:", size + len(part), "line_bytes", self.place(number))
            except DataError as error:
                return error
        line = b"".join([*open_, part]) if open_ else part
        return line.removeprefix(_BOM) if number == 1 else line

    def place(self, number: int) -> str:
        """Return ``file line N``."""
        return f"{self.name} line {number}"


def _patient(
    raw: BinaryIO, unpack: Callable[[BinaryIO, Callable[[], int]], Iterator[bytes]]
) -> Iterator[bytes]:
    """Yield what a decompressor gives, to the last byte before an error.

    A decompressor that meets an error in a call keeps what it had unpacked in that call. So after an
    error it starts again, skips what was given, and goes on in smaller and smaller pieces.
    """
    given, size = 0, _CHUNK
    while True:
        raw.seek(0)
        skip = given
        try:
            for piece in unpack(raw, lambda: min(skip, _CHUNK) or size):  # noqa: B023  # used at once
                fresh, skip = piece[skip:], max(0, skip - len(piece))
                if fresh:
                    given += len(fresh)
                    yield fresh
            return
        except (zlib.error, OSError):
            if size == 1:
                raise
            size = max(1, size >> 5)


def _gunzip(raw: BinaryIO, want: Callable[[], int]) -> Iterator[bytes]:
    """Yield the content of all members of a gzip file, pieces of at most ``want()`` bytes.

    Raises:
        zlib.error: at a wrong checksum, or at bytes after the last member that are no member.
        EOFError: if the last member is cut off.
    """
    packed = raw.read(_CHUNK)
    while packed:
        member = zlib.decompressobj(31)
        while not member.eof:
            if not packed:
                packed = raw.read(_CHUNK)
                if not packed:
                    raise EOFError("it ends in the middle of compressed data")
            if piece := member.decompress(packed, want()):
                yield piece
            packed = member.unconsumed_tail
        packed = (member.unused_data or raw.read(_CHUNK)).lstrip(b"\0")
        while not packed and (more := raw.read(_CHUNK)):
            packed = more.lstrip(b"\0")
        if packed and not b"\x1f\x8b".startswith(packed[:2]):
            raise zlib.error("bytes follow that are not compressed data")


def _unzstd(raw: BinaryIO, want: Callable[[], int]) -> Iterator[bytes]:
    import pyarrow as pa  # a quarter of a second that other files need not pay

    stream = pa.CompressedInputStream(pa.PythonFile(_Unclosed(raw), "r"), "zstd")
    while piece := stream.read(want()):
        yield piece


class _Unclosed(io.RawIOBase):
    """A file that its decompressor may not close: it may have to start again."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._raw.read(size)
