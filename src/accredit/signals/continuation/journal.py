"""Outcomes on disk as they come, one line each: what was paid is never paid again.

A line is handed to the system in one piece as soon as a continuation ends, so that a killed process
loses only what was still running; a torn last line is cut off when the file is opened again.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from accredit.errors import DataError, StoreError
from accredit.planners import Outcome

__all__ = ["SCHEMA", "Journal"]

SCHEMA = "accredit.continuations/1"
_SYNC = 1.0  # seconds between flushes to the device
_WAIT = 2.0  # seconds for a lock


class _Line(msgspec.Struct, omit_defaults=True):
    id: str
    mark: str
    outcome: Outcome


class Journal:
    """Finished continuations by id.

    Args:
        path: the file; None = memory alone.

    Raises:
        StoreError: if it cannot be opened, or another process has it open.
        DataError: if it is no journal of continuations.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._known: dict[str, _Line] = {}
        self._file: int | None = None
        self._synced = time.monotonic()
        if self.path is not None:
            try:
                self._open(self.path)
            except Exception:
                self._let_go()
                raise

    def __len__(self) -> int:
        return len(self._known)

    def get(self, id: str, mark: str) -> Outcome | None:
        """Return the outcome of a continuation, None if it was not played yet.

        Args:
            id: digest of all that decides it.
            mark: second digest of the same.

        Raises:
            DataError: if another continuation has this id.
        """
        line = self._known.get(id)
        if line is None:
            return None
        if line.mark != mark:
            raise DataError(
                f"two continuations have the digest {id}",
                hint="Change the job's seed: the digests are other ones then",
            )
        return line.outcome

    def add(self, id: str, mark: str, outcome: Outcome) -> None:
        """Keep an outcome; it survives the process when this returns.

        Raises:
            StoreError: if it cannot be written.
        """
        line = _Line(id, mark, outcome)
        self._known[id] = line
        if self._file is None:
            return
        try:
            os.write(self._file, msgspec.json.encode(line) + b"\n")
            if time.monotonic() - self._synced > _SYNC:
                os.fsync(self._file)
                self._synced = time.monotonic()
        except OSError as error:
            raise StoreError(
                f"the journal {self.path} cannot be written: {error.strerror or error}",
                code="ACC804",
                hint="Free some space and run the same command again: it goes on from here",
            ) from error

    def close(self) -> None:
        """Flush to the device and let others open the file."""
        if self._file is not None:
            os.fsync(self._file)
        self._let_go()

    def _let_go(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            _lock(self._file)
        except BlockingIOError:
            raise StoreError(
                f"{path} is in use by another run", hint="Wait for it, or name another journal"
            ) from None
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: {error.strerror or error}") from error
        whole = self._load(path)
        if whole == 0:
            os.ftruncate(self._file, 0)
            os.write(self._file, msgspec.json.encode({"schema": SCHEMA}) + b"\n")
        else:
            os.ftruncate(self._file, whole)

    def _load(self, path: Path) -> int:
        """Read the lines; return how many bytes of the file are whole lines."""
        whole = 0
        decoder = msgspec.json.Decoder(_Line)
        with path.open("rb") as lines:
            for number, text in enumerate(lines):
                if not text.endswith(b"\n"):
                    break
                if number == 0:
                    _check_header(text, path)
                else:
                    try:
                        line = decoder.decode(text)
                    except msgspec.DecodeError as error:
                        raise DataError(
                            f"line {number + 1} of the journal is damaged: {error}",
                            where=str(path),
                            hint="Cut the file before that line: what follows is played again",
                        ) from None
                    self._known[line.id] = line
                whole += len(text)
        return whole


def _lock(file: int) -> None:
    """Lock a file; wait a little, as the workers of a killed run still hold it until they end."""
    until = time.monotonic() + _WAIT
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return


def _check_header(text: bytes, path: Path) -> None:
    try:
        found: Any = msgspec.json.decode(text)
    except msgspec.DecodeError:
        found = None
    if not isinstance(found, Mapping) or found.get("schema") != SCHEMA:
        raise DataError(
            f"{path} is no journal of continuations", hint=f"Its first line does not say {SCHEMA}"
        )
