"""Tasks with tables: states, actions, chance and rewards that are all known, over a finite horizon.

Axes: ``N`` states, ``A`` actions, ``M`` = N * A rows (state, action), ``E`` edges (one way that a
row can go on), ``M1`` offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from accredit.errors import ParamError
from accredit.typing import Array, BoolArray, Floats, Ints

__all__ = ["Move", "Rules", "Task", "tabulate"]

# What an action can lead to: (probability, next state, reward).
Move: TypeAlias = tuple[float, Hashable, float]


@dataclass(frozen=True, eq=False)
class Task:
    """A finite-horizon decision task as tables.

    An episode ends in a state without allowed actions, or after ``horizon`` steps; the outcome of
    the state where it ends is then paid on top of the step rewards.

    Args:
        family: name of the family.
        seed: seed that made it; the unit over which results are resampled.
        horizon: largest number of steps H.
        keys: text of each state that methods see (not always the full state) ``[N]``.
        actions: names ``[A]``.
        allowed_NA: which actions a state has; none = the episode is over.
        start_N: distribution of the first state.
        edge_start_M1: offsets of each (state, action)'s edges.
        edge_to_E: next states.
        edge_prob_E: probabilities; each row that is allowed sums to 1.
        edge_reward_E: rewards paid on the way.
        outcome_N: outcome if the episode ends here.
        success_N: whether that is a success; None where the family has no success rate.
        agents: role that decides in each state ``[N]``; empty = one nameless role.
        payoffs: outcome by role ``[N]``, where roles are paid differently (then ``outcome_N`` is
            the first role's).
        blind: whether the policy sees the key only, as methods do.
        clock: whether the key shows the step.
        history: whether the key is the whole path of actions.
        deferred: whether step rewards are paid with the outcome, at the end.
        gamma: discount a step.
        logits_NA: logits of the policy at beta = 0, if the family sets them.
        score_NA: what beta multiplies in policies, in place of optimal values.
        features_Nd: numbers that describe a state, if the family has them.
        distractors: random bits appended to the key at each step.
        tokens_per_step: 0: an action is one step; k: an action is one token, k of them a step.
        size: arguments of `make`.
        facts: what else the family knows exactly (where the pivot is, the game ...).
    """

    family: str
    seed: int
    horizon: int
    keys: tuple[str, ...]
    actions: tuple[str, ...]
    allowed_NA: BoolArray
    start_N: Floats
    edge_start_M1: Ints
    edge_to_E: Ints
    edge_prob_E: Floats
    edge_reward_E: Floats
    outcome_N: Floats
    success_N: BoolArray | None = None
    agents: tuple[str, ...] = ()
    payoffs: Mapping[str, Floats] = field(default_factory=dict)
    blind: bool = False
    clock: bool = False
    history: bool = False
    deferred: bool = False
    gamma: float = 1.0
    logits_NA: Floats | None = None
    score_NA: Floats | None = None
    features_Nd: Floats | None = None
    distractors: int = 0
    tokens_per_step: int = 0
    size: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_states(self) -> int:
        """Number of states N."""
        return len(self.keys)

    @property
    def n_actions(self) -> int:
        """Number of actions A."""
        return len(self.actions)

    @cached_property
    def live_N(self) -> BoolArray:
        """Which states go on."""
        return np.asarray(self.allowed_NA.any(1))

    @cached_property
    def row_E(self) -> Ints:
        """The (state, action) row of each edge, state * A + action."""
        return np.repeat(np.arange(self.edge_start_M1.size - 1), np.diff(self.edge_start_M1))

    @cached_property
    def matrix(self) -> Any:
        """Transition probabilities, sparse ``[M, N]``."""
        shape = (self.edge_start_M1.size - 1, self.n_states)
        return sparse.csr_array((self.edge_prob_E, self.edge_to_E, self.edge_start_M1), shape=shape)

    @cached_property
    def reward_NA(self) -> Floats:
        """Expected step reward of each action."""
        paid = self.edge_prob_E * self.edge_reward_E
        rows: Floats = np.bincount(self.row_E, paid, self.edge_start_M1.size - 1).astype(np.float64)
        return rows.reshape(self.n_states, self.n_actions)

    @cached_property
    def edge_ladder_E(self) -> Floats:
        """Row number plus the cumulative probability within the row: one sorted array, in which
        ``row + u`` finds the edge that a uniform u takes.
        """
        total = np.concatenate([[0.0], np.cumsum(self.edge_prob_E)])
        within = total[1:] - total[self.edge_start_M1[self.row_E]]
        return np.asarray(self.row_E + np.minimum(within, 1.0))

    def role_outcome(self, agent: str) -> Floats:
        """Return the outcomes that a role is paid ``[N]``."""
        return self.payoffs.get(agent, self.outcome_N)

    def draw_edges(self, node: Ints, action: Ints, uniform: Floats) -> Ints:
        """Return the edge that each (state, action) takes, given uniforms in [0, 1) ``[n]``."""
        row = node * self.n_actions + action
        found = np.searchsorted(self.edge_ladder_E, row + uniform, side="right")
        return np.clip(found, self.edge_start_M1[row], self.edge_start_M1[row + 1] - 1)


@dataclass(frozen=True, slots=True)
class Rules:
    """A task as functions of a state; `tabulate` makes the tables of all states it can reach.

    Args:
        moves: actions of a state by index, each with its moves; empty = the episode is over.
        key: text of a state.
        outcome: outcome if the episode ends in a state.
        success: whether that is a success; None where the family has no success rate.
        agent: role that decides in a state; None = one nameless role.
    """

    moves: Callable[[Any], Mapping[int, Sequence[Move]]]
    key: Callable[[Any], str]
    outcome: Callable[[Any], float]
    success: Callable[[Any], bool] | None = None
    agent: Callable[[Any], str] | None = None


def tabulate(
    rules: Rules,
    start: Mapping[Hashable, float],
    actions: Sequence[str],
    *,
    family: str,
    seed: int,
    horizon: int,
    limit: int = 200_000,
    of_states: Callable[[list[Any]], Mapping[str, Any]] | None = None,
    **options: Any,
) -> Task:
    """Return the tables of every state that can be reached, in order of discovery.

    Args:
        rules: what happens.
        start: first states and their probabilities.
        actions: names.
        family: name of the family.
        seed: of the task.
        horizon: largest number of steps.
        limit: most states.
        of_states: more fields of the Task, from the list of states.
        options: other fields of the Task.

    Raises:
        ParamError: if there are more states than the limit, or an action's moves do not sum to 1.
    """
    number: dict[Hashable, int] = {state: i for i, state in enumerate(start)}
    states: list[Any] = list(start)
    edges = _Edges(len(actions))
    for state in states:  # grows while it is walked
        edges.add(rules.moves(state), number, states)
        if len(states) > limit:
            raise ParamError(f"{family}: more than {limit} states", hint="Make the task smaller")
    if edges.worst > 1e-9:
        raise ParamError(f"{family}: moves of an action sum to 1 +- {edges.worst:.3g}")
    n = len(states)
    first = np.zeros(n)
    first[: len(start)] = list(start.values())
    return Task(
        family=family,
        seed=seed,
        horizon=horizon,
        keys=tuple(map(rules.key, states)),
        actions=tuple(actions),
        allowed_NA=np.array(edges.counts, np.int64).reshape(n, len(actions)) > 0,
        start_N=first / first.sum(),
        edge_start_M1=np.concatenate([[0], np.cumsum(np.array(edges.counts, np.int64))]),
        edge_to_E=np.array(edges.to, np.int64),
        edge_prob_E=np.array(edges.prob, np.float64),
        edge_reward_E=np.array(edges.reward, np.float64),
        outcome_N=np.array([rules.outcome(s) for s in states], np.float64),
        success_N=None if rules.success is None else np.array([rules.success(s) for s in states], bool),
        agents=() if rules.agent is None else tuple(map(rules.agent, states)),
        **{**options, **(of_states(states) if of_states else {})},
    )


class _Edges:
    """Edge lists that grow state by state."""

    def __init__(self, n_actions: int) -> None:
        self.n_actions = n_actions
        self.counts: list[int] = []
        self.to: list[int] = []
        self.prob: list[float] = []
        self.reward: list[float] = []
        self.worst = 0.0

    def add(
        self, moves: Mapping[int, Sequence[Move]], number: dict[Hashable, int], states: list[Any]
    ) -> None:
        for a in range(self.n_actions):
            ways = [way for way in moves.get(a, ()) if way[0] > 0]
            self.counts.append(len(ways))
            if ways:
                self.worst = max(self.worst, abs(sum(p for p, _, _ in ways) - 1.0))
            for prob, after, reward in ways:
                if after not in number:
                    number[after] = len(states)
                    states.append(after)
                self.to.append(number[after])
                self.prob.append(prob)
                self.reward.append(reward)


def codes_of(words: Sequence[str]) -> tuple[Ints, tuple[str, ...]]:
    """Return dense codes of words in order of first appearance, and the distinct words."""
    table: dict[str, int] = {}
    codes = np.array([table.setdefault(w, len(table)) for w in words], np.int64)
    return codes, tuple(table)


def pick(cumulative: Array, uniform: Floats) -> Ints:
    """Return the column that each uniform falls in, by rows of cumulative probabilities ``[n, A]``."""
    chosen: Ints = np.minimum((uniform[:, None] >= cumulative).sum(1), cumulative.shape[1] - 1)
    return chosen
