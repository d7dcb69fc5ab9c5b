"""Pipes as files: readers look at the beginning of a file before they read it."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

from accredit.errors import DataError
from accredit.store.limits import Limits

__all__ = ["STDIN", "seekable"]

STDIN = "-"
_CHUNK = 1 << 20


@contextmanager
def seekable(path: Path, limits: Limits) -> Iterator[Path]:
    """Give the path of a file or folder with a path's content: itself, or a copy of what a pipe brings.

    Args:
        path: a file, folder, pipe or terminal; ``-`` is standard input.
        limits: ``total_bytes`` bounds the copy, which is removed at the end.

    Raises:
        DataError: if the pipe cannot be read or brings more than the limit.
    """
    piped = str(path) == STDIN
    if not piped and (path.is_file() or path.is_dir() or not path.exists()):
        yield path
        return
    folder = Path(tempfile.mkdtemp(prefix="accredit-"))
    copy = folder / ("stdin" if piped else path.name)
    try:
        yield _copied(path, copy, limits)
    except DataError as error:
        error.where = error.where.replace(str(copy), str(path))  # the copy is gone when that is read
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copied(path: Path, copy: Path, limits: Limits) -> Path:
    try:
        given = nullcontext(sys.stdin.buffer) if str(path) == STDIN else path.open("rb")
        with given as source, copy.open("wb") as out:
            _copy(source, out, limits, copy.name)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}",
            code="ACC901",
            where=str(path),
            hint="Write it to a file, and give that",
        ) from error
    return copy


def _copy(source: BinaryIO, out: BinaryIO, limits: Limits, name: str) -> None:
    total = 0
    while piece := source.read(_CHUNK):
        total += len(piece)
        limits.check(f"{name} has bytes:", total, "total_bytes", name)
        out.write(piece)
