"""Results on disk as they come: one JSON line a cell, so that a killed run goes on where it was.

A line is written in one piece and flushed; a torn last line is dropped when the file is opened again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from accredit.errors import DataError, StoreError

__all__ = ["Cell", "Journal", "Place", "open_journal", "read_journal"]

SCHEMA = "accredit.bench/1"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a number was measured.

    Args:
        family: task family.
        setting: name of the setting (success rate, group size, noise).
        seed: task seed, the unit of the intervals.
        method: method id, or a reference (``truth``, ``random``).
    """

    family: str
    setting: str
    seed: int
    method: str


@dataclass(frozen=True, slots=True)
class Cell:
    """What one method scored at one place.

    Args:
        place: where.
        metrics: numbers by metric; undefined ones are left out.
        cost: what its signals cost, by counter.
        seconds: time of the assignment; for the truth, wall time of the whole task.
        unable: why it could not run; "" if it did.
        code: code of that reason.
        bins: calibration (``[place, said, true, n]`` a bin), where it was looked at.
        curve: learning (``[score before, tokens]`` an update, then the last score), likewise.
        memory: most bytes that the assignment held at once, where it was looked at.
    """

    place: Place
    metrics: Mapping[str, float] = field(default_factory=dict)
    cost: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    unable: str = ""
    code: str = ""
    bins: Sequence[Sequence[float]] = ()
    curve: Sequence[Sequence[float]] = ()
    memory: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as one flat JSON-ready object."""
        rest = asdict(self)
        return {**rest.pop("place"), **rest}


class Journal:
    """An open journal: what was done before, and a place to add to.

    Args:
        cells: results by place.
        out: open file; None keeps results in memory alone.
    """

    def __init__(self, cells: Iterable[Cell] = (), out: BinaryIO | None = None) -> None:
        self.cells = {cell.place: cell for cell in cells}
        self._out = out

    def add(self, cells: Iterable[Cell]) -> None:
        """Append results; they are on the disk when this returns.

        Raises:
            StoreError: if they cannot be written.
        """
        added = list(cells)
        self.cells |= {cell.place: cell for cell in added}
        if self._out is None or not added:
            return
        try:
            self._out.write(b"".join(msgspec.json.encode(c.to_dict()) + b"\n" for c in added))
            self._out.flush()
            os.fsync(self._out.fileno())
        except OSError as error:
            raise StoreError(
                f"the journal cannot be written: {error.strerror or error}",
                code="ACC804",
                hint="Free some space and run the same command again: it goes on from here",
            ) from error


@contextmanager
def open_journal(path: Path | None, plan: Mapping[str, Any], *, resume: bool) -> Iterator[Journal]:
    """Open the journal of a run, with what an earlier run of the same plan left in it.

    Args:
        path: the file; None = memory alone.
        plan: what was asked for; a journal of another plan is refused.
        resume: False begins anew.

    Raises:
        DataError: if the file belongs to another plan, or is no journal.
        StoreError: if it cannot be written.
    """
    if path is None:
        yield Journal()
        return
    header = json.loads(json.dumps({"schema": SCHEMA, "plan": dict(plan)}))
    cells: list[Cell] = []
    whole = 0
    if resume and path.exists():
        found, cells, whole = _read(path)
        if whole and found != header:
            raise DataError(
                f"{path} holds another benchmark: {_apart(found, header)}",
                code="ACC840",
                where=str(path),
                hint="Give another folder, or --no-resume to begin anew",
            )
    with _opened(path, whole) as out:
        if not whole:
            out.write(msgspec.json.encode(header) + b"\n")
        yield Journal(cells, out)


def _opened(path: Path, whole: int) -> BinaryIO:
    """The file with its whole lines alone, ready to be added to."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        out = path.open("r+b" if whole else "wb")
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror or error}", code="ACC804", hint="Give another folder"
        ) from error
    out.truncate(whole)
    out.seek(whole)
    return out


def read_journal(path: str | Path) -> tuple[dict[str, Any], list[Cell]]:
    """Return the plan and the cells of a journal.

    Args:
        path: ``journal.jsonl`` of a run.

    Raises:
        DataError: if it is no journal.
    """
    header, cells, _ = _read(Path(path))
    plan: dict[str, Any] = header.get("plan", {})
    return plan, cells


def _read(path: Path) -> tuple[dict[str, Any], list[Cell], int]:
    """Header, cells, and the number of bytes that are whole lines."""
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    lines = data[:whole].splitlines()
    if not lines:
        return {}, [], 0
    try:
        header = msgspec.json.decode(lines[0])
        if not isinstance(header, dict) or header.get("schema") != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}")
        return header, [_cell(msgspec.json.decode(line)) for line in lines[1:]], whole
    except (ValueError, KeyError, TypeError, msgspec.DecodeError) as error:
        raise DataError(
            f"{path} is no journal of a benchmark: {error}",
            code="ACC840",
            where=str(path),
            hint="Give another folder, or --no-resume to begin anew",
        ) from error


def _cell(fields: dict[str, Any]) -> Cell:
    place = Place(fields["family"], fields["setting"], int(fields["seed"]), fields["method"])
    rest = {k: fields[k] for k in ("metrics", "cost", "seconds", "unable", "code")}
    seen = {k: fields[k] for k in ("bins", "curve", "memory") if k in fields}
    return Cell(place, **rest, **seen)


def _apart(found: Mapping[str, Any], header: Mapping[str, Any]) -> str:
    mine, other = header["plan"], found.get("plan", {})
    names = [k for k in sorted({*mine, *other}) if mine.get(k) != other.get(k)]
    return "; ".join(f"{k} was {other.get(k)!r}, now {mine.get(k)!r}" for k in names)[:300]
