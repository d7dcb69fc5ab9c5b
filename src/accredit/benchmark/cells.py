"""Cells of the benchmark: one task seed under one setting, every method on the same rollouts."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np

from accredit.benchmark.equipment import SIGNALS, Entry, cost_of, equipped
from accredit.benchmark.journal import Cell, Place
from accredit.benchmark.plan import PLAIN, Setting, task_of
from accredit.benchmark.scoring import Scorer
from accredit.engine import assign
from accredit.errors import DataError
from accredit.methods import get_method
from accredit.metrics import calibration
from accredit.typing import Floats
from accredit.worlds import sample

__all__ = ["credit_of", "measured", "scorer_of"]


def scorer_of(family: str, setting: Setting, seed: int, groups: int, draw: int = 0) -> Scorer:
    """Return the rollouts of a task under a setting, ready to score credits.

    Args:
        family: of the task.
        setting: how it is played.
        seed: of the task.
        groups: number of groups.
        draw: seed of the sampling; several draws of one task are independent batches.
    """
    drawn = sample(
        task_of(family, seed),
        groups=groups,
        group_size=setting.group_size,
        success_rate=setting.success_rate,
        noise=setting.noise,
        seed=draw,
        signals=SIGNALS,
    )
    return Scorer(drawn, equipped(drawn))


def measured(
    family: str, setting: Setting, seed: int, groups: int, entries: Iterable[Entry], draw: int = 0
) -> list[Cell]:
    """Return one cell an entry; a method that cannot run says why.

    Args:
        family: of the task.
        setting: how it is played.
        seed: of the task.
        groups: number of groups.
        entries: references and methods.
        draw: seed of the sampling.
    """
    scorer = scorer_of(family, setting, seed, groups, draw)
    return [_cell(scorer, Place(family, setting.name, seed, e.label), e) for e in entries]


def _cell(scorer: Scorer, place: Place, entry: Entry) -> Cell:
    if not entry.method:
        credit_D = credit_of(scorer, entry, place.seed)
        metrics = scorer.score(credit_D)
        if scorer.sample.policy.success_rate is not None:
            metrics["success_rate"] = scorer.sample.policy.success_rate
        return Cell(place, _rounded(metrics), bins=_bins(scorer, place, credit_D))
    begin = time.perf_counter()
    try:
        credit_D = credit_of(scorer, entry, place.seed)
    except DataError as error:
        return Cell(place, unable=error.message, code=error.code)
    seconds = time.perf_counter() - begin
    cost = cost_of(get_method(entry.method)[0].card, scorer.batch)
    bins = _bins(scorer, place, credit_D)
    return Cell(place, _rounded(scorer.score(credit_D)), cost, round(seconds, 6), bins=bins)


def _bins(scorer: Scorer, place: Place, credit_D: Floats) -> tuple[tuple[float, ...], ...]:
    """Calibration under the plain setting; elsewhere it would only fill the journal."""
    if place.setting != PLAIN.name:
        return ()
    return tuple(
        (b.place, round(b.said, 6), round(b.true, 6), b.n) for b in calibration(credit_D, scorer.truth_D)
    )


def credit_of(scorer: Scorer, entry: Entry, seed: int) -> Floats:
    """Return the credit of each decision that an entry gives.

    Args:
        scorer: of the rollouts.
        entry: a reference or a method.
        seed: of chance in the method.

    Raises:
        DataError: if the method cannot run on them.
    """
    if not entry.method:
        return _reference(scorer, entry.label)
    return scorer.credit_D(assign(scorer.batch, entry.method, seed=seed, **entry.params))


def _reference(scorer: Scorer, label: str) -> Floats:
    if label == "truth":
        return scorer.truth_D
    if label == "truth-by-key":
        if scorer.by_token:  # a prefix is its own key
            return scorer.truth_D
        return scorer.sample.truth.advantage_key
    rng = np.random.default_rng(scorer.sample.task.seed)
    return rng.standard_normal(scorer.truth_D.size)


def _rounded(metrics: dict[str, float]) -> dict[str, float]:
    """Twelve digits: what differs beyond is the order of sums."""
    return {name: float(f"{value:.12g}") for name, value in metrics.items()}
