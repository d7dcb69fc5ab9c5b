"""From rollouts as rows to flat decisions, steps and tokens: the offsets of a Batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.typing import Floats, Ints
from accredit.worlds.play import Trace
from accredit.worlds.tabular import Task

__all__ = ["Flat", "flatten", "tokens_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Flat:
    """Decisions ``D`` in the order of a Batch, and the steps that they make up.

    A decision is one action of the task; a step is one decision, or ``tokens_per_step`` of them
    where an action is a token.

    Args:
        row_R: played rollout (game) behind each rollout of the batch.
        role_R: role of each rollout; all 0 where one rollout holds all roles.
        rollout_D: rollout of each decision.
        time_D: when it was taken.
        node_D: state before it.
        action_D: what was done.
        paid_D: reward of it.
        earned_D: rewards of the rollout before it.
        step_D: step of each decision.
        head_S: first decision of each step.
        step_start_R1: offsets of each rollout's steps.
        tokens_D: policy tokens of each decision.
    """

    row_R: Ints
    role_R: Ints
    rollout_D: Ints
    time_D: Ints
    node_D: Ints
    action_D: Ints
    paid_D: Floats
    earned_D: Floats
    step_D: Ints
    head_S: Ints
    step_start_R1: Ints
    tokens_D: Ints

    def per_step(self, values_D: Floats) -> Floats:
        """Return the sum over each step's decisions ``[S]``."""
        return np.bincount(self.step_D, values_D, self.head_S.size).astype(np.float64)

    @property
    def tokens_S(self) -> Ints:
        """Policy tokens of each step."""
        return np.bincount(self.step_D, self.tokens_D, self.head_S.size).astype(np.int64)


def tokens_of(task: Task) -> Ints:
    """Return how many tokens spell each action ``[A]``: the first decides, the others follow."""
    if task.tokens_per_step:
        return np.ones(task.n_actions, np.int64)
    return 1 + np.arange(task.n_actions) % 3


def flatten(task: Task, trace: Trace) -> Flat:
    """Return the decisions of a trace, rollout by rollout; roles with own payoffs get a rollout each."""
    n = trace.end_R.size
    row, time = np.nonzero(trace.alive_RH)
    before = np.cumsum(trace.reward_RH, 1) - trace.reward_RH
    roles = list(task.payoffs)
    role_N = np.array([roles.index(a) for a in task.agents] if roles else [0] * task.n_states, np.int64)
    width = max(1, len(roles))
    rollout = row * width + role_N[trace.node_RH[row, time]]
    order = np.lexsort((time, rollout))
    row, time, rollout = row[order], time[order], rollout[order]
    place = _place(rollout, n * width)
    first = np.ones(row.size, bool) if not task.tokens_per_step else place % task.tokens_per_step == 0
    action = trace.action_RH[row, time]
    steps_R = np.bincount(rollout[first], minlength=n * width)
    return Flat(
        row_R=np.repeat(np.arange(n), width),
        role_R=np.tile(np.arange(width), n),
        rollout_D=rollout,
        time_D=time,
        node_D=trace.node_RH[row, time],
        action_D=action,
        paid_D=trace.reward_RH[row, time],
        earned_D=before[row, time],
        step_D=np.cumsum(first) - 1,
        head_S=np.flatnonzero(first),
        step_start_R1=np.concatenate([[0], np.cumsum(steps_R)]),
        tokens_D=tokens_of(task)[action],
    )


def _place(rollout_D: Ints, n: int) -> Ints:
    """Return the position of each decision in its rollout."""
    count = np.bincount(rollout_D, minlength=n)
    start = np.concatenate([[0], np.cumsum(count)])
    return np.asarray(np.arange(rollout_D.size) - start[rollout_D])
