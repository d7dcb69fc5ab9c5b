"""Exact means and variances of what a policy earns in a tabular task, by recursion over its edges."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from accredit.signals.continuation import Alone, Engine, Player, Replay
from accredit.worlds import Policy, TabularWorld, Task
from accredit.worlds.acting import TableActor


class Exact:
    """What is earned from a state on; for tasks whose states tell the time."""

    def __init__(self, task: Task, policy: Policy) -> None:
        self.task, self.probs = task, policy.probs_NA
        self.moments = lru_cache(maxsize=None)(self._moments)

    def start(self) -> int:
        (node,) = np.flatnonzero(self.task.start_N).tolist()
        return int(node)

    def edges(self, node: int, action: int) -> list[tuple[float, int, float]]:
        row = node * self.task.n_actions + action
        inside = range(int(self.task.edge_start_M1[row]), int(self.task.edge_start_M1[row + 1]))
        return [
            (float(self.task.edge_prob_E[e]), int(self.task.edge_to_E[e]), float(self.task.edge_reward_E[e]))
            for e in inside
        ]

    def after(self, node: int, action: int) -> tuple[float, float]:
        """Mean and variance once an action was taken, its own reward included."""
        first = second = 0.0
        for p, to, paid in self.edges(node, action):
            mean, variance = self.moments(to)
            first += p * (paid + mean)
            second += p * (variance + (paid + mean) ** 2)
        return first, second - first**2

    def _moments(self, node: int) -> tuple[float, float]:
        if not self.task.live_N[node]:
            return float(self.task.outcome_N[node]), 0.0
        ways = [(float(self.probs[node, a]), *self.after(node, a)) for a in self.acts(node)]
        mean = sum(p * m for p, m, _ in ways)
        return mean, sum(p * (v + m * m) for p, m, v in ways) - mean**2

    def acts(self, node: int) -> list[int]:
        return [int(a) for a in np.flatnonzero(self.probs[node])]

    def walk(self, actions: list[str]) -> int:
        """The state that a path of actions leads to; every action but the last leads one way."""
        node = self.start()
        for action in actions:
            ((_, node, _),) = self.edges(node, self.task.actions.index(action))
        return node


def engine_of(task: Task, policy: Policy, seed: int = 0) -> Engine:
    actor = TableActor(task, policy)
    return Engine(
        Alone(Player(Replay(lambda group: TabularWorld(task)), {"actor": actor}, slots=64)), seed=seed
    )
