"""Does better credit make better learning?  A table of logits, moved by a method's credit alone.

No network, no clipping, no noise in the curve: after each update the score of the policy, its chance of
success, is exact.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

import accredit
from accredit.benchmark.cells import credit_of
from accredit.benchmark.equipment import SIGNALS, Entry, cost_of, entries, equipped, wants_signals
from accredit.benchmark.journal import Cell, Place, open_journal
from accredit.benchmark.plan import SEEDS_A_RUN, families_of, task_of
from accredit.benchmark.scoring import Scorer
from accredit.errors import DataError, ParamError, suggest
from accredit.methods import get_method
from accredit.typing import Floats
from accredit.worlds import Policy, Task, make_policy, optimal, sample
from accredit.worlds.dynamic import success_values
from accredit.worlds.policies import softmax
from accredit.worlds.tabular import codes_of

__all__ = [
    "FAMILIES",
    "LESSONS",
    "METHODS",
    "Lesson",
    "courses",
    "highest",
    "lesson_of",
    "score_of",
    "taught",
]

FAMILIES = ("rooms", "keydoor")
METHODS = ("grpo", "rloo", "gigpo", "crbc")
SETTING = "learning"
JOURNAL = "learning.jsonl"
_REFERENCE = "truth"
_CALIBRATED = 10**6  # first draw of the batches that only set the rate; updates draw from 0
Progress: TypeAlias = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Lesson:
    """How a policy is taught.

    Args:
        name: key in results.
        seeds: task seeds, the unit of the intervals.
        updates: of each policy.
        groups: groups a batch.
        group_size: rollouts a group.
        success_rate: exact, of the policy at the start.
        step: length of the first update in logits: each method's learning rate is ``step`` over the
            root mean square of its gradient's length at the start, so that the scale of credit,
            which is no property of who deserves it, does not matter.
        calibrated: batches behind that mean; they are not charged.
    """

    name: str
    seeds: int
    updates: int = 200
    groups: int = 1
    group_size: int = 8
    success_rate: float = 0.05
    step: float = 0.2
    calibrated: int = 64


LESSONS = {"smoke": Lesson("smoke", 3), "full": Lesson("full", 20)}


def lesson_of(name: str | Lesson) -> Lesson:
    """Return a lesson by name.

    Raises:
        ParamError: if there is no such lesson.

    Example:
        >>> lesson_of("full").updates
        200
    """
    if isinstance(name, Lesson):
        return name
    if name not in LESSONS:
        raise ParamError(f"no scale {name!r}", hint=suggest(name, LESSONS))
    return LESSONS[name]


def score_of(task: Task, probs_NA: Floats) -> float:
    """Return the exact chance of success of a policy.

    Args:
        task: of a family with a success rate.
        probs_NA: the policy.
    """
    return float(task.start_N @ success_values(task, probs_NA).V[0])


def highest(task: Task) -> float:
    """Return the best chance of success there is, by dynamic programming.

    Args:
        task: of a family with a success rate.

    Raises:
        ParamError: if the family has none.

    Example:
        >>> highest(task_of("keydoor", 0))
        1.0
    """
    if task.success_N is None:
        raise ParamError(f"{task.family} has no success rate to learn", hint="rooms, keydoor, lock ...")
    goal = task.success_N.astype(np.float64)
    free = np.zeros_like(task.edge_reward_E)
    chances = dataclasses.replace(task, outcome_N=goal, edge_reward_E=free, gamma=1.0)
    return float(task.start_N @ optimal(chances).V[0])


def taught(family: str, seed: int, entry: Entry, lesson: Lesson) -> Cell:
    """Return the course of one policy under one credit.

    ``logits += rate sum_s credit_s grad log pi(a_s | s) / rollouts``.  Equal seeds give equal chance
    to every method.

    Args:
        family: of the task.
        seed: of the task.
        entry: a method, or the truth.
        lesson: how it is taught.

    Raises:
        ParamError: if the family has no success rate.
    """
    place = Place(family, SETTING, seed, entry.label)
    task = task_of(family, seed)
    best = highest(task)
    start = make_policy(task, lesson.success_rate)
    try:
        curve = _course(task, entry, start, lesson)
    except DataError as error:
        return Cell(place, unable=error.message, code=error.code)
    return Cell(place, {"optimum": float(f"{best:.12g}")}, curve=curve)


def _course(task: Task, entry: Entry, start: Policy, lesson: Lesson) -> tuple[tuple[float, ...], ...]:
    rate = _rate(task, entry, start, lesson)
    logits, probs = start.logits_NA, start.probs_NA
    curve = []
    for update in range(lesson.updates):
        scorer = _batch(task, entry, Policy(probs, logits), lesson, update)
        curve.append((round(score_of(task, probs), 9), float(_tokens(entry, scorer))))
        logits = logits + rate * _gradient(task, entry, scorer)
        probs = softmax(logits, task.allowed_NA)
    return (*curve, (round(score_of(task, probs), 9), 0.0))


def _rate(task: Task, entry: Entry, start: Policy, lesson: Lesson) -> float:
    """Return the learning rate; 0 where the credit at the start is null."""
    draws = range(_CALIBRATED, _CALIBRATED + lesson.calibrated)
    found = [_gradient(task, entry, _batch(task, entry, start, lesson, draw)) for draw in draws]
    square = float(np.mean([np.sum(g**2) for g in found]))
    return lesson.step / float(np.sqrt(square)) if square > 1e-24 else 0.0


def _batch(task: Task, entry: Entry, policy: Policy, lesson: Lesson, draw: int) -> Scorer:
    rich = bool(entry.method) and wants_signals(get_method(entry.method)[0].card)
    drawn = sample(
        task,
        groups=lesson.groups,
        group_size=lesson.group_size,
        seed=draw,
        signals=SIGNALS if rich else None,
        policy=policy,
    )
    return Scorer(drawn, equipped(drawn) if rich else drawn.batch)


def _gradient(task: Task, entry: Entry, scorer: Scorer) -> Floats:
    """Return the policy gradient ``[N, A]``, for a blind policy over the states of a key together."""
    credit = credit_of(scorer, entry, task.seed)
    flat = scorer.gradient(credit).reshape(task.n_states, task.n_actions)
    if not task.blind:
        return flat
    code, words = codes_of(task.keys)
    tied = np.zeros((len(words), task.n_actions))
    np.add.at(tied, code, flat)
    return tied[code]


def _tokens(entry: Entry, scorer: Scorer) -> float:
    """Return what an update costs: tokens of its rollouts, of continuations like them, and scored ones."""
    own = scorer.batch.n_tokens
    if not entry.method:
        return own
    extra = cost_of(get_method(entry.method)[0].card, scorer.batch)
    mean = own / max(1, len(scorer.batch))
    return own + extra.get("continuations", 0) * mean + extra.get("scored_tokens", 0)


def courses(
    families: str | Sequence[str] = FAMILIES,
    methods: str | Sequence[str] = METHODS,
    lesson: Lesson = LESSONS["smoke"],
    *,
    seed: int = 0,
    out: Path | None = None,
    resume: bool = True,
    progress: Progress | None = None,
) -> tuple[Cell, ...]:
    """Return one course a family, task seed and method; the truth as credit is always among them.

    Args:
        families: with a success rate; ``all`` = those that are learned by default.
        methods: ids; ``all`` likewise.
        lesson: how policies are taught.
        seed: other numbers teach on other tasks.
        out: folder of the journal; None = memory alone.
        resume: go on with what the journal has.
        progress: called with what is done, what there is in all, and what comes now.

    Raises:
        ParamError: for an unknown family or method, or a family without a success rate.
        DataError: if the folder holds courses of another plan.
    """
    names = families_of(FAMILIES if families == "all" else families)
    asked = _asked(METHODS if methods == "all" else methods)
    plan = {"lesson": dataclasses.asdict(lesson), "seed": seed, "version": accredit.__version__}
    path = None if out is None else out / JOURNAL
    places = list(_places(names, asked, lesson, seed))
    with open_journal(path, plan, resume=resume) as journal:
        for done, (place, entry) in enumerate(places):
            if place in journal.cells:
                continue
            if progress is not None:
                progress(done, len(places), f"{place.family}, seed {place.seed}, {place.method}")
            journal.add([taught(place.family, place.seed, entry, lesson)])
    return tuple(journal.cells[place] for place, _ in places)


def _asked(methods: str | Sequence[str]) -> list[Entry]:
    given = methods if isinstance(methods, str) else list(methods)
    return [e for e in entries(given) if e.method or e.label == _REFERENCE]


def _places(
    families: Sequence[str], asked: Sequence[Entry], lesson: Lesson, seed: int
) -> Iterator[tuple[Place, Entry]]:
    for family in families:
        for i in range(lesson.seeds):
            for entry in asked:
                yield Place(family, SETTING, SEEDS_A_RUN * seed + i, entry.label), entry
