"""Policies of a set success rate: softmax of seeded logits plus beta times the optimal values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.errors import ParamError
from accredit.typing import BoolArray, Floats
from accredit.worlds.dynamic import optimal
from accredit.worlds.tabular import Task, codes_of

__all__ = ["RATES", "Policy", "make_policy", "softmax"]

RATES = (0.05, 0.2, 0.5, 0.8)
_LARGEST_BETA = 1e4
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """A policy as a table.

    Args:
        probs_NA: probabilities; 0 where not allowed and where the episode is over.
        logits_NA: their logits.
        beta: weight of the optimal values.
        success_rate: exact chance of success; None where the family has none.
        target: the rate asked for, None at beta = 0.
        reached: whether it was hit to 1e-6; else the rate is the nearest that a beta gives.
    """

    probs_NA: Floats
    logits_NA: Floats
    beta: float = 0.0
    success_rate: float | None = None
    target: float | None = None
    reached: bool = True


def softmax(logits_NA: Floats, allowed_NA: BoolArray) -> Floats:
    """Return the probabilities of allowed actions; all 0 in rows without any."""
    masked = np.where(allowed_NA, logits_NA, -np.inf)
    top = np.where(allowed_NA.any(1), masked.max(1, initial=-1e300, where=allowed_NA), 0.0)
    weight = np.where(allowed_NA, np.exp(np.minimum(masked - top[:, None], 0.0)), 0.0)
    return np.asarray(weight / np.maximum(weight.sum(1, keepdims=True), 1e-300))


def make_policy(task: Task, success_rate: float | None = None, *, seed: int | None = None) -> Policy:
    """Return softmax(logits + beta score), with beta bisected to hit a success rate.

    The score is the mean of Q* over the steps (the family's own where it has one); the logits are
    standard normal (the family's own where it has them).

    Args:
        task: any.
        success_rate: exact rate to hit, in (0, 1); None = beta 0. Families without a success rate
            always have beta 0.
        seed: of the logits; default the task's.

    Raises:
        ParamError: if the rate is not in (0, 1).
    """
    if success_rate is not None and not 0 < success_rate < 1:
        raise ParamError(f"success_rate is {success_rate}", hint="Give a rate between 0 and 1")
    rng = np.random.default_rng(np.random.SeedSequence([task.seed if seed is None else seed, 0x10617]))
    drawn = rng.standard_normal((task.n_states, task.n_actions))
    base = _as_seen(task, drawn) if task.logits_NA is None else task.logits_NA
    if task.success_N is None or success_rate is None:
        probs = softmax(base, task.allowed_NA)
        rate = None if task.success_N is None else _rate(task, probs)
        return Policy(probs, base, success_rate=rate)
    return _bisected(task, base, success_rate)


def _bisected(task: Task, base: Floats, target: float) -> Policy:
    score = _score(task) if task.score_NA is None else task.score_NA

    def at(u: float) -> Policy:
        logits = base + np.sinh(u) * score
        probs = softmax(logits, task.allowed_NA)
        return Policy(probs, logits, float(np.sinh(u)), _rate(task, probs), target)

    limit = float(np.arcsinh(_LARGEST_BETA))
    low, high = at(-limit), at(limit)
    best = min((at(0.0), low, high), key=lambda p: _miss(p, target))
    a, b = (-limit, limit) if (high.success_rate or 0) >= (low.success_rate or 0) else (limit, -limit)
    for _ in range(80):
        if _miss(best, target) <= _TOLERANCE:
            break
        middle = (a + b) / 2
        tried = at(middle)
        best = min((best, tried), key=lambda p: _miss(p, target))
        a, b = (middle, b) if (tried.success_rate or 0) < target else (a, middle)
    reached = _miss(best, target) <= 1e-6
    return Policy(best.probs_NA, best.logits_NA, best.beta, best.success_rate, target, reached)


def _score(task: Task) -> Floats:
    """Return the mean of Q* over the steps: the policy does not know the time, and Q* with all the
    time ahead hardly tells a detour from the way.
    """
    return _as_seen(task, np.asarray(optimal(task).Q.mean(0)))


def _as_seen(task: Task, values_NA: Floats) -> Floats:
    """Return the values, for a blind policy their mean over the states of each key that go on."""
    if not task.blind:
        return values_NA
    code, words = codes_of(task.keys)
    weight = task.live_N.astype(np.float64)
    mass = np.maximum(np.bincount(code, weight, len(words)), 1.0)
    columns = [np.bincount(code, weight * column, len(words)) / mass for column in values_NA.T]
    return np.stack(columns, 1)[code]


def _miss(policy: Policy, target: float) -> float:
    return abs((policy.success_rate or 0.0) - target)


def _rate(task: Task, probs_NA: Floats) -> float:
    """Return the exact chance of success; one backward pass over values only."""
    assert task.success_N is not None
    goal = task.success_N.astype(np.float64)
    value = goal
    for _ in range(task.horizon):
        ahead = (task.matrix @ value).reshape(probs_NA.shape)
        value = np.where(task.live_N, (probs_NA * ahead).sum(1), goal)
    return float(task.start_N @ value)
