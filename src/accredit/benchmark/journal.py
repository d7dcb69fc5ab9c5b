"""Results on disk as they come: one JSON line a cell, so that a killed run goes on where it was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from accredit.errors import DataError
from accredit.store.journal import LineJournal, read_plan, read_records

__all__ = ["Cell", "Journal", "Place", "open_journal", "read_journal"]

SCHEMA = "accredit.bench/1"
_CODE = "ACC840"


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
        own = {f.name: getattr(self, f.name) for f in fields(self)}  # `asdict` would copy every number
        return {**asdict(own.pop("place")), **own}


class Journal:
    """An open journal: what was done before, and a place to add to.

    Args:
        cells: results by place.
        out: keeps them.
    """

    def __init__(self, cells: Iterable[Cell], out: LineJournal) -> None:
        self.cells = {cell.place: cell for cell in cells}
        self._out = out

    def add(self, cells: Iterable[Cell]) -> None:
        """Append results; they are on the disk when this returns.

        Raises:
            StoreError: if they cannot be written.
        """
        added = list(cells)
        self.cells |= {cell.place: cell for cell in added}
        self._out.add(*(cell.to_dict() for cell in added))


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
    if path is not None and not resume:
        path.unlink(missing_ok=True)
    with LineJournal(path, SCHEMA, plan, resume=True, code=_CODE) as out:
        yield Journal(_cells(out.records(dict)), out)


def read_journal(path: str | Path) -> tuple[dict[str, Any], list[Cell]]:
    """Return the plan and the cells of a journal.

    Args:
        path: ``journal.jsonl`` of a run.

    Raises:
        DataError: if it is no journal.
    """
    plan = read_plan(Path(path), SCHEMA, code=_CODE)
    return plan, _cells(read_records(Path(path), dict, code=_CODE))


def _cells(records: Iterable[dict[str, Any]]) -> list[Cell]:
    return [_cell(record) for record in records]


def _cell(fields: dict[str, Any]) -> Cell:
    try:
        place = Place(fields["family"], fields["setting"], int(fields["seed"]), fields["method"])
        rest = {k: fields[k] for k in ("metrics", "cost", "seconds", "unable", "code")}
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"a line of the journal is no result: {error!r}",
            code=_CODE,
            hint="Give another folder, or --no-resume to begin anew",
        ) from error
    seen = {k: fields[k] for k in ("bins", "curve", "memory") if k in fields}
    return Cell(place, **rest, **seen)
