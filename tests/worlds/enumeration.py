"""Every trajectory of a tiny task, one by one: the slow and obvious way to its values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from accredit.worlds import Rules, Task, tabulate


class Path(NamedTuple):
    prob: float
    steps: tuple[tuple[int, int, int], ...]
    rewards: tuple[float, ...]
    outcome: float
    end: int

    def after(self, t: int, gamma: float = 1.0) -> float:
        """Discounted rewards from step t on, the outcome included."""
        left = [*self.rewards[t:], self.outcome]
        return sum(gamma**i * r for i, r in enumerate(left))


def tiny(seed: int, *, states: int = 4, actions: int = 2, horizon: int = 3, **options: Any) -> Task:
    """A random task: some states are over, some actions not allowed, keys that several states share."""
    rng = np.random.default_rng(seed)
    table: dict[int, dict[int, list[tuple[float, int, float]]]] = {}
    for s in range(states):
        allowed = [a for a in range(actions) if rng.random() < 0.8]
        over = s > 0 and rng.random() < 0.3
        table[s] = {} if over else {a: _ways(rng, states) for a in allowed or [0]}
    outcome = rng.standard_normal(states)
    names = rng.integers(0, 2, states)
    return tabulate(
        Rules(
            lambda s: table[s],
            lambda s: f"key {names[s]}",
            lambda s: float(outcome[s]),
            lambda s: bool(outcome[s] > 0),
        ),
        {0: 0.25, 1: 0.75},
        tuple(f"a{a}" for a in range(actions)),
        family="tiny",
        seed=seed,
        horizon=horizon,
        **options,
    )


def _ways(rng: np.random.Generator, states: int) -> list[tuple[float, int, float]]:
    p = rng.dirichlet(np.ones(2))
    return [(float(q), int(rng.integers(states)), float(rng.standard_normal())) for q in p]


def paths(task: Task, probs: Any) -> Iterator[Path]:
    def grow(path: Path, s: int) -> Iterator[Path]:
        t = len(path.steps)
        if t == task.horizon or not task.allowed_NA[s].any():
            yield path._replace(outcome=float(task.outcome_N[s]), end=s)
            return
        for a in np.flatnonzero(task.allowed_NA[s]).tolist():
            row = s * task.n_actions + a
            for e in range(task.edge_start_M1[row], task.edge_start_M1[row + 1]):
                chance = path.prob * probs[s, a] * task.edge_prob_E[e]
                rewards = (*path.rewards, float(task.edge_reward_E[e]))
                longer = Path(float(chance), (*path.steps, (t, s, a)), rewards, 0.0, 0)
                yield from grow(longer, int(task.edge_to_E[e]))

    for s in np.flatnonzero(task.start_N).tolist():
        yield from grow(Path(float(task.start_N[s]), (), (), 0.0, s), s)
