"""From courses to a table: regret and the way to 90 % of the optimum, at equal rollouts and equal tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import accredit
from accredit.agreement import Estimate, interval
from accredit.benchmark.equipment import REFERENCES
from accredit.benchmark.files import put_section
from accredit.benchmark.journal import Cell
from accredit.benchmark.leaderboard import BASELINE, LEVEL
from accredit.benchmark.learning import Lesson, courses, lesson_of
from accredit.benchmark.uncertainty import Difference, difference, holm
from accredit.metrics import reached, regret
from accredit.store.atomic import atomic_file
from accredit.typing import Floats

__all__ = ["GOAL", "LearnedRow", "Learning", "learn", "learned_rows"]

GOAL = 0.9  # share of the optimum that counts as learned


@dataclass(frozen=True, slots=True)
class LearnedRow:
    """What one credit taught in one family.

    Args:
        family: of the tasks.
        method: label.
        n: task seeds.
        metrics: with 95 % intervals over task seeds: ``regret`` (mean distance from the optimum, at
            equal rollouts), ``token_regret`` (at equal tokens: what the cheapest course of the same
            task seed spent in all), ``rollouts`` and ``tokens`` (until 90 % of the optimum; all that
            was spent where it was never reached), ``updates`` (likewise), ``final`` (last score),
            ``reached`` (share of seeds that came to 90 %), ``spent`` (tokens in all).
        versus: difference of each regret to grpo's on the same seeds.
        p: of those differences, corrected by Holm over the methods of the family.
        unable: why it could not run; "" if it did.
    """

    family: str
    method: str
    n: int = 0
    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    versus: Mapping[str, Difference] = field(default_factory=dict)
    p: Mapping[str, float] = field(default_factory=dict)
    unable: str = ""

    def verdict(self, name: str) -> str:
        """Return ``better`` or ``worse`` than grpo by a regret at the corrected 5 % level, else ``same``."""
        if name not in self.versus:
            return ""
        if self.p[name] > LEVEL:
            return "same"
        return "better" if self.versus[name].value < 0 else "worse"


@dataclass(frozen=True, eq=False)
class Learning:
    """Courses of policies, and their table.

    Args:
        plan: how they were taught.
        cells: one a family, task seed and method.
        rows: one a family and method.
    """

    plan: dict[str, Any]
    cells: tuple[Cell, ...]
    rows: tuple[LearnedRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON-ready fields."""
        rows = [{**asdict(r), "verdict": {n: r.verdict(n) for n in r.versus}} for r in self.rows]
        return {"schema": "accredit.learning/1", "plan": self.plan, "rows": rows}

    def save_page(self, path: str | Path) -> Path:
        """Put the section on learning into the page of results, which is made where it is missing.

        Args:
            path: ends in ``.md``.

        Raises:
            StoreError: if it cannot be written.
        """
        from accredit.views.bench_learning import learning_section  # pictures come last

        return put_section(path, learning_section(self.to_dict()))

    def save(self, folder: str | Path) -> Path:
        """Write ``learning.json``.

        Args:
            folder: is made where it is missing.

        Raises:
            StoreError: if it cannot be written.
        """
        path = Path(folder) / "learning.json"
        with atomic_file(path) as out:
            out.write(json.dumps(self.to_dict(), indent=1, allow_nan=False).encode() + b"\n")
        return path


def learn(
    families: str | Sequence[str] = "all",
    methods: str | Sequence[str] = "all",
    scale: str | Lesson = "smoke",
    *,
    out: str | Path | None = None,
    seed: int = 0,
    **options: Any,
) -> Learning:
    """Return what policies learn from each method's credit.

    Args:
        families: with a success rate; ``all`` = rooms and keydoor.
        methods: ids; ``all`` = grpo, rloo, gigpo, crbc.
        scale: ``smoke`` (3 task seeds), ``full`` (20), or a lesson.
        out: folder of the journal and of ``learning.json``; None keeps all in memory.
        seed: other numbers teach on other tasks.
        options: ``resume, progress`` of `courses`.

    Example:
        >>> tiny = Lesson("tiny", seeds=2, updates=3, calibrated=2)
        >>> [row.method for row in learn("keydoor", "grpo", tiny).rows]
        ['truth', 'grpo']
    """
    lesson = lesson_of(scale)
    cells = courses(families, methods, lesson, seed=seed, out=None if out is None else Path(out), **options)
    plan = {"lesson": asdict(lesson), "seed": seed, "version": accredit.__version__}
    found = Learning(plan, cells, learned_rows(cells, lesson))
    if out is not None:
        found.save(out)
    return found


def learned_rows(cells: Iterable[Cell], lesson: Lesson) -> tuple[LearnedRow, ...]:
    """Return one row a family and method, the smallest regret first, references before all.

    Args:
        cells: courses.
        lesson: how they were taught.
    """
    by_family: dict[str, list[Cell]] = {}
    for cell in cells:
        by_family.setdefault(cell.place.family, []).append(cell)
    return tuple(row for found in by_family.values() for row in _family(found, lesson))


def _family(cells: Sequence[Cell], lesson: Lesson) -> list[LearnedRow]:
    numbers: dict[str, dict[int, dict[str, float]]] = {}
    for cell in cells:
        if cell.curve:
            budget = _budget(cells, cell.place.seed)
            by_seed = numbers.setdefault(cell.place.method, {})
            by_seed[cell.place.seed] = _numbers(cell, lesson.groups * lesson.group_size, budget)
    compared = {name: _versus(numbers, name) for name in ("regret", "token_regret")}
    corrected = {n: holm({m: d.p for m, d in found.items()}) for n, found in compared.items()}
    rows = []
    for method in dict.fromkeys(c.place.method for c in cells):
        if method not in numbers:
            unable = next(c.unable for c in cells if c.place.method == method)
            rows.append(LearnedRow(cells[0].place.family, method, unable=unable))
            continue
        own = list(numbers[method].values())
        versus = {n: found[method] for n, found in compared.items() if method in found}
        metrics = {n: _interval(np.array([one[n] for one in own])) for n in own[0]}
        p = {n: corrected[n][method] for n in versus}
        rows.append(LearnedRow(cells[0].place.family, method, len(own), metrics, versus, p))
    return sorted(rows, key=_order)


def _order(row: LearnedRow) -> tuple[bool, bool, float]:
    value = row.metrics["regret"].value if row.metrics else 0.0
    return row.method not in REFERENCES, bool(row.unable), value


def _interval(values_N: Floats) -> Estimate:
    found = interval(values_N)
    assert found is not None
    return found


def _budget(cells: Sequence[Cell], seed: int) -> float:
    """Return the tokens that the cheapest course of a task seed spent."""
    return min(sum(c[1] for c in cell.curve) for cell in cells if cell.curve and cell.place.seed == seed)


def _numbers(cell: Cell, rollouts: int, budget: float) -> dict[str, float]:
    curve, optimum = np.array(cell.curve), cell.metrics["optimum"]
    score, tokens = curve[:, 0], curve[:-1, 1]
    units: Mapping[str, Floats] = {
        "updates": np.ones(tokens.size),
        "rollouts": np.full(tokens.size, float(rollouts)),
        "tokens": tokens,
    }
    at = {name: reached(score, cost, GOAL * optimum) for name, cost in units.items()}
    return {
        "regret": _sure(regret(score[:-1], units["rollouts"], optimum, np.inf)),
        "token_regret": _sure(regret(score[:-1], tokens, optimum, budget)),
        **{name: float(cost.sum()) if at[name] is None else _sure(at[name]) for name, cost in units.items()},
        "final": float(score[-1]),
        "reached": float(at["updates"] is not None),
        "spent": float(tokens.sum()),
    }


def _sure(value: float | None) -> float:
    assert value is not None  # a course has updates, and each costs something
    return value


def _versus(numbers: Mapping[str, Mapping[int, Mapping[str, float]]], name: str) -> dict[str, Difference]:
    base = numbers.get(BASELINE, {})
    found = {}
    for method, own in numbers.items():
        seeds = sorted(own.keys() & base.keys())
        if method not in (BASELINE, *REFERENCES) and seeds:
            first, second = (np.array([of[s][name] for s in seeds]) for of in (own, base))
            found[method] = difference(first, second)
    return found
