"""Token methods against exact token truth: the run, its tables, and where two papers disagree."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import accredit
from accredit.agreement import Estimate, interval
from accredit.benchmark.files import put_section
from accredit.benchmark.journal import Cell, Place, open_journal
from accredit.benchmark.leaderboard import BASELINE, LEVEL
from accredit.benchmark.plan import SEEDS_A_RUN
from accredit.benchmark.token_cells import TOKEN_MEASURES, Rollouts, Trial, token_cells, trials
from accredit.benchmark.uncertainty import Difference, difference, holm
from accredit.errors import ParamError, suggest
from accredit.store.atomic import atomic_file
from accredit.worlds.families.toklm import RULES

__all__ = [
    "ALL",
    "TOKEN_SCALES",
    "Contrast",
    "TokenRow",
    "TokenScale",
    "Tokens",
    "bench_tokens",
    "token_rows",
]

ALL = "all rules"
JOURNAL = "tokens.jsonl"
COMPARED = ("spearman_group", "gradient")  # measures whose difference to grpo is tested
CONTRASTED = ("spearman_failure", "gradient_failure")
Progress: TypeAlias = Callable[[int, int, str], None]
_Values: TypeAlias = Mapping[str, Mapping[Place, Mapping[str, float]]]


@dataclass(frozen=True, slots=True)
class TokenScale:
    """How much is measured.

    Args:
        name: smoke or full.
        seeds: task seeds a rule, the unit of the intervals.
        groups: groups of 8 rollouts a task.
        success_rates: exact, of the policies.
        rules: of `toklm`.
    """

    name: str
    seeds: int
    groups: int
    success_rates: tuple[float, ...]
    rules: tuple[str, ...] = RULES


TOKEN_SCALES = {
    "smoke": TokenScale("smoke", 3, 4, (0.5,)),
    "full": TokenScale("full", 20, 16, (0.5, 0.2, 0.8)),
}


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One trial under one success rate.

    Args:
        rule: of `toklm`, or `ALL` of them together.
        success_rate: of the policies.
        method: label.
        method_id: of the method; "" for a reference.
        kind: reference, method, variant or control.
        note: what is special about it.
        n: tasks.
        metrics: with 95 % intervals over tasks, by `TOKEN_MEASURES`.
        versus: difference to grpo on the same tasks, of `COMPARED`.
        p: of those, corrected by Holm over the rows of the table.
        against: of a control, and where a signal was made otherwise: difference to the method as it is,
            of `COMPARED` and ``spearman``; p uncorrected.
        unable: why it could not run; "" if it did.
    """

    rule: str
    success_rate: str
    method: str
    method_id: str
    kind: str
    note: str
    n: int = 0
    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    versus: Mapping[str, Difference] = field(default_factory=dict)
    p: Mapping[str, float] = field(default_factory=dict)
    against: Mapping[str, Difference] = field(default_factory=dict)
    unable: str = ""

    def verdict(self, name: str) -> str:
        """Return ``better`` or ``worse`` than grpo at the corrected 5 % level, else ``same``.

        Args:
            name: of a measure; one that was not tested has no verdict, "".
        """
        if name not in self.versus:
            return ""
        if self.p[name] > LEVEL:
            return "same"
        return "better" if self.versus[name].value > 0 else "worse"


@dataclass(frozen=True, slots=True)
class Contrast:
    """hapo against eapo on failed rollouts, under one rule and success rate.

    Args:
        rule: of `toklm`, or `ALL` of them together.
        success_rate: of the policies.
        measure: one of `CONTRASTED`.
        hapo: its number.
        eapo: likewise.
        apart: hapo minus eapo on the same tasks.
        p: of that, corrected by Holm over rules and success rates.
    """

    rule: str
    success_rate: str
    measure: str
    hapo: Estimate
    eapo: Estimate
    apart: Difference
    p: float

    @property
    def nearer(self) -> str:
        """Which of the two is nearer to the truth; "" where they cannot be told apart."""
        if self.p > LEVEL:
            return ""
        return "hapo" if self.apart.value > 0 else "eapo"


@dataclass(frozen=True, eq=False)
class Tokens:
    """Results of the token benchmark.

    Args:
        plan: what was measured.
        cells: one a trial, rule, success rate and task seed.
        rows: one a trial and success rate, by rule and over all rules.
        contrasts: hapo against eapo on failures.
    """

    plan: dict[str, Any]
    cells: tuple[Cell, ...]
    rows: tuple[TokenRow, ...]
    contrasts: tuple[Contrast, ...]

    def row(self, method: str, rule: str = ALL, success_rate: str = "0.5") -> TokenRow:
        """Return one row.

        Args:
            method: label.
            rule: of `toklm`, or `ALL`.
            success_rate: as in the plan.

        Raises:
            KeyError: if it was not measured.
        """
        for row in self.rows:
            if (row.method, row.rule, row.success_rate) == (method, rule, success_rate):
                return row
        raise KeyError((method, rule, success_rate))

    def to_dict(self) -> dict[str, Any]:
        """Return plan and tables as JSON-ready fields."""
        rows = [{**asdict(r), "verdict": {n: r.verdict(n) for n in r.versus}} for r in self.rows]
        return {
            "schema": "accredit.tokens/1",
            "plan": self.plan,
            "measures": dict(TOKEN_MEASURES),
            "rows": rows,
            "contrasts": [{**asdict(c), "nearer": c.nearer} for c in self.contrasts],
        }

    def save(self, folder: str | Path) -> Path:
        """Write ``tokens.json``.

        Args:
            folder: is made where it is missing.

        Raises:
            StoreError: if it cannot be written.
        """
        path = Path(folder) / "tokens.json"
        with atomic_file(path) as out:
            out.write(json.dumps(self.to_dict(), indent=1, allow_nan=False).encode() + b"\n")
        return path

    def save_page(self, path: str | Path) -> Path:
        """Put the section on tokens into the page of results, which is made where it is missing.

        Args:
            path: ends in ``.md``.

        Raises:
            StoreError: if it cannot be written.
        """
        from accredit.views.bench_tokens import token_section  # pictures come last

        return put_section(path, token_section(self.to_dict()))


def bench_tokens(
    methods: str | Sequence[str] = "all",
    scale: str | TokenScale = "smoke",
    *,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = True,
    progress: Progress | None = None,
) -> Tokens:
    """Return how far the credit of tokens is from their exact advantages, with negative controls.

    Args:
        methods: ``all`` = every method with a number a token, those that reweight tokens, and
            siop, gigpo, crbc; or ids.
        scale: ``smoke`` (seconds), ``full`` (20 task seeds, three success rates: minutes), or a scale.
        seed: other numbers measure other tasks.
        out: folder of the journal and of ``tokens.json``; None keeps all in memory.
        resume: go on with what the folder's journal has.
        progress: called with what is done, what there is in all, and what comes now.

    Raises:
        ParamError: for an unknown method or scale.
        DataError: if the folder holds a run of another plan.
        StoreError: if the folder cannot be written.

    Example:
        >>> tiny = TokenScale("tiny", seeds=2, groups=2, success_rates=(0.5,), rules=("parity",))
        >>> bench_tokens(["hapo"], tiny).row("truth").metrics["spearman"].value
        1.0
    """
    size = _scale_of(scale)
    asked = trials(methods if isinstance(methods, str) else list(methods))
    plan = {"scale": asdict(size), "seed": seed, "version": accredit.__version__}
    path = None if out is None else Path(out) / JOURNAL
    with open_journal(path, plan, resume=resume) as journal:
        tasks = list(_tasks(size, seed))
        for done, task in enumerate(tasks):
            missing = [t for t in asked if task.place(t.entry.label) not in journal.cells]
            if missing and progress is not None:
                progress(done, len(tasks), f"{task.rule}, {task.success_rate:g}, seed {task.seed}")
            journal.add(token_cells(replace(task), missing))  # a copy, whose tables go with it
        cells = tuple(journal.cells[task.place(t.entry.label)] for task in tasks for t in asked)
    found = Tokens(plan, cells, token_rows(cells, asked), _contrasts(cells))
    if out is not None:
        found.save(out)
    return found


def _scale_of(name: str | TokenScale) -> TokenScale:
    if isinstance(name, TokenScale):
        return name
    if name not in TOKEN_SCALES:
        raise ParamError(f"no scale {name!r}", hint=suggest(name, TOKEN_SCALES))
    return TOKEN_SCALES[name]


def _tasks(size: TokenScale, seed: int) -> Iterator[Rollouts]:
    for rate in size.success_rates:
        for rule in size.rules:
            for i in range(size.seeds):
                yield Rollouts(rule, rate, SEEDS_A_RUN * seed + i, size.groups)


def token_rows(cells: Iterable[Cell], asked: Sequence[Trial]) -> tuple[TokenRow, ...]:
    """Return the tables: by success rate all rules together, then each rule.

    Args:
        cells: of the run.
        asked: its trials.
    """
    found: list[TokenRow] = []
    by_rate: dict[str, list[Cell]] = {}
    for cell in cells:
        by_rate.setdefault(cell.place.setting, []).append(cell)
    for rate, own in by_rate.items():
        families = list(dict.fromkeys(c.place.family for c in own))
        found += _table(own, asked, ALL, rate)
        for family in families:
            chosen = [c for c in own if c.place.family == family]
            found += _table(chosen, asked, family.removeprefix("toklm "), rate)
    return tuple(found)


def _table(cells: Sequence[Cell], asked: Sequence[Trial], rule: str, rate: str) -> list[TokenRow]:
    values = _values(cells)
    tested = [t for t in asked if t.kind != "reference" and t.entry.label != BASELINE]
    versus = {
        t.entry.label: {n: d for n in COMPARED if (d := _apart(values, t.entry.label, BASELINE, n))}
        for t in tested
    }
    corrected = {n: holm({m: d[n].p for m, d in versus.items() if n in d}) for n in COMPARED}
    unable = {c.place.method: c.unable for c in cells if c.unable}
    rows = []
    for trial in asked:
        label, method = trial.entry.label, trial.entry.method
        ran = list(values.get(label, {}).values())
        own = versus.get(label, {})
        rows.append(
            TokenRow(
                rule,
                rate,
                label,
                method,
                trial.kind,
                trial.note,
                len(ran),
                _metrics(ran),
                own,
                {n: corrected[n][label] for n in own},
                _against(values, trial),
                "" if ran else unable.get(label, ""),
            )
        )
    return rows


def _values(cells: Iterable[Cell]) -> _Values:
    """Numbers of each label by task (its place without the label)."""
    found: dict[str, dict[Place, Mapping[str, float]]] = {}
    for cell in cells:
        if not cell.unable:
            p = cell.place
            found.setdefault(p.method, {})[Place(p.family, p.setting, p.seed, "")] = cell.metrics
    return found


def _metrics(ran: Sequence[Mapping[str, float]]) -> dict[str, Estimate]:
    found = {}
    for name in TOKEN_MEASURES:
        estimate = interval(np.array([m[name] for m in ran if name in m]))
        if estimate is not None:
            found[name] = estimate
    return found


def _against(values: _Values, trial: Trial) -> dict[str, Difference]:
    """Difference of a control to the method with the right signal and its usual form."""
    if trial.kind != "control" and not trial.control:
        return {}
    names = ("spearman", *COMPARED)
    own, right = trial.entry.label, trial.entry.method
    return {n: d for n in names if (d := _apart(values, own, right, n))}


def _apart(values: _Values, first: str, second: str, name: str) -> Difference | None:
    a, b = values.get(first, {}), values.get(second, {})
    tasks = [t for t in a if name in a[t] and name in b.get(t, {})]
    if not tasks:
        return None
    return difference(np.array([a[t][name] for t in tasks]), np.array([b[t][name] for t in tasks]))


def _contrasts(cells: Sequence[Cell]) -> tuple[Contrast, ...]:
    """Return hapo against eapo on failures, one a rule (and all together), success rate and measure."""
    rates = dict.fromkeys(c.place.setting for c in cells)
    families = dict.fromkeys(c.place.family for c in cells)
    found: list[Contrast] = []
    for name in CONTRASTED:
        apart: dict[tuple[str, str], tuple[Estimate, Estimate, Difference]] = {}
        for rate in rates:
            for family in (ALL, *families):
                own = [c for c in cells if c.place.setting == rate and family in (ALL, c.place.family)]
                values = _values(own)
                between = _apart(values, "hapo", "eapo", name)
                if between is not None:
                    mine, other = (_metrics(list(values[m].values()))[name] for m in ("hapo", "eapo"))
                    apart[family.removeprefix("toklm "), rate] = mine, other, between
        corrected = holm([d.p for _, _, d in apart.values()])
        for i, ((rule, rate), numbers) in enumerate(apart.items()):
            found.append(Contrast(rule, rate, name, *numbers, corrected[str(i)]))
    return tuple(found)
