"""An append-only file of results: what was done survives the process, and a job goes on from there.

The first line says what the job is; each further line is one JSON object, handed to the system in one
piece. What a killed process left half written is cut off when the file is opened again.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from accredit.errors import DataError, StoreError

__all__ = ["LineJournal", "read_plan", "read_records"]

Kind = TypeVar("Kind")


class LineJournal:
    """Records of a job, in the order in which they were added.

    Args:
        path: the file; None keeps nothing on disk.
        schema: name of the form, in the first line.
        plan: what the job is, JSON-ready; a journal of another plan is refused.
        resume: go on with what is there; else the file must not be there.
        code: of the errors about a file that does not fit.
        sync: seconds between flushes to the device; 0 = each time.  A killed process loses nothing
            either way, a machine without power loses what was not flushed.
        wait: seconds for another process to let go of the file.

    Raises:
        DataError: if the file is of another plan or no such journal, or is there without ``resume``.
        StoreError: if it cannot be opened, or another process has it open.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "job.journal"
        >>> with LineJournal(path, "demo/1", {"n": 2}) as journal:
        ...     journal.add({"done": 0})
        >>> with LineJournal(path, "demo/1", {"n": 2}, resume=True) as journal:
        ...     list(journal.records(dict))
        [{'done': 0}]
    """

    def __init__(
        self,
        path: str | Path | None,
        schema: str,
        plan: Mapping[str, Any],
        *,
        resume: bool = False,
        code: str = "ACC757",
        sync: float = 0.0,
        wait: float = 0.0,
    ) -> None:
        self.path = None if path is None else Path(path)
        self._header = json.loads(json.dumps({"schema": schema, "plan": dict(plan)}))
        self._code, self._sync, self._synced = code, sync, time.monotonic()
        self._file: int | None = None
        if self.path is not None:
            self._open(self.path, resume, wait)

    def records(self, kind: type[Kind]) -> Iterator[Kind]:
        """Yield the records that are on disk, one at a time.

        Args:
            kind: what each is read as, see `msgspec.json.decode`.

        Raises:
            DataError: if one is damaged.
        """
        return iter(()) if self.path is None else read_records(self.path, kind, code=self._code)

    def add(self, *records: Any) -> None:
        """Append records in one piece; they survive the process when this returns.

        Raises:
            StoreError: if they cannot be written.
        """
        if self._file is not None and records:
            self._write(b"".join(msgspec.json.encode(record) + b"\n" for record in records))

    def close(self) -> None:
        """Flush to the device and let others open the file."""
        if self._file is not None:
            os.fsync(self._file)
        self._let_go()

    def _let_go(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> LineJournal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, path: Path, resume: bool, wait: float) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            _lock(self._file, wait)
        except BlockingIOError:
            self._let_go()
            raise StoreError(
                f"{path} is in use by another run", code="ACC804", hint="Wait for it, or name another file"
            ) from None
        except OSError as error:
            self._let_go()
            raise StoreError(
                f"{path} cannot be written: {error.strerror or error}",
                code="ACC804",
                hint="Give another place",
            ) from error
        try:
            self._begin(path, resume)
        except Exception:
            self._let_go()
            raise

    def _begin(self, path: Path, resume: bool) -> None:
        """Check what is there, cut off its torn end, or write the first line."""
        assert self._file is not None
        whole = self._whole(path)
        if whole and not resume:
            raise DataError(
                f"{path} holds a job that did not end",
                code=self._code,
                where=str(path),
                hint="Go on with it (--resume), or delete it",
            )
        os.ftruncate(self._file, whole)
        if not whole:
            self._write(msgspec.json.encode(self._header) + b"\n")

    def _whole(self, path: Path) -> int:
        """Return how many bytes from the beginning are whole lines."""
        size = 0
        with path.open("rb") as lines:
            for number, line in enumerate(lines):
                if not line.endswith(b"\n"):
                    break
                if number == 0:
                    self._check(_plan(line, path, self._header["schema"], self._code), path)
                size += len(line)
        if not size and path.stat().st_size and _foreign(path):
            raise _other(path, self._header["schema"], self._code)
        return size

    def _check(self, other: Mapping[str, Any], path: Path) -> None:
        mine = self._header["plan"]
        apart = [name for name in sorted({*mine, *other}) if mine.get(name) != other.get(name)]
        if apart:
            told = "; ".join(f"{name} was {other.get(name)!r}, now {mine.get(name)!r}" for name in apart)
            raise DataError(
                f"{path} holds another job: {told[:300]}",
                code=self._code,
                where=str(path),
                hint="Ask for the same as before, or delete it to begin anew",
            )

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(self._file, left) :]
            if time.monotonic() - self._synced >= self._sync:
                os.fsync(self._file)
                self._synced = time.monotonic()
        except OSError as error:
            raise StoreError(
                f"the journal {self.path} cannot be written: {error.strerror or error}",
                code="ACC804",
                hint="Free some space and run the same command again: it goes on from here",
            ) from error


def read_plan(path: Path, schema: str, *, code: str = "ACC757") -> dict[str, Any]:
    """Return what the job of a journal is.

    Args:
        path: of the journal.
        schema: name of the form.
        code: of the error.

    Raises:
        DataError: if the file is no such journal.
    """
    with path.open("rb") as lines:
        return _plan(next(lines, b""), path, schema, code)


def read_records(path: Path, kind: type[Kind], *, code: str = "ACC757") -> Iterator[Kind]:
    """Yield the records of a journal, which another process may be writing.

    Args:
        path: of the journal.
        kind: what each is read as, see `msgspec.json.decode`.
        code: of the error.

    Raises:
        DataError: if one is damaged; a torn last line is none.
    """
    decoder = msgspec.json.Decoder(kind)
    with path.open("rb") as lines:
        next(lines, None)
        for number, line in enumerate(lines, 2):
            if not line.endswith(b"\n"):
                return
            try:
                yield decoder.decode(line)
            except msgspec.DecodeError as error:
                raise DataError(
                    f"line {number} of the journal is damaged: {error}",
                    code=code,
                    where=str(path),
                    hint="Cut the file before that line: what follows is done again",
                ) from None


def _plan(line: bytes, path: Path, schema: str, code: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(line)
    except msgspec.DecodeError:
        found = None
    if not isinstance(found, dict) or found.get("schema") != schema:
        raise _other(path, schema, code)
    return found.get("plan") or {}


def _other(path: Path, schema: str, code: str) -> DataError:
    return DataError(
        f"{path} is no journal of this kind ({schema})",
        code=code,
        where=str(path),
        hint="Give another file",
    )


def _lock(file: int, wait: float) -> None:
    """Lock a file; the workers of a killed run hold it until they end."""
    until = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.05)
        else:
            return


def _foreign(path: Path) -> bool:
    """Whether a file that begins with no header is somebody's (a torn header is a single piece of a line)."""
    with path.open("rb") as file:
        head = file.read(10)
    return not b'{"schema":'.startswith(head)
