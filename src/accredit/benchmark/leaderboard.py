"""From cells to tables: each method's numbers with intervals, its difference to grpo, who ties with whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from accredit.agreement import Estimate, interval
from accredit.benchmark.equipment import REFERENCES
from accredit.benchmark.journal import Cell
from accredit.benchmark.uncertainty import Difference, difference, holm
from accredit.metrics import MEASURES
from accredit.typing import Floats

__all__ = ["BASELINE", "COUNTERS", "HEADLINE", "LEVEL", "Board", "Calibrated", "Row", "boards_of"]

BASELINE = "grpo"
HEADLINE = "nmse"
LEVEL = 0.05
MARGIN = 0.001  # of the headline: below it lie constants such as the eps under a deviation
COUNTERS = ("continuations", "scored_tokens", "judge_calls", "annotator_calls")


@dataclass(frozen=True, slots=True)
class Calibrated:
    """One bin of credit, over task seeds, in units of the truth's root mean square.

    Args:
        said: mean credit.
        true: mean true advantage, with its 95 % interval.
        n: steps.
    """

    said: float
    true: Estimate
    n: int


@dataclass(frozen=True, slots=True)
class Row:
    """One method on one family under one setting.

    Args:
        method: label.
        reference: whether it is no method (the truth itself, chance).
        n: task seeds with a headline number.
        metrics: every measure with its 95 % interval over task seeds.
        versus: headline minus grpo's on the same seeds; None for references and grpo.
        p: of that difference, corrected by Holm over the methods of this table.
        verdict: ``better`` or ``worse`` than grpo at the corrected 5 % level and by 0.001 or more,
            else ``same``.
        tie: number of its group: methods of a group are not separable from the group's first.
        cost: mean cost a task, by counter.
        seconds: mean time of the assignment.
        memory: most bytes that an assignment held at once; None where it was not watched.
        unable: why it could not run; "" if it did.
        bins: calibration over task seeds.
    """

    method: str
    reference: bool = False
    n: int = 0
    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    versus: Difference | None = None
    p: float | None = None
    verdict: str = ""
    tie: int | None = None
    cost: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    memory: int | None = None
    unable: str = ""
    bins: tuple[Calibrated, ...] = ()

    @property
    def headline(self) -> float:
        """The number that rows are sorted by; infinite where there is none."""
        found = self.metrics.get(HEADLINE)
        return float("inf") if found is None else found.value


@dataclass(frozen=True, slots=True)
class Board:
    """Methods on one family under one setting, the best first.

    Args:
        family: task family.
        setting: how it was played.
        rows: references, methods by headline, then those that could not run.
        skipped: task seeds whose truth is 0 everywhere.
        success_rate: exact chance of success that the policies had, mean over task seeds; None where
            the family has none.
    """

    family: str
    setting: str
    rows: tuple[Row, ...]
    skipped: int
    success_rate: float | None = None

    def row(self, method: str) -> Row | None:
        """Return a method's row, None if it was not asked for."""
        return next((row for row in self.rows if row.method == method), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the board as JSON-ready fields."""
        return asdict(self)


def boards_of(cells: Iterable[Cell]) -> tuple[Board, ...]:
    """Return one board a family and setting, in the order of the cells."""
    grouped: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        grouped.setdefault((cell.place.family, cell.place.setting), []).append(cell)
    return tuple(_board(family, setting, found) for (family, setting), found in grouped.items())


def _board(family: str, setting: str, cells: Sequence[Cell]) -> Board:
    by_method: dict[str, list[Cell]] = {}
    for cell in cells:
        by_method.setdefault(cell.place.method, []).append(cell)
    values = {m: _headline(found) for m, found in by_method.items()}
    compared = _versus(values)
    corrected = holm({m: d.p for m, d in compared.items()})
    ties = _ties({m: v for m, v in values.items() if m not in REFERENCES and v})
    rows = [_row(m, found, compared.get(m), corrected.get(m), ties.get(m)) for m, found in by_method.items()]
    rows.sort(key=lambda row: (not row.reference, bool(row.unable), row.headline, row.method))
    skipped = sum("nmse" not in cell.metrics for cell in by_method.get("truth", ()))
    rates = [c.metrics["success_rate"] for c in by_method.get("truth", ()) if "success_rate" in c.metrics]
    return Board(family, setting, tuple(rows), skipped, float(np.mean(rates)) if rates else None)


def _headline(cells: Iterable[Cell]) -> dict[int, float]:
    return {c.place.seed: c.metrics[HEADLINE] for c in cells if HEADLINE in c.metrics}


def _versus(values: Mapping[str, Mapping[int, float]]) -> dict[str, Difference]:
    base = values.get(BASELINE, {})
    found = {}
    for method, own in values.items():
        if method in (BASELINE, *REFERENCES) or not own.keys() & base.keys():
            continue
        found[method] = difference(*_paired(own, base))
    return found


def _paired(first: Mapping[int, float], second: Mapping[int, float]) -> tuple[Floats, Floats]:
    seeds = sorted(first.keys() & second.keys())
    return np.array([first[s] for s in seeds]), np.array([second[s] for s in seeds])


def _ties(values: Mapping[str, Mapping[int, float]]) -> dict[str, int]:
    """Number of each method's group: a method separable from the group's first begins the next one."""
    order = sorted(values, key=lambda m: (np.mean(list(values[m].values())), m))
    found: dict[str, int] = {}
    while order:
        leader, number = order[0], len(set(found.values())) + 1
        tested = [m for m in order[1:] if values[m].keys() & values[leader].keys()]
        corrected = holm({m: difference(*_paired(values[m], values[leader])).p for m in tested})
        end = next((i for i, m in enumerate(order) if i and corrected.get(m, 0.0) <= LEVEL), len(order))
        found |= dict.fromkeys(order[:end], number)
        order = order[end:]
    return found


def _row(
    method: str, cells: Sequence[Cell], versus: Difference | None, p: float | None, tie: int | None
) -> Row:
    ran = [cell for cell in cells if not cell.unable]
    if not ran:
        return Row(method, unable=cells[0].unable)
    metrics = {}
    for name in MEASURES:
        found = interval(np.array([c.metrics[name] for c in ran if name in c.metrics]))
        if found is not None:
            metrics[name] = found
    return Row(
        method,
        method in REFERENCES,
        sum(HEADLINE in c.metrics for c in ran),
        metrics,
        versus,
        p,
        _verdict(versus, p),
        tie,
        {k: float(np.mean([c.cost.get(k, 0) for c in ran])) for k in COUNTERS},
        0.0 if method in REFERENCES else float(np.mean([c.seconds for c in ran])),
        max((c.memory for c in ran if c.memory is not None), default=None),
        bins=_calibrated(ran),
    )


def _calibrated(cells: Sequence[Cell]) -> tuple[Calibrated, ...]:
    """Bins by place, each task seed counted once."""
    by_place: dict[int, list[Sequence[float]]] = {}
    for cell in cells:
        for one in cell.bins:
            by_place.setdefault(int(one[0]), []).append(one)
    rows = []
    for _, bins in sorted(by_place.items()):
        said, true, n = (np.array([b[i] for b in bins]) for i in (1, 2, 3))
        mean = interval(true)
        if mean is not None:
            rows.append(Calibrated(float(said.mean()), mean, int(n.sum())))
    return tuple(rows)


def _verdict(versus: Difference | None, p: float | None) -> str:
    if versus is None or p is None:
        return ""
    if p > LEVEL or abs(versus.value) < MARGIN:
        return "same"
    return "better" if versus.value < 0 else "worse"
