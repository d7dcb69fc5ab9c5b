"""How near a credit comes to the truth, one number a group, with intervals over groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from accredit.agreement import RESAMPLES, Estimate, interval
from accredit.data import Batch
from accredit.index import Index
from accredit.metrics import scale_of, softmax_gradient, spearman_within
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["CLEAR", "Judge", "Nearness"]

CLEAR = 0.05  # |A| from which a sign is looked at, in reward units
_ROUNDING = 1e-3  # nats above 0 that a log-probability may have


class Nearness(NamedTuple):
    """Four numbers of one credit, each a mean over groups with its 95 % interval over groups.

    Args:
        rank: Spearman's correlation of credit with A over the steps of a group; 0 where credit ties.
        sign: share of steps with |A| > 0.05 whose credit has the sign of A; credit 0 has not.
        cosine: of the policy gradient by credit with that by A, one logit a (state, action); None
            where the rollouts do not say how likely each action was.
        bias: mean of credit - A after the best scale >= 0, in reward units.
    """

    rank: Estimate | None
    sign: Estimate | None
    cosine: Estimate | None
    bias: Estimate | None


class _Cells(NamedTuple):
    """The (prompt, action) cell of some steps, each cell's prompt, and each cell's probability."""

    cell_S: Ints
    prompt_P: Ints
    chance_P: Floats


class Judge:
    """Holds what all credits of a batch are measured by.

    Args:
        batch: the rollouts.
        truth_S: true advantages ``[S]``, reward units.
        known_S: where they are known ``[S]``.
        index: of the batch; None makes one.
    """

    def __init__(self, batch: Batch, truth_S: Floats, known_S: BoolArray, index: Index | None = None) -> None:
        self.index = index or Index(batch)
        self.truth_S, self.known_S = truth_S, known_S
        self._steps = _by_group(self.index.group_S, known_S)
        cells = _cells(batch, self.index)
        self._cells = None if cells is None else [_of_steps(cells, s) for s in self._steps]

    @property
    def n_groups(self) -> int:
        """Groups with a known truth, the unit of the intervals."""
        return len(self._steps)

    def near(self, credit_S: Floats, seed: int = 0, resamples: int = RESAMPLES) -> Nearness:
        """Return the four numbers of a credit ``[S]``.

        Args:
            credit_S: what a method gave, all steps of the batch ``[S]``.
            seed: of the resamples.
            resamples: of groups behind the intervals; 0 = no intervals.
        """
        truth_S = self.truth_S
        scale = scale_of(credit_S[self.known_S], truth_S[self.known_S])
        cosines = [self._cosine(credit_S, g) for g in range(self.n_groups)]
        numbers = (
            self.ranks(credit_S),
            [self._sign(credit_S, s) for s in self._steps],
            cosines,
            [float((scale * credit_S[s] - truth_S[s]).mean()) for s in self._steps],
        )
        return Nearness(*(_mean(values, seed, resamples) for values in numbers))

    def ranks(self, credit_S: Floats) -> list[float | None]:
        """Return the rank correlation in each group; None where the truth does not differ.

        Args:
            credit_S: what a method gave, all steps of the batch ``[S]``.
        """
        one = np.zeros(max((s.size for s in self._steps), default=0), np.int64)
        return [spearman_within(credit_S[s], self.truth_S[s], one[: s.size]) for s in self._steps]

    def _sign(self, credit_S: Floats, s: Ints) -> float | None:
        clear = s[np.abs(self.truth_S[s]) > CLEAR]
        same = np.sign(credit_S[clear]) == np.sign(self.truth_S[clear])
        return float(same.mean()) if clear.size else None

    def _cosine(self, credit_S: Floats, group: int) -> float | None:
        if self._cells is None:
            return None
        s = self._steps[group]
        true, mine = (_gradient(c[s], self._cells[group]) for c in (self.truth_S, credit_S))
        if not true.any():
            return None
        size = float(np.linalg.norm(mine) * np.linalg.norm(true))
        return float(mine @ true) / size if size > 0 else 0.0


def _gradient(values: Floats, cells: _Cells) -> Floats:
    """Gradient of some steps' credit; exactly 0 where it cancels to rounding."""
    found = softmax_gradient(values, *cells)
    top = float(np.abs(values).sum())
    return found if np.abs(found).max(initial=0.0) > 1e-12 * top else np.zeros_like(found)


def _mean(values: Sequence[float | None], seed: int, resamples: int) -> Estimate | None:
    return interval(np.array([v for v in values if v is not None], np.float64), seed, resamples)


def _by_group(group_S: Ints, known_S: BoolArray) -> list[Ints]:
    """Known steps of each group that has any, groups by their code."""
    at = np.flatnonzero(known_S)
    at = at[np.argsort(group_S[at], kind="stable")]
    return np.split(at, np.flatnonzero(np.diff(group_S[at])) + 1) if at.size else []


def _of_steps(cells: _Cells, s: Ints) -> _Cells:
    """Keep the cells of the prompts that some steps saw."""
    prompts = np.unique(cells.prompt_P[cells.cell_S[s]])
    at = np.flatnonzero(np.isin(cells.prompt_P, prompts))
    return _Cells(
        np.searchsorted(at, cells.cell_S[s]),
        np.searchsorted(prompts, cells.prompt_P[at]),
        cells.chance_P[at],
    )


def _cells(batch: Batch, index: Index) -> _Cells | None:
    """Return the cells of all steps.

    Read from ``metadata.commands`` and ``metadata.choice_logprobs`` of the steps; a prompt is a
    state with its choices.
    """
    column = batch.columns.get("metadata_S")
    if column is None or not batch.has("action_S"):
        return None
    first: dict[Any, int] = {}
    prompts, chances, cell_S = list[int](), list[float](), np.zeros(batch.n_steps, np.int64)
    for s in range(batch.n_steps):
        commands, logs = _choices(column.item(s))
        action = batch.column("action_S").item(s)
        if action not in commands:
            return None
        prompt = (int(index.state_S[s]), commands, logs)
        if prompt not in first:
            first[prompt] = len(prompts)
            prompts += [len(first) - 1] * len(commands)
            chances += np.exp(logs).tolist()
        cell_S[s] = first[prompt] + commands.index(action)
    return _Cells(cell_S, np.array(prompts, np.int64), np.array(chances, np.float64))


def _choices(told: Any) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """What a step could do, and the log-probability of each; empty where it does not say so."""
    commands, logs = (
        told.get(name) if isinstance(told, Mapping) else None for name in ("commands", "choice_logprobs")
    )
    if not isinstance(commands, Sequence) or not isinstance(logs, Sequence) or len(commands) != len(logs):
        return (), ()
    named = all(isinstance(c, str) for c in commands)
    likely = all(isinstance(x, int | float) and -np.inf < x <= _ROUNDING for x in logs)
    return (tuple(commands), tuple(logs)) if named and likely else ((), ())
