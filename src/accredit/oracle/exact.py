"""Exact truth by dynamic programming, verified by a second pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.typing import BoolArray, Floats
from accredit.worlds.dynamic import evaluate, key_advantage, occupancy, residual, success_values
from accredit.worlds.noise import Keys, Noise, keys_of
from accredit.worlds.policies import Policy
from accredit.worlds.tabular import Task
from accredit.worlds.truth import CRITICAL

__all__ = ["Exact", "solve"]

_LARGEST_RESIDUAL = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Exact:
    """Both truths of a task under a policy, in reward units.

    Args:
        V: value of (step, state) ``[H+1, N]``.
        Q: value of (step, state, action) ``[H, N, A]``.
        A: full truth, Q - V ``[H, N, A]``.
        A_key: truth by key: the visit-weighted mean of A over what a key merges
            ``[keys, A]``; row ``keys.code_HN[t, s]``.
        keys: what methods see of (step, state).
        occupancy: chance of taking step t in state s ``[H, N]``.
        spread: criticality, max_a Q - min_a Q ``[H, N]``.
        critical: spread > 0.1 ``[H, N]``.
        value: of the start.
        success_rate: exact chance of success; None where the family has none.
        residual: largest relative error of the Bellman equations, as verified.
    """

    V: Floats
    Q: Floats
    A: Floats
    A_key: Floats
    keys: Keys
    occupancy: Floats
    spread: Floats
    critical: BoolArray
    value: float
    success_rate: float | None
    residual: float


def solve(task: Task, policy: Policy, *, role: str | None = None, noise: Noise | None = None) -> Exact:
    """Return the exact truth of a task under a policy.

    Args:
        task: with tables.
        policy: a table of probabilities.
        role: whose payoff counts, where roles are paid differently; default the first.
        noise: its aliasing decides which states a key merges.

    Raises:
        ArithmeticError: if the equations do not hold to 1e-12.

    Example:
        >>> from accredit.worlds import make, make_policy
        >>> task = make("rooms", seed=1)
        >>> exact = solve(task, make_policy(task, 0.2))
        >>> round(exact.value, 9), exact.residual < 1e-12
        (0.2, True)
    """
    probs = policy.probs_NA
    outcome = task.outcome_N if role is None else task.role_outcome(role)
    tables = evaluate(task, probs, outcome)
    error = residual(task, probs, tables, outcome)
    if not error < _LARGEST_RESIDUAL:
        raise ArithmeticError(f"{task.family} seed {task.seed}: Bellman residual {error:.3g}")
    keys, visits = keys_of(task, noise or Noise()), occupancy(task, probs)
    spread = tables.spread(task)
    return Exact(
        V=tables.V,
        Q=tables.Q,
        A=tables.A,
        A_key=key_advantage(tables.A, visits[:, :, None] * probs, keys.code_HN),
        keys=keys,
        occupancy=visits,
        spread=spread,
        critical=spread > CRITICAL,
        value=float(task.start_N @ tables.V[0]),
        success_rate=_success(task, policy),
        residual=error,
    )


def _success(task: Task, policy: Policy) -> float | None:
    if task.success_N is None:
        return None
    chance: float = float(np.dot(task.start_N, success_values(task, policy.probs_NA).V[0]))
    return chance
