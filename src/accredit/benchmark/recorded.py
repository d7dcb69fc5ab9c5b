"""Methods on recorded rollouts against their truth: one number a game, intervals over games."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from accredit.agreement import Estimate
from accredit.benchmark.files import put_section
from accredit.benchmark.uncertainty import interval
from accredit.data import Batch
from accredit.engine import assign, missing_needs
from accredit.errors import AccreditError, DataError
from accredit.index import Index, Key
from accredit.methods import catalog, get_method
from accredit.metrics import softmax_gradient, spearman_within
from accredit.store import Truth, read_truth
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["REFERENCE", "Judge", "Recorded", "RecordedRow", "recorded"]

CLEAR = 0.05  # |A| from which a sign is looked at, in reward units
REFERENCE = "truth"


@dataclass(frozen=True, slots=True)
class RecordedRow:
    """One method on recorded rollouts, each number a mean over games with its 95 % interval.

    Args:
        method: as `assign` is told.
        rank: Spearman's correlation of credit with A over the steps of a game; 0 where credit ties.
        sign: share of steps with |A| > 0.05 whose credit has the sign of A.
        cosine: of the policy gradient by credit with that by A, one logit a (state, action); None
            where the rollouts do not say how likely each action was.
        bias: mean of credit - A after the best scale >= 0, in reward units.
        unable: why it could not run; "" if it did.
        bought: continuations that it was given, in words; "" = none.
        continuations: their number, over all games.
        environment_steps: steps taken by them.
    """

    method: str
    rank: Estimate | None = None
    sign: Estimate | None = None
    cosine: Estimate | None = None
    bias: Estimate | None = None
    unable: str = ""
    bought: str = ""
    continuations: int = 0
    environment_steps: int = 0


@dataclass(frozen=True, slots=True)
class Recorded:
    """Methods on recorded rollouts.

    Args:
        rows: by rank, those that could not run last.
        games: groups with a known truth, the unit of the intervals.
        rollouts: of them.
        steps: of them with a known truth.
        about: what was measured: name of the rollouts, key, and what the truth says of itself.
    """

    rows: tuple[RecordedRow, ...]
    games: int
    rollouts: int
    steps: int
    about: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, JSON-ready."""
        return asdict(self)

    def save_page(self, path: str | Path) -> Path:
        """Put the section into the page of results, which is made where it is missing.

        Args:
            path: ends in ``.md``.

        Raises:
            StoreError: if it cannot be written.
        """
        from accredit.views.bench_recorded import recorded_section  # pictures come last

        return put_section(path, recorded_section(self.to_dict()))


def recorded(
    batch: Batch,
    truth: Truth | str | Path,
    methods: Sequence[str] | str = "all",
    *,
    key: Key | None = None,
    name: str = "",
    progress: Callable[[int, int, str], None] | None = None,
) -> Recorded:
    """Return how near each method comes to the truth of recorded rollouts.

    Args:
        batch: the rollouts.
        truth: of their steps, rows or a file of schema ``accredit.truth/1``.
        methods: ids (``"id:name=value"`` too); ``all`` = every method, those that lack a signal with
            the reason.
        key: which states count as the same.
        name: of the rollouts, for the page.
        progress: called with done, total and what comes now.

    Raises:
        DataError: if the truth knows none of these steps.
    """
    rows = truth if isinstance(truth, Truth) else read_truth(truth)
    column = rows.column(batch, "advantage")
    known = column.mask(batch.n_steps)
    if not known.any():
        raise DataError("the truth knows none of these steps", hint="Give the truth of these rollouts")
    names = [c.id for c in catalog() if c.yields != "table"] if methods == "all" else list(methods)
    judge = Judge(batch, np.asarray(column.values, np.float64), known)
    found = [judge.row(REFERENCE, judge.truth)]
    for i, method in enumerate(names):
        if progress is not None:
            progress(i, len(names), method)
        found.append(_measured(judge, batch, method, key))
    order = sorted(found, key=lambda row: (row.unable != "", -(row.rank.value if row.rank else 0.0)))
    rollouts = int(np.unique(judge.index.rollout_S[known]).size)
    about = {"rollouts": name, "key": key if isinstance(key, str) else None, **_told(rows.header)}
    return Recorded(tuple(order), judge.games.size, rollouts, int(known.sum()), about)


def _told(header: Mapping[str, Any]) -> dict[str, Any]:
    return {k: header[k] for k in ("kind", "world", "policy", "memory", "continuations") if k in header}


def _measured(judge: Judge, batch: Batch, method: str, key: Key | None) -> RecordedRow:
    lacking = missing_needs(batch, get_method(method)[0].card, key)
    if lacking:
        return RecordedRow(method, unable=f"needs {', '.join(lacking)}")
    try:
        return judge.row(method, assign(batch, method, key=key, seed=0).steps)
    except AccreditError as error:
        return RecordedRow(method, unable=str(error).partition("\n")[0])


class Judge:
    """Holds what all methods are measured by.

    Args:
        batch: the rollouts.
        truth: the true advantage ``[S]``.
        known: steps that are looked at ``[S]``.
    """

    def __init__(self, batch: Batch, truth: Floats, known: BoolArray) -> None:
        self.index = Index(batch)
        self.truth, self.known = truth, known
        self.games: Ints = np.unique(self.index.group_S[known])
        self._cells = _cells(batch, self.index)

    @cached_property
    def steps(self) -> list[Ints]:
        """Steps of each game that are looked at."""
        return [np.flatnonzero(self.known & (self.index.group_S == g)) for g in self.games.tolist()]

    def ranks(self, credit: Floats) -> list[float | None]:
        """Return the rank correlation in each game; None where the truth does not differ.

        Args:
            credit: ``[S]``.
        """
        return [self._rank(credit, s) for s in self.steps]

    def row(self, method: str, credit: Floats) -> RecordedRow:
        """Return the numbers of one credit.

        Args:
            method: for the row.
            credit: ``[S]``.
        """
        steps = self.steps
        size = float(credit[self.known] @ credit[self.known])
        scale = max(float(credit[self.known] @ self.truth[self.known]) / size, 0.0) if size > 0 else 0.0
        cosines = [self._cosine(credit, s) for s in steps]
        return RecordedRow(
            method,
            _mean(self.ranks(credit)),
            _mean([self._sign(credit, s) for s in steps]),
            _mean([c for c in cosines if c is not None]),
            _mean([float((scale * credit[s] - self.truth[s]).mean()) for s in steps]),
        )

    def _rank(self, credit: Floats, s: Ints) -> float | None:
        if np.ptp(self.truth[s]) == 0:
            return None
        return spearman_within(credit[s], self.truth[s], np.zeros(s.size, np.int64)) or 0.0

    def _sign(self, credit: Floats, s: Ints) -> float | None:
        clear = s[np.abs(self.truth[s]) > CLEAR]
        return float((np.sign(credit[clear]) == np.sign(self.truth[clear])).mean()) if clear.size else None

    def _cosine(self, credit: Floats, s: Ints) -> float | None:
        if self._cells is None:
            return None
        cell, state_of_cell, chance = self._cells
        mine, true = (softmax_gradient(c[s], cell[s], state_of_cell, chance) for c in (credit, self.truth))
        size = float(np.linalg.norm(mine) * np.linalg.norm(true))
        if not np.any(true):
            return None
        return float(mine @ true) / size if size > 0 else 0.0


def _mean(values: Sequence[float | None]) -> Estimate | None:
    return interval(np.array([v for v in values if v is not None], np.float64))


def _cells(batch: Batch, index: Index) -> tuple[Ints, Ints, Floats] | None:
    """Return each step's (prompt, action) cell, each cell's prompt, and each cell's probability.

    Read from ``metadata.commands`` and ``metadata.choice_logprobs`` of the steps; a prompt is a group's
    state with its text and its choices.
    """
    column = batch.columns.get("metadata_S")
    if column is None or not batch.has("action_S"):
        return None
    first: dict[Any, int] = {}
    states, chances, cell_S = list[int](), list[float](), np.zeros(batch.n_steps, np.int64)
    for s in range(batch.n_steps):
        told: Any = column.item(s)
        commands = told.get("commands") if isinstance(told, Mapping) else None
        logs = told.get("choice_logprobs") if isinstance(told, Mapping) else None
        action = batch.column("action_S").item(s)
        if not commands or not logs or action not in commands:
            return None
        prompt = (int(index.group_S[s]), int(index.state_S[s]), tuple(commands), tuple(logs))
        if prompt not in first:
            first[prompt] = len(states)
            states += [len(first) - 1] * len(commands)
            chances += np.exp(logs).tolist()
        cell_S[s] = first[prompt] + commands.index(action)
    return cell_S, np.array(states, np.int64), np.array(chances, np.float64)
