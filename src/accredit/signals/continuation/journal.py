"""Outcomes on disk as they come, one line each: what was paid is never paid again."""

from __future__ import annotations

from pathlib import Path

import msgspec

from accredit.errors import DataError
from accredit.planners import Outcome
from accredit.store.journal import LineJournal

__all__ = ["SCHEMA", "Journal"]

SCHEMA = "accredit.continuations/1"
_SYNC = 1.0  # seconds between flushes to the device
_WAIT = 2.0  # seconds for a lock, which the workers of a killed run hold until they end


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
        self._lines = LineJournal(path, SCHEMA, {}, resume=True, sync=_SYNC, wait=_WAIT)
        self.path = self._lines.path
        try:
            self._known = {line.id: line for line in self._lines.records(_Line)}
        except DataError:
            self._lines.close()
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
        self._lines.add(line)

    def close(self) -> None:
        """Flush to the device and let others open the file."""
        self._lines.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
