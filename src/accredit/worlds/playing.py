"""A tabular task as a world that is played step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from accredit.errors import ParamError, suggest
from accredit.worlds.protocol import Cost
from accredit.worlds.tabular import Task

__all__ = ["TabularWorld"]


@dataclass(frozen=True, slots=True)
class _Token:
    node: int
    time: int
    earned: float
    over: bool
    chance: Any


class TabularWorld:
    """Plays a task by drawing from its tables; snapshots copy the state and the generator.

    Args:
        task: any.

    Example:
        >>> from accredit.worlds import families
        >>> world = TabularWorld(families.make("rooms", seed=1))
        >>> seen = world.reset(seed=3)
        >>> token = world.snapshot()
        >>> first = world.step("go north")
        >>> world.restore(token) == seen, world.step("go north") == first
        (True, True)
    """

    exact_snapshot = True
    snapshot_cost = 0.0
    deterministic = False
    side_effects = False

    def __init__(self, task: Task) -> None:
        self.task = task
        self.cost = Cost()
        self._rng = np.random.default_rng(0)
        self._node, self._time, self._earned, self._over = 0, 0, 0.0, True

    def reset(self, seed: int) -> str:
        """Begin an episode; return the key of its first state."""
        self._rng = np.random.default_rng(np.random.SeedSequence([seed, self.task.seed, 7]))
        self._node = int(self._rng.choice(self.task.n_states, p=self.task.start_N))
        self._time, self._earned = 0, 0.0
        self._over = not self.task.live_N[self._node]
        return self.key()

    def step(self, action: str) -> tuple[str, float, bool]:
        """Take an action by name.

        Returns:
            The key of the next state, the reward (with the outcome, at the end), whether it is over.

        Raises:
            ParamError: if the episode is over or the action is not allowed here.
        """
        task = self.task
        a = task.actions.index(action) if action in task.actions else -1
        if self._over or a < 0 or not task.allowed_NA[self._node, a]:
            state = "the episode is over" if self._over else suggest(action, self.actions())
            raise ParamError(f"{task.family}: cannot {action!r} here", hint=state or "See actions()")
        edge = int(task.draw_edges(np.array([self._node]), np.array([a]), self._rng.random(1))[0])
        paid = float(task.edge_reward_E[edge])
        self._node, self._time = int(task.edge_to_E[edge]), self._time + 1
        self._over = not task.live_N[self._node] or self._time >= task.horizon
        self.cost.environment_steps += 1
        return self.key(), self._reward(paid), self._over

    def _reward(self, paid: float) -> float:
        if self.task.deferred:
            self._earned += paid
            paid = self._earned if self._over else 0.0
        return paid + (float(self.task.outcome_N[self._node]) if self._over else 0.0)

    def actions(self) -> list[str]:
        """Return what can be done here."""
        if self._over:
            return []
        return [self.task.actions[a] for a in np.flatnonzero(self.task.allowed_NA[self._node]).tolist()]

    def steps_left(self) -> int:
        """Return the rest of the horizon."""
        return self.task.horizon - self._time

    def seen(self) -> str:
        """Return the key: there is no more to see."""
        return self.key()

    def key(self) -> str:
        """Return the text of the present state, with the step where the task shows it."""
        clock = f" Step {self._time}." if self.task.clock else ""
        return self.task.keys[self._node] + clock

    def agent(self) -> str:
        """Return the role that decides in the present state; "" where the task has none."""
        return self.task.agents[self._node] if self.task.agents else ""

    def snapshot(self) -> Any:
        """Return the state, the time and the state of the generator."""
        self.cost.snapshots += 1
        return _Token(self._node, self._time, self._earned, self._over, self._rng.bit_generator.state)

    def restore(self, token: Any) -> str:
        """Go back to a snapshot; what follows is what would have followed then."""
        self.cost.restores += 1
        self._node, self._time = token.node, token.time
        self._earned, self._over = token.earned, token.over
        self._rng.bit_generator.state = token.chance
        return self.key()

    def reseed(self, seed: int) -> None:
        """Give the rest of the episode another chance."""
        self._rng = np.random.default_rng(np.random.SeedSequence([seed, self.task.seed, 11]))
