"""`bench`: every method on every family, against exact truth."""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import accredit
from accredit.benchmark.cells import measured
from accredit.benchmark.equipment import Entry, entries
from accredit.benchmark.journal import Cell, Journal, Place, open_journal
from accredit.benchmark.leaderboard import Board, boards_of
from accredit.benchmark.orderings import duels_of, orderings_of
from accredit.benchmark.plan import SEEDS_A_RUN, Scale, Setting, applies, families_of, scale_of
from accredit.benchmark.repeats import repeated
from accredit.store.atomic import atomic_file

__all__ = ["Bench", "bench"]

Progress: TypeAlias = Callable[[int, int, str], None]
JOURNAL = "journal.jsonl"
CLOCK = "truth"  # the cell that holds the wall time of its task


@dataclass(frozen=True, eq=False)
class Bench:
    """Results of a run.

    Args:
        plan: what was measured.
        cells: one a method, family, setting and task seed.
        seconds: wall time of this run; what an earlier run had left took its own (`measuring`).
        resumed: cells that an earlier run had left.
    """

    plan: dict[str, Any]
    cells: tuple[Cell, ...]
    seconds: float
    resumed: int

    @cached_property
    def boards(self) -> tuple[Board, ...]:
        """One leaderboard a family and setting."""
        return boards_of(self.cells)

    @property
    def measuring(self) -> float:
        """Wall time of all measurements, those of earlier runs included."""
        return sum(c.seconds for c in self.cells if c.place.method == CLOCK)

    def board(self, family: str, setting: str = "plain") -> Board:
        """Return the leaderboard of a family.

        Raises:
            KeyError: if it was not measured.
        """
        for board in self.boards:
            if (board.family, board.setting) == (family, setting):
                return board
        raise KeyError(f"{family}/{setting}")

    def to_dict(self) -> dict[str, Any]:
        """Return plan and leaderboards as JSON-ready fields."""
        return {
            "schema": "accredit.leaderboard/1",
            "plan": self.plan,
            "seconds": round(self.measuring, 1),
            "cells": len(self.cells),
            "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
            "boards": [board.to_dict() for board in self.boards],
            "duels": duels_of(self.cells),
            "orderings": [ordering.to_dict() for ordering in orderings_of(self.cells)],
        }

    def save(self, folder: str | Path) -> Path:
        """Write ``leaderboard.json``, ``leaderboard.parquet``, ``cells.parquet`` and ``report.html``.

        Args:
            folder: is made where it is missing.

        Raises:
            StoreError: if it cannot be written.
        """
        from accredit.benchmark.files import save  # Parquet is loaded where it is asked for

        return save(self, Path(folder))

    def save_page(self, path: str | Path) -> Path:
        """Write the page of results in Markdown (see `accredit.views.bench_page`).

        Sections that were made apart and that the page has already stay.

        Args:
            path: ends in ``.md``.

        Raises:
            StoreError: if it cannot be written.
        """
        from accredit.views.bench_page import page  # pictures come last
        from accredit.views.sections import with_sections

        target = Path(path)
        before = target.read_text(encoding="utf-8") if target.exists() else ""
        with atomic_file(target) as out:
            out.write(with_sections(page(self.to_dict()), before).encode())
        return target

    def __repr__(self) -> str:
        from accredit.views.bench_tables import bench_text  # pictures come last

        return bench_text(self.to_dict())


def bench(
    families: str | Sequence[str] = "all",
    methods: str | Sequence[str] = "all",
    scale: str | Scale = "smoke",
    *,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = True,
    progress: Progress | None = None,
) -> Bench:
    """Return how far every method's credit is from the exact truth of task families.

    Args:
        families: ``all``, or names (a list, or joined by commas).
        methods: ``all``, or ids, likewise; grpo and the references are always measured.
        scale: ``smoke`` (a minute) or ``full`` (20 task seeds, all settings: minutes to an hour).
        seed: other numbers measure other tasks.
        out: folder of the journal and the results; None keeps all in memory.
        resume: go on with what the folder's journal has.
        progress: called with what is done, what there is in all, and what comes now.

    Returns:
        The results; print them, or see ``.boards``.

    Raises:
        ParamError: for an unknown family, method or scale.
        DataError: if the folder holds a run of another plan.
        StoreError: if the folder cannot be written.

    Example:
        >>> from accredit.benchmark.plan import PLAIN
        >>> found = bench("rooms", ["gigpo"], Scale("tiny", seeds=2, groups=2, settings=(PLAIN,)))
        >>> found.board("rooms").row("truth").metrics["nmse"].value
        0.0
    """
    size = scale_of(scale)
    names = families_of(families)
    asked = entries(methods if isinstance(methods, str) else list(methods))
    # What could change numbers; families and methods may be added later.
    plan = {"scale": size.to_dict(), "seed": seed, "version": accredit.__version__}
    begin = time.perf_counter()
    path = None if out is None else Path(out) / JOURNAL
    with open_journal(path, plan, resume=resume) as journal:
        places = [Place(f, s.name, n, e.label) for f, s, n in _tasks(names, size, seed) for e in asked]
        resumed = sum(place in journal.cells for place in places)
        _run(journal, names, size, seed, asked, progress)
    cells = tuple(journal.cells[place] for place in places)
    shown = {**plan, "families": list(names), "methods": [e.label for e in asked]}
    found = Bench(shown, cells, time.perf_counter() - begin, resumed)
    if out is not None:
        found.save(out)
    return found


def _tasks(names: Sequence[str], size: Scale, seed: int) -> Iterator[tuple[str, Setting, int]]:
    """Families, settings and task seeds; seeds of different runs do not meet."""
    for family in names:
        for setting in (s for s in size.settings if applies(family, s)):
            for i in range(setting.seeds or size.seeds):
                yield family, setting, SEEDS_A_RUN * seed + i


def _run(
    journal: Journal,
    names: Sequence[str],
    size: Scale,
    seed: int,
    asked: Sequence[Entry],
    progress: Progress | None,
) -> None:
    tasks = list(_tasks(names, size, seed))
    for done, (family, setting, task_seed) in enumerate(tasks):
        missing = [e for e in asked if Place(family, setting.name, task_seed, e.label) not in journal.cells]
        if not missing:
            continue
        if progress is not None:
            progress(done, len(tasks), f"{family}, {setting.name}, seed {task_seed}")
        measure = repeated if setting.draws > 1 else measured
        begin = time.perf_counter()
        found = measure(family, setting, task_seed, setting.groups or size.groups, missing)
        journal.add(_clocked(found, time.perf_counter() - begin))


def _clocked(cells: Sequence[Cell], seconds: float) -> list[Cell]:
    """Cells with the wall time of the whole task on the truth's."""
    wall = round(seconds, 3)
    return [dataclasses.replace(c, seconds=wall) if c.place.method == CLOCK else c for c in cells]
