"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from accredit.errors import StoreError

__all__ = ["atomic_file"]


@contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for writing that takes its name only when it is complete and on the disk.

    Bytes go to a hidden neighbour, which is flushed to the disk and renamed at the end. If the
    block raises, or the process dies, whatever stood at ``path`` still stands there. A symbolic link
    stays, and what it points to is written.

    Args:
        path: where the file shall be; missing folders are made.

    Raises:
        StoreError: if the folder cannot be written, or ``path`` is there and no ordinary file; what
            the block raises passes through, an OSError as a StoreError.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "note.txt"
        >>> with atomic_file(target) as out:
        ...     _ = out.write(b"whole")
        >>> target.read_bytes()
        b'whole'
    """
    _check_ordinary(Path(path))
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:60]}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise _failed(target, error) from error
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        Path(name).chmod(_mode_of(target))
        Path(name).replace(target)
    except BaseException as error:
        with suppress(OSError):
            Path(name).unlink()
        if isinstance(error, OSError) and not isinstance(error, StoreError):
            raise _failed(target, error) from error
        raise
    _sync_folder(target.parent)


def _check_ordinary(path: Path) -> None:
    """Refuse a folder, device, pipe or socket: the rename at the end would put a file in its place."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # nothing there, or the writing itself says what is wrong
    if stat.S_ISREG(mode):
        return
    kinds = {stat.S_IFDIR: "folder", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
    raise StoreError(
        f"{path} cannot be written: it is a {kinds.get(stat.S_IFMT(mode), 'device')}, not a file",
        code="ACC912",
        where=str(path),
        hint="Give the name of a file",
    )


def _mode_of(target: Path) -> int:
    """Return the permissions that an ordinary new file has (mkstemp's are for the owner only)."""
    with suppress(OSError):
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync_folder(folder: Path) -> None:
    """Flush the rename itself, where the system lets a folder be flushed."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _failed(target: Path, error: OSError) -> StoreError:
    return StoreError(
        f"{target} cannot be written: {error.strerror or error}",
        code="ACC912",
        where=str(target),
        hint="Choose a folder that exists, is yours, and has space left",
    )
