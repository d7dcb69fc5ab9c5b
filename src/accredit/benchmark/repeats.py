"""Independent batches of one task: what of a credit's error is bias, and what is noise."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from accredit.benchmark.cells import credit_of, scorer_of
from accredit.benchmark.equipment import Entry, cost_of
from accredit.benchmark.journal import Cell, Place
from accredit.benchmark.plan import Setting
from accredit.errors import DataError
from accredit.methods import get_method
from accredit.metrics import GradientQuality, Moments, gradient_quality, moments, scale_of
from accredit.typing import Floats, Ints

__all__ = ["Repeats", "collect", "repeated"]


@dataclass
class Repeats:
    """Credits of one method over independent batches of a task.

    Args:
        credit: of each decision, a batch an entry.
        truth: likewise.
        cell: (step, state, action) code of each decision, likewise.
        gradients: policy-gradient estimate of each batch.
        exact: the exact gradient.
        cost: of the signals, a batch.
        seconds: of the assignments, in all.
        unable: why it could not run.
        code: of that reason.
    """

    credit: list[Floats] = field(default_factory=list)
    truth: list[Floats] = field(default_factory=list)
    cell: list[Ints] = field(default_factory=list)
    gradients: list[Floats] = field(default_factory=list)
    exact: Floats | None = None
    cost: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    unable: str = ""
    code: str = ""

    def quality(self) -> GradientQuality | None:
        """Return how the gradients point; None where the exact one is 0."""
        if self.exact is None:
            return None
        return gradient_quality(np.stack(self.gradients), self.exact)

    def moments(self, *, rescale: bool = True) -> Moments | None:
        """Return bias and variance by (step, state, action).

        Args:
            rescale: after the best common scale, for methods that normalise.
        """
        credit, truth = np.concatenate(self.credit), np.concatenate(self.truth)
        batch = np.repeat(np.arange(len(self.credit)), [c.size for c in self.credit])
        scale = scale_of(credit, truth) if rescale else 1.0
        return moments(credit, truth, np.concatenate(self.cell), batch, scale)


def collect(
    family: str, setting: Setting, seed: int, groups: int, entries: Sequence[Entry]
) -> dict[str, Repeats]:
    """Return what each entry gave on ``setting.draws`` independent batches of a task.

    Args:
        family: of the task.
        setting: how it is played, and how often.
        seed: of the task.
        groups: groups a batch.
        entries: references and methods.
    """
    found = {entry.label: Repeats() for entry in entries}
    for draw in range(setting.draws):
        scorer = scorer_of(family, setting, seed, groups, draw)
        flat, task = scorer.sample.flat, scorer.sample.task
        cell = (flat.time_D * task.n_states + flat.node_D) * task.n_actions + flat.action_D
        for entry in entries:
            own = found[entry.label]
            begin = time.perf_counter()
            try:
                credit = credit_of(scorer, entry, seed)
            except DataError as error:
                own.unable, own.code = error.message, error.code
                continue
            own.seconds += time.perf_counter() - begin
            own.credit.append(credit)
            own.truth.append(scorer.truth_D)
            own.cell.append(cell)
            own.gradients.append(scorer.gradient(credit))
            own.exact = scorer.exact_gradient
            if entry.method:
                own.cost = cost_of(get_method(entry.method)[0].card, scorer.batch)
    return found


def repeated(family: str, setting: Setting, seed: int, groups: int, entries: Sequence[Entry]) -> list[Cell]:
    """Return one cell an entry, with bias, variance and gradient measures (see `collect`).

    Args:
        family: of the task.
        setting: how it is played, and how often.
        seed: of the task.
        groups: groups a batch.
        entries: references and methods.
    """
    found = collect(family, setting, seed, groups, entries)
    return [_cell(Place(family, setting.name, seed, label), own) for label, own in found.items()]


def _cell(place: Place, own: Repeats) -> Cell:
    if not own.credit:
        return Cell(place, unable=own.unable, code=own.code)
    metrics: dict[str, float] = {}
    quality, spread = own.quality(), own.moments()
    if quality is not None:
        metrics |= {
            "gradient": quality.mean_cosine,
            "cosine_of_mean": quality.cosine_of_mean,
            "snr": quality.snr_db,
        }
    if spread is not None:
        metrics |= {"bias2": spread.bias2, "variance": spread.variance}
    rounded = {name: float(f"{value:.12g}") for name, value in metrics.items()}
    return Cell(place, rounded, own.cost, round(own.seconds / len(own.credit), 6))
