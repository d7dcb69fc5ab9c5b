"""An append-only file of results: what was done survives the process, and a job goes on from there.

The first line says what the job is; each further line is one JSON object, handed to the system in one
piece and flushed. What a killed process left half written is cut off when the file is opened again.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from accredit.errors import DataError, StoreError

__all__ = ["LineJournal"]


class LineJournal:
    """Records of a job, in the order in which they were added.

    Args:
        path: the file; None keeps nothing on disk.
        schema: name of the form, in the first line.
        plan: what the job is, JSON-ready; a journal of another plan is refused.
        resume: go on with what is there; else the file must not be there.

    Raises:
        DataError: if the file is of another plan or no such journal, or is there without ``resume``.
        StoreError: if it cannot be opened, or another process has it open.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "job.journal"
        >>> with LineJournal(path, "demo/1", {"n": 2}) as journal:
        ...     journal.add({"done": 0})
        >>> with LineJournal(path, "demo/1", {"n": 2}, resume=True) as journal:
        ...     list(journal)
        [{'done': 0}]
    """

    def __init__(
        self, path: str | Path | None, schema: str, plan: Mapping[str, Any], *, resume: bool = False
    ) -> None:
        self.path = None if path is None else Path(path)
        self._header = json.loads(json.dumps({"schema": schema, "plan": dict(plan)}))
        self._file: int | None = None
        if self.path is not None:
            self._open(self.path, resume)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the records that are on disk, one at a time."""
        if self.path is not None:
            with self.path.open("rb") as lines:
                next(lines, None)
                for line in lines:
                    yield msgspec.json.decode(line)

    def add(self, record: Mapping[str, Any]) -> None:
        """Append a record; it is on the disk when this returns.

        Raises:
            StoreError: if it cannot be written.
        """
        if self._file is not None:
            self._write(msgspec.json.encode(record) + b"\n")

    def close(self, *, remove: bool = False) -> None:
        """Let others open the file.

        Args:
            remove: the job is finished and its result is elsewhere.
        """
        if self._file is not None:
            if remove and self.path is not None:
                self.path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None

    def __enter__(self) -> LineJournal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, path: Path, resume: bool) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"{path} is in use by another run", code="ACC804", hint="Wait for it") from None
        except OSError as error:
            raise StoreError(
                f"{path} cannot be written: {error.strerror or error}",
                code="ACC804",
                hint="Give another place",
            ) from error
        try:
            self._begin(path, resume)
        except DataError:
            self.close()
            raise

    def _begin(self, path: Path, resume: bool) -> None:
        """Check what is there, cut off its torn end, or write the first line."""
        assert self._file is not None
        whole = self._whole(path)
        if whole and not resume:
            raise DataError(
                f"{path} holds a job that did not end",
                code="ACC757",
                where=str(path),
                hint="Go on with it (--resume), or delete it",
            )
        os.ftruncate(self._file, whole)
        if not whole:
            self._write(msgspec.json.encode(self._header) + b"\n")

    def _whole(self, path: Path) -> int:
        """Return how many bytes from the beginning are whole records."""
        size = 0
        with path.open("rb") as lines:
            for number, line in enumerate(lines):
                found = _decoded(line)
                if number == 0 and found is not None:
                    self._check(found, path)
                if found is None:
                    break
                size += len(line)
        if not size and path.stat().st_size and _foreign(path):
            raise DataError(f"{path} is no journal", code="ACC757", where=str(path), hint="Give another file")
        return size

    def _check(self, found: Mapping[str, Any], path: Path) -> None:
        if found.get("schema") != self._header["schema"]:
            raise DataError(f"{path} is no journal of this kind", code="ACC757", where=str(path))
        mine, other = self._header["plan"], found.get("plan") or {}
        apart = [name for name in sorted({*mine, *other}) if mine.get(name) != other.get(name)]
        if apart:
            told = "; ".join(f"{name} was {other.get(name)!r}, now {mine.get(name)!r}" for name in apart)
            raise DataError(
                f"{path} holds another job: {told[:300]}",
                code="ACC757",
                where=str(path),
                hint="Ask for the same as before, or delete it to begin anew",
            )

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(self._file, left) :]
            os.fsync(self._file)
        except OSError as error:
            raise StoreError(
                f"the journal {self.path} cannot be written: {error.strerror or error}",
                code="ACC804",
                hint="Free some space and resume: the job goes on from here",
            ) from error


def _decoded(line: bytes) -> dict[str, Any] | None:
    """A whole line's object; None for what a killed process left."""
    if not line.endswith(b"\n"):
        return None
    try:
        found = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None


def _foreign(path: Path) -> bool:
    """Whether a file that begins with no header is somebody's (a torn header is a single piece of a line)."""
    with path.open("rb") as file:
        head = file.read(10)
    return not b'{"schema":'.startswith(head)
