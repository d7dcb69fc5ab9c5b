"""Files that are there whole or not at all."""

from __future__ import annotations

import os
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
    block raises, or the process dies, whatever stood at ``path`` still stands there.

    Args:
        path: where the file shall be; missing folders are made.

    Raises:
        StoreError: if the folder cannot be written; what the block raises passes through, an
            OSError as a StoreError.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "note.txt"
        >>> with atomic_file(target) as out:
        ...     _ = out.write(b"whole")
        >>> target.read_bytes()
        b'whole'
    """
    target = Path(path)
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
