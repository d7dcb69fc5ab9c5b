"""Dynamic programming on tasks: values, optimal values, where a policy goes, and truth by key."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.typing import Floats, Ints
from accredit.worlds.tabular import Task

__all__ = ["Tables", "evaluate", "key_advantage", "occupancy", "optimal", "residual", "success_values"]


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Exact values, in reward units, of what is still to come.

    Args:
        V: ``[H+1, N]``; row H and states that are over hold the outcome.
        Q: ``[H, N, A]``; 0 where the action is not allowed.
        A: Q - V where allowed, else 0; 0 where it is within 1e-12 of the largest value ``[H, N, A]``.
    """

    V: Floats
    Q: Floats
    A: Floats

    def spread(self, task: Task) -> Floats:
        """Return the criticality of each state, max_a Q - min_a Q over allowed actions ``[H, N]``."""
        high = np.where(task.allowed_NA, self.Q, -np.inf).max(2)
        low = np.where(task.allowed_NA, self.Q, np.inf).min(2)
        return np.where(task.live_N, high - low, 0.0)


def evaluate(task: Task, policy_NA: Floats, outcome_N: Floats | None = None) -> Tables:
    """Return the values of a policy, by one backward pass.

    ``Q_t(s,a) = r(s,a) + gamma sum_s' P(s'|s,a) V_{t+1}(s')``, ``V_t(s) = sum_a pi(a|s) Q_t(s,a)``.

    Args:
        task: with its horizon.
        policy_NA: probabilities, 0 where not allowed.
        outcome_N: outcome in place of the task's own (a role's).
    """
    end = task.outcome_N if outcome_N is None else outcome_N
    V, Q = _room(task, end)
    for t in range(task.horizon - 1, -1, -1):
        Q[t] = _backup(task, V[t + 1])
        V[t] = np.where(task.live_N, (policy_NA * Q[t]).sum(1), end)
    return Tables(V, Q, _advantages(task, V, Q))


def optimal(task: Task) -> Tables:
    """Return the optimal values ``V*``, ``Q*`` and ``Q* - V*``."""
    V, Q = _room(task, task.outcome_N)
    for t in range(task.horizon - 1, -1, -1):
        Q[t] = _backup(task, V[t + 1])
        best = np.where(task.allowed_NA, Q[t], -np.inf).max(1)
        V[t] = np.where(task.live_N, best, task.outcome_N)
    return Tables(V, Q, _advantages(task, V, Q))


def _room(task: Task, end: Floats) -> tuple[Floats, Floats]:
    V = np.tile(np.asarray(end, np.float64), (task.horizon + 1, 1))
    return V, np.zeros((task.horizon, task.n_states, task.n_actions))


def _advantages(task: Task, V: Floats, Q: Floats) -> Floats:
    """Return Q - V of allowed actions; what is only rounding is 0, so that equal things tie."""
    gap = np.where(task.allowed_NA, Q - V[:-1, :, None], 0.0)
    return np.where(np.abs(gap) <= 1e-12 * max(1.0, float(np.abs(V).max())), 0.0, gap)


def _backup(task: Task, after_N: Floats) -> Floats:
    ahead = (task.matrix @ after_N).reshape(task.n_states, task.n_actions)
    return np.asarray(task.reward_NA + task.gamma * ahead)


def success_values(task: Task, policy_NA: Floats) -> Tables:
    """Return V, Q and A of the chance of success, whatever the rewards.

    Raises:
        ValueError: if the family has no success rate.
    """
    if task.success_N is None:
        raise ValueError(f"{task.family} has no success rate")
    V, Q = _room(task, task.success_N.astype(np.float64))
    for t in range(task.horizon - 1, -1, -1):
        Q[t] = (task.matrix @ V[t + 1]).reshape(task.n_states, task.n_actions)
        V[t] = np.where(task.live_N, (policy_NA * Q[t]).sum(1), V[t])
    return Tables(V, Q, _advantages(task, V, Q))


def occupancy(task: Task, policy_NA: Floats) -> Floats:
    """Return the chance of taking step t in state s ``[H, N]`` (0 for states that are over)."""
    d = np.zeros((task.horizon, task.n_states))
    here = np.where(task.live_N, task.start_N, 0.0)
    for t in range(task.horizon):
        d[t] = here
        flow = (here[:, None] * policy_NA).ravel()
        here = np.where(task.live_N, task.matrix.T @ flow, 0.0)
    return d


def residual(task: Task, policy_NA: Floats, tables: Tables, outcome_N: Floats | None = None) -> float:
    """Return the largest error of the Bellman equations, edge by edge, relative to the largest value.

    A second pass that shares no arithmetic with `evaluate`: sums over edges, not matrix products.
    """
    end = task.outcome_N if outcome_N is None else outcome_N
    rows = task.edge_start_M1.size - 1
    worst = float(np.abs(tables.V[-1] - end).max(initial=0.0))
    for t in range(task.horizon):
        gain = task.edge_prob_E * (task.edge_reward_E + task.gamma * tables.V[t + 1][task.edge_to_E])
        q = np.bincount(task.row_E, gain, rows).reshape(task.n_states, task.n_actions)
        v = np.where(task.live_N, np.einsum("na,na->n", policy_NA, tables.Q[t]), end)
        worst = max(worst, float(np.abs(q - tables.Q[t]).max()), float(np.abs(v - tables.V[t]).max()))
    return worst / max(1.0, float(np.abs(tables.V).max()))


def key_advantage(A: Floats, weight: Floats, code: Ints) -> Floats:
    """Return the truth by key: the visit-weighted mean of the full truth over what a key merges.

    ``A_key(k,a) = sum_{t,s: key = k} d_t(s) A_t(s,a) / sum_{t,s: key = k} d_t(s)`` (``pi(a|s)`` in
    both sums where it differs between the merged states).

    Args:
        A: full truth ``[H, N, A]``.
        weight: chance of visiting and acting, ``d_t(s) pi(a|s)`` ``[H, N, A]``.
        code: key of each (step, state) ``[H, N]``.

    Returns:
        ``[n_keys, A]``; 0 for what is never visited.
    """
    n_keys, n_actions = int(code.max()) + 1, A.shape[2]
    cell = (code[:, :, None] * n_actions + np.arange(n_actions)).ravel()
    mass = np.bincount(cell, weight.ravel(), n_keys * n_actions)
    total = np.bincount(cell, (weight * A).ravel(), n_keys * n_actions)
    mean = np.divide(total, mass, out=np.zeros_like(total), where=mass > 0)
    return mean.reshape(n_keys, n_actions)
