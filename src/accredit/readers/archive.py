"""ZIP archives as untrusted input: members one at a time, every size checked while it comes out.

The table of members is read by the standard library; the content is unpacked here, because deflate must be
bounded while it runs and zstandard (method 93) is not known to the library before Python 3.14.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from accredit.errors import DataError
from accredit.store.limits import Limits

__all__ = ["Archive"]

_CHUNK = 1 << 20
_ENCRYPTED = 1
_LOCAL = 30
_STORED, _DEFLATE, _ZSTD = 0, 8, 93


@dataclass(slots=True)
class Archive:
    """A ZIP file whose members can be read one at a time.

    Args:
        path: the file.
        limits: bounds; ``total_bytes`` is over all members together.
        members: table of members by name.
        unpacked: bytes that came out so far.
    """

    path: Path
    limits: Limits
    members: Mapping[str, zipfile.ZipInfo]
    unpacked: int = 0

    @classmethod
    def open(cls, path: Path, limits: Limits) -> Archive:
        """Return the archive at a path.

        Raises:
            DataError: if its table of members is broken, lists one name twice, or lets members overlap.
        """
        try:
            with zipfile.ZipFile(path) as file:
                found = file.infolist()
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError) as error:
            raise _broken(path.name, f"is not a whole ZIP archive: {error}", str(path)) from error
        members = {info.filename: info for info in found}
        if len(members) < len(found):
            raise _broken(path.name, "names a member twice", str(path))
        if sum(info.compress_size for info in found) > path.stat().st_size:
            raise _broken(path.name, "has members that share their bytes", str(path))
        return cls(path, limits, members)

    def read(self, name: str) -> bytes:
        """Return the content of a member.

        Raises:
            DataError: if it is damaged, encrypted, packed in an unknown way, or passes a limit.
        """
        info, where = self.members[name], f"{self.path.name} member {name}"
        if info.flag_bits & _ENCRYPTED:
            raise _broken(where, "is encrypted", where)
        unpack = _METHODS.get(info.compress_type)
        if unpack is None:
            raise _broken(where, f"is packed by method {info.compress_type}", where)
        try:
            content = self._collect(unpack, info, where)
        except (zlib.error, OSError, EOFError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise _broken(where, f"is damaged: {error}", where) from error
        if zlib.crc32(content) != info.CRC:
            raise _broken(where, "does not have the checksum that the archive gives", where)
        return content

    def _collect(self, unpack: _Unpack, info: zipfile.ZipInfo, where: str) -> bytes:
        pieces, size = [], 0
        with self.path.open("rb") as file:
            for piece in unpack(_Window(file, _start(file, info), info.compress_size)):
                size += len(piece)
                self.unpacked += len(piece)
                self.limits.check(f"{where} has bytes:", size, "line_bytes", where)
                self.limits.check(f"{self.path.name} has bytes:", self.unpacked, "total_bytes", where)
                if size > self.limits.ratio_from:
                    ratio = size // max(1, info.compress_size)
                    self.limits.check(f"{where} unpacks by a factor of", ratio, "ratio", where)
                pieces.append(piece)
        return b"".join(pieces)


def _broken(what: str, why: str, where: str) -> DataError:
    return DataError(f"{what} {why}", code="ACC909", where=where, hint="Copy or write the file again")


def _start(file: BinaryIO, info: zipfile.ZipInfo) -> int:
    """Return where a member's content begins; its own header may be longer than the table says."""
    file.seek(info.header_offset)
    header = file.read(_LOCAL)
    if len(header) < _LOCAL or not header.startswith(b"PK\x03\x04"):
        raise EOFError("its header is not where the archive says")
    return info.header_offset + _LOCAL + sum(int.from_bytes(header[i : i + 2], "little") for i in (26, 28))


class _Window(io.RawIOBase):
    """A stretch of a file as a file of its own."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self._file = file
        self._left = size
        file.seek(start)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        want = self._left if size < 0 else min(size, self._left)
        piece = self._file.read(want)
        self._left -= len(piece)
        return piece


_Unpack = Callable[[_Window], Iterator[bytes]]


def _plain(window: _Window) -> Iterator[bytes]:
    while piece := window.read(_CHUNK):
        yield piece


def _inflate(window: _Window) -> Iterator[bytes]:
    stream = zlib.decompressobj(-15)
    packed = window.read(_CHUNK)
    while not stream.eof:
        if not packed:
            raise EOFError("it ends in the middle of compressed data")
        if piece := stream.decompress(packed, _CHUNK):
            yield piece
        packed = stream.unconsumed_tail or window.read(_CHUNK)


def _unzstd(window: _Window) -> Iterator[bytes]:
    import pyarrow as pa  # a quarter of a second that other files need not pay

    stream = pa.CompressedInputStream(pa.PythonFile(window, "r"), "zstd")
    while piece := stream.read(_CHUNK):
        yield piece


_METHODS: Mapping[int, _Unpack] = {_STORED: _plain, _DEFLATE: _inflate, _ZSTD: _unzstd}
