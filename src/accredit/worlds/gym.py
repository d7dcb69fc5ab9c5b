"""Gymnasium environments as worlds, and its toy texts as tabular tasks.

Needs ``pip install "accredit[worlds]"``; nothing here imports gymnasium before it is called.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from accredit.errors import DataError
from accredit.typing import Floats
from accredit.worlds.protocol import Cost
from accredit.worlds.tabular import Task

__all__ = ["GymWorld", "gym_task", "value_iteration"]

_ENDED = "The episode is over."


def gym_task(name: str, *, seed: int = 0, horizon: int = 100, gamma: float = 0.99, **options: Any) -> Task:
    """Return a toy-text environment (FrozenLake-v1, Taxi-v4, CliffWalking-v1) as tables.

    States are its own, and one more where episodes end.  Its rewards are step rewards; there is no outcome
    beside them, and success is not defined.

    Args:
        name: id of an environment whose ``unwrapped.P`` holds its tables.
        seed: of the task (the policy's logits).
        horizon: steps after which an episode is cut.
        gamma: discount.
        options: for ``gymnasium.make``.

    Raises:
        DataError: if the environment shows no tables.
    """
    import gymnasium

    world = gymnasium.make(name, **options).unwrapped
    table = getattr(world, "P", None)
    if table is None:
        raise DataError(f"{name} shows no transition table", hint="Play it through GymWorld")
    n, n_actions = len(table), len(table[0])
    ways = [(s, a, *way) for s in range(n) for a in range(n_actions) for way in table[s][a]]
    counts = np.zeros((n + 1, n_actions), np.int64)
    np.add.at(counts, ([w[0] for w in ways], [w[1] for w in ways]), 1)
    start = np.append(np.asarray(getattr(world, "initial_state_distrib"), np.float64), 0.0)  # noqa: B009
    return Task(
        family=name,
        seed=seed,
        horizon=horizon,
        keys=(*(f"state {s}" for s in range(n)), _ENDED),
        actions=tuple(f"action {a}" for a in range(n_actions)),
        allowed_NA=counts > 0,
        start_N=start / start.sum(),
        edge_start_M1=np.concatenate([[0], np.cumsum(counts.ravel())]),
        edge_to_E=np.array([n if w[5] else int(w[3]) for w in ways], np.int64),
        edge_prob_E=np.array([w[2] for w in ways], np.float64),
        edge_reward_E=np.array([w[4] for w in ways], np.float64),
        outcome_N=np.zeros(n + 1),
        gamma=gamma,
        size={"name": name, "gamma": gamma, **options},
    )


def value_iteration(task: Task, tolerance: float = 1e-12, most: int = 100_000) -> Floats:
    """Return the optimal values without a horizon ``[N]``.

    Args:
        task: with gamma below 1, or in which every way ends.
        tolerance: largest change in the last sweep.
        most: sweeps.

    Raises:
        ArithmeticError: if the values have not settled by then.
    """
    value, change = np.where(task.live_N, 0.0, task.outcome_N), np.inf
    for _ in range(most):
        ahead = (task.matrix @ value).reshape(task.n_states, task.n_actions)
        q = np.where(task.allowed_NA, task.reward_NA + task.gamma * ahead, -np.inf)
        new = np.where(task.live_N, q.max(1), task.outcome_N)
        change = float(np.abs(new - value).max())
        value = new
        if change <= tolerance:
            return value
    raise ArithmeticError(f"{task.family}: values still change by {change:.3g} after {most} sweeps")


class GymWorld:
    """Plays a Gymnasium environment with discrete actions; snapshots are deep copies.

    Args:
        name: environment id, or an environment.
        key: text of an observation; default ``str``.
        options: for ``gymnasium.make``.
    """

    exact_snapshot = True
    snapshot_cost = 0.0
    deterministic = False
    side_effects = False

    def __init__(self, name: Any, *, key: Callable[[Any], str] = str, **options: Any) -> None:
        import gymnasium

        self._env = gymnasium.make(name, **options) if isinstance(name, str) else name
        self._key = key
        self._seen: Any = None
        self._over, self._cut, self._taken = True, False, 0
        self.cost = Cost()

    def reset(self, seed: int) -> str:
        """Begin an episode."""
        self._seen, _ = self._env.reset(seed=seed)
        self._over, self._cut, self._taken = False, False, 0
        return self.key()

    def step(self, action: str) -> tuple[str, float, bool]:
        """Take an action, by its number."""
        self._seen, reward, ended, cut, _ = self._env.step(int(action))
        self._over, self._cut = bool(ended or cut), bool(cut and not ended)
        self._taken += 1
        self.cost.environment_steps += 1
        return self.key(), float(reward), self._over

    def actions(self) -> list[str]:
        """Return the numbers of the actions; none where the episode is over."""
        return [] if self._over else [str(a) for a in range(int(self._env.action_space.n))]

    def steps_left(self) -> int | None:
        """Return the rest of the environment's own limit of steps, if it has one."""
        limit = self._env.spec.max_episode_steps if self._env.spec is not None else None
        return None if limit is None else limit - self._taken

    def cut(self) -> bool:
        """Return whether the environment truncated the episode."""
        return self._cut

    def reseed(self, seed: int) -> None:
        """Give the environment's generator a new seed."""
        self._env.unwrapped.np_random = np.random.default_rng(seed)

    def seen(self) -> str:
        """Return the key: there is no more to see."""
        return self.key()

    def key(self) -> str:
        """Return the text of the last observation."""
        return self._key(self._seen)

    def snapshot(self) -> Any:
        """Return a deep copy of the environment and the last observation."""
        self.cost.snapshots += 1
        return copy.deepcopy((self._env, self._seen, self._over, self._cut, self._taken))

    def restore(self, token: Any) -> str:
        """Go back to a snapshot, which stays usable."""
        self.cost.restores += 1
        self._env, self._seen, self._over, self._cut, self._taken = copy.deepcopy(token)
        return self.key()
