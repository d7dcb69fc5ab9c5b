"""Cells of the benchmark: one task seed under one setting, every method on the same rollouts."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterable

import numpy as np

from accredit.benchmark.equipment import SIGNALS, Entry, cost_of, equipped
from accredit.benchmark.journal import Cell, Place
from accredit.benchmark.plan import PLAIN, SEEDS_A_RUN, Setting, task_of
from accredit.benchmark.scoring import Scorer
from accredit.benchmark.structure import influence
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
        metrics |= _of_task(scorer) if entry.label == "truth" else {}
        return Cell(place, _rounded(metrics), bins=_bins(scorer, place, credit_D))
    begin = time.perf_counter()
    try:
        credit_D = credit_of(scorer, entry, place.seed)
    except DataError as error:
        return Cell(place, unable=error.message, code=error.code)
    seconds = time.perf_counter() - begin
    cost = cost_of(get_method(entry.method)[0].card, scorer.batch)
    bins, memory = _bins(scorer, place, credit_D), _memory(scorer, place, entry)
    return Cell(place, _rounded(scorer.score(credit_D)), cost, round(seconds, 6), bins=bins, memory=memory)


def _of_task(scorer: Scorer) -> dict[str, float]:
    """What is true of the task under its policy, whatever the credit."""
    found, drawn = {}, scorer.sample
    if drawn.policy.success_rate is not None:
        found["success_rate"] = drawn.policy.success_rate
    listened = influence(drawn.task, drawn.policy.probs_NA) if drawn.task.agents else None
    return found if listened is None else {**found, "influence": listened}


def _memory(scorer: Scorer, place: Place, entry: Entry) -> int | None:
    """Most bytes that the assignment holds at once; a run of its own, since watching takes time.

    One task a family is watched: the sizes of its arrays, not chance, are what it depends on.
    """
    if place.setting != PLAIN.name or place.seed % SEEDS_A_RUN:
        return None
    watched = tracemalloc.is_tracing()
    if not watched:
        tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    credit_of(scorer, entry, place.seed)
    found = tracemalloc.get_traced_memory()[1] - before
    if not watched:
        tracemalloc.stop()
    return found


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
