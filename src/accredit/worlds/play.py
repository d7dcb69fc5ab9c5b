"""Many rollouts of a tabular task at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.typing import BoolArray, Floats, Ints
from accredit.worlds.policies import Policy
from accredit.worlds.tabular import Task, pick

__all__ = ["Trace", "go_on", "play"]


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """What happened, one row a rollout and one column a step of time.

    Args:
        node_RH: state before the step; the last one reached where the episode is over.
        action_RH: action taken; 0 where it is over.
        reward_RH: reward of the step; 0 where it is over.
        alive_RH: whether the step was taken.
        end_R: state where the rollout ended.
    """

    node_RH: Ints
    action_RH: Ints
    reward_RH: Floats
    alive_RH: BoolArray
    end_R: Ints

    @property
    def length_R(self) -> Ints:
        """Number of steps of each rollout."""
        found: Ints = self.alive_RH.sum(1)
        return found


def play(task: Task, policy: Policy, start_u_R: Floats, u_RH2: Floats) -> Trace:
    """Return the rollouts that uniforms in [0, 1) give.

    Args:
        task: with its tables.
        policy: that chooses.
        start_u_R: picks each first state.
        u_RH2: for each step: picks the action, picks the edge.
    """
    first = np.minimum(np.searchsorted(np.cumsum(task.start_N), start_u_R, side="right"), task.n_states - 1)
    return go_on(task, policy, first, np.zeros(first.size, np.int64), u_RH2)


def go_on(
    task: Task, policy: Policy, node_R: Ints, time_R: Ints, u_RH2: Floats, action_R: Ints | None = None
) -> Trace:
    """Return the rollouts that go on from states, each with the steps that it has left.

    Args:
        task: with its tables.
        policy: that chooses.
        node_R: states.
        time_R: steps that were taken already.
        u_RH2: uniforms, as in `play`.
        action_R: first actions, if they are given.
    """
    n, H = node_R.size, task.horizon
    ladder = np.cumsum(policy.probs_NA, axis=1)
    node, action = np.zeros((n, H), np.int64), np.zeros((n, H), np.int64)
    reward, alive = np.zeros((n, H)), np.zeros((n, H), bool)
    here = node_R.copy()
    for t in range(H):
        goes = task.live_N[here] & (time_R + t < task.horizon)
        node[:, t], alive[:, t] = here, goes
        rows = np.flatnonzero(goes)
        if not rows.size:
            node[:, t:] = here[:, None]
            break
        chosen = pick(ladder[here[rows]], u_RH2[rows, t, 0] * ladder[here[rows], -1])
        if t == 0 and action_R is not None:
            chosen = action_R[rows]
        edge = task.draw_edges(here[rows], chosen, u_RH2[rows, t, 1])
        action[rows, t], reward[rows, t] = chosen, task.edge_reward_E[edge]
        here[rows] = task.edge_to_E[edge]
    return Trace(node, action, reward, alive, here)
