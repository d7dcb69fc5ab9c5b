"""Exact truth of a real world that is small: explore it, ask the policy once a state, solve the table."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from accredit.data import Batch
from accredit.errors import DataError, ProbeError
from accredit.typing import Floats, Ints
from accredit.worlds import Policy, Rules, Task, World
from accredit.worlds.acting import Scene, Weighing
from accredit.worlds.dynamic import Tables, evaluate, key_advantage, occupancy, residual
from accredit.worlds.protocol import agent_of
from accredit.worlds.tabular import codes_of
from accredit.worlds.tabular import tabulate as tabulated_task
from accredit.worlds.truth import CRITICAL, StepTruth

__all__ = ["Moves", "Node", "State", "Table", "table_of", "table_truth", "tabulate"]

State: TypeAlias = tuple[str, str]  # key, and what is seen: the policy reads that
Node: TypeAlias = tuple[State, tuple[str, ...]]  # and the last actions that the policy remembers
Moves: TypeAlias = dict[State, dict[str, tuple[State, float, bool]]]
_LARGEST_RESIDUAL = 1e-12
_OTHER = "Give the world in which the rollout was played: the same game and its state's key"


@dataclass(frozen=True, eq=False)
class Table:
    """A world as a table, with the policy's values.

    Args:
        group: task.
        task: its states are (world, what the policy remembers).
        policy: asked once a state.
        tables: V ``[H+1, N]``, Q and A ``[H, N, A]`` by backward induction over the steps left.
        nodes: number of each (key, seen, remembered actions).
        start: of an episode.
        states: different states of the world.
        memory: actions that the policy remembers.
        moves: where each action leads from each state, what it pays, and whether the episode is over.
    """

    group: str
    task: Task
    policy: Policy
    tables: Tables
    nodes: dict[Node, int]
    start: Node
    states: int
    memory: int
    moves: Moves

    @property
    def value(self) -> float:
        """Value of the start, in reward units."""
        return float(self.tables.V[0, self.nodes[self.start]])

    @cached_property
    def spread(self) -> Floats:
        """Criticality of each node with its steps left, max_a Q - min_a Q ``[H, N]``."""
        return self.tables.spread(self.task)

    @cached_property
    def key_advantages(self) -> Floats:
        """Visit-weighted mean of A over what the key of a node merges ``[N, A]``."""
        code = codes_of(self.task.keys)[0]
        weight = occupancy(self.task, self.policy.probs_NA)[:, :, None] * self.policy.probs_NA
        code_HN = np.broadcast_to(code, (self.task.horizon, code.size))
        found: Floats = key_advantage(self.tables.A, weight, code_HN)[code]
        return found

    def chances(self, node: int) -> dict[str, float]:
        """Return how likely the policy takes each action that is possible in a node.

        Args:
            node: number, as `walk` returns it.
        """
        row = self.policy.probs_NA[node]
        return {self.task.actions[a]: float(row[a]) for a in np.flatnonzero(self.task.allowed_NA[node])}

    def walk(self, actions: Sequence[str], keys: Sequence[str | None]) -> tuple[Ints, Ints]:
        """Return the node before each action, and the action's number ``[steps]``.

        Args:
            actions: of a rollout, from the start.
            keys: recorded key of the state before each, checked; None = unknown.

        Raises:
            DataError: if the rollout leaves the table: it was not played in this world.
        """
        state, past = self.start
        at, taken = np.zeros(len(actions), np.int64), np.zeros(len(actions), np.int64)
        for t, (action, key) in enumerate(zip(actions, keys, strict=True)):
            if key is not None and key != state[0]:
                raise DataError(
                    f"step {t}: the world is in {state[0][:80]!r}, recorded was {key[:80]!r}", hint=_OTHER
                )
            if action not in self.moves.get(state, {}):
                raise DataError(
                    f"step {t}: {action[:80]!r} is not possible in {state[0][:80]!r}", hint=_OTHER
                )
            at[t], taken[t] = self.nodes[state, past], self.task.actions.index(action)
            past = _remembered((*past, action), self.memory)
            state = self.moves[state][action][0]
        return at, taken


def tabulate(
    world: World,
    actor: Weighing,
    group: str = "",
    *,
    memory: int = 0,
    horizon: int | None = None,
    most: int = 20_000,
) -> Table:
    """Return a world's table under a policy, exact over the steps that are left.

    Every state that actions can reach is visited, through snapshots; then the policy is asked for the
    probabilities of each state's actions, and values follow by backward induction.

    Args:
        world: deterministic, with exact snapshots; what an episode's end pays is paid by its last step.
        actor: the policy; its version must not change meanwhile.
        group: named in scenes.
        memory: number of last actions that the policy depends on beside what it sees.
        horizon: steps of an episode; default what the world says at its start.
        most: states (with memory) before it is given up.

    Raises:
        ProbeError: if the world leaves anything to chance, or has more states.

    Example:
        >>> from accredit.worlds import TabularWorld, make, make_policy
        >>> from accredit.worlds.acting import TableActor
        >>> task = make("rooms", seed=1, slip=0.0)
        >>> actor = TableActor(task, make_policy(task, 0.3))
        >>> world = TabularWorld(task)
        >>> world.deterministic = True  # without slips it is
        >>> round(tabulate(world, actor).value, 9)
        0.3
    """
    if not (world.deterministic and world.exact_snapshot):
        raise ProbeError(
            "only a deterministic world with exact snapshots can be tabulated",
            hint="Estimate its values by continuations (monte_carlo)",
        )
    start, moves, agents = _explored(world, most)
    limit = horizon if horizon is not None else world_horizon(world)

    def asked(nodes: Sequence[Node]) -> Sequence[Floats]:
        return actor.probs(
            [
                Scene(group, *state, actions=tuple(moves[state]), history=past, agent=agents[state])
                for state, past in nodes
            ]
        )

    return table_of(group, start, moves, asked, memory=memory, horizon=limit, most=most)


def table_of(
    group: str,
    start: State,
    moves: Moves,
    chances: Callable[[Sequence[Node]], Sequence[Floats]],
    *,
    memory: int,
    horizon: int,
    most: int = 20_000,
) -> Table:
    """Return the table of a world whose moves are known, its values by backward induction.

    Args:
        group: task.
        start: of an episode.
        moves: where each action leads from each state, what it pays, and whether the episode is over.
        chances: the policy's probabilities of each node's actions, in the order of the state's moves.
        memory: last actions that the policy depends on beside what it sees.
        horizon: steps of an episode.
        most: states (with memory) before it is given up.

    Raises:
        ArithmeticError: if the Bellman equations do not hold.
    """
    first: Node = (start, ())
    task, nodes = _task(first, moves, memory, horizon, most)
    live = [node for node, n in nodes.items() if task.live_N[n]]
    place = {a: i for i, a in enumerate(task.actions)}
    probs = np.zeros((task.n_states, task.n_actions))
    for node, row in zip(live, chances(live), strict=True):
        probs[nodes[node], [place[a] for a in moves[node[0]]]] = row
    policy = Policy(probs, np.log(np.maximum(probs, 1e-300)))
    tables = evaluate(task, probs)
    error = residual(task, probs, tables)
    if not error < _LARGEST_RESIDUAL:
        raise ArithmeticError(f"{group}: Bellman residual {error:.3g}")
    return Table(group, task, policy, tables, nodes, first, len(moves), memory, moves)


def world_horizon(world: World) -> int:
    """Return the number of steps of an episode of this world.

    Raises:
        ProbeError: if it has no limit.
    """
    world.reset(0)
    left = world.steps_left()
    if left is None:
        raise ProbeError("the world has no limit of steps", hint="Say horizon=")
    return left


def _explored(world: World, most: int) -> tuple[State, Moves, Mapping[State, str]]:
    """Return the first state, where each action leads from each state that can be reached, and whose turn
    it is there.
    """
    world.reset(0)
    first = (world.key(), world.seen())
    waiting = deque([(first, world.snapshot())])
    moves: Moves = {first: {}}
    agents: dict[State, str] = {}
    while waiting:
        state, token = waiting.popleft()
        world.restore(token)
        agents[state] = agent_of(world)
        for action in list(world.actions() or ()):
            world.restore(token)
            _, reward, _ = world.step(action)
            there = (world.key(), world.seen())
            over = not _goes_on(world)
            moves[state][action] = (there, reward, over)
            if there not in moves:
                if len(moves) >= most:
                    raise ProbeError(f"the world has more than {most} states", hint="Raise `most`, or sample")
                moves[there] = {}
                if not over:
                    waiting.append((there, world.snapshot()))
    return first, moves, agents


def _goes_on(world: World) -> bool:
    options = world.actions()
    return options is None or bool(options)


def _remembered(past: tuple[str, ...], memory: int) -> tuple[str, ...]:
    return past[-memory:] if memory else ()


def _task(first: Node, moves: Moves, memory: int, horizon: int, most: int) -> tuple[Task, dict[Node, int]]:
    """Return the task of (world, remembered actions), and the number of each node."""
    actions = tuple(dict.fromkeys(a for ways in moves.values() for a in ways))
    number = {a: i for i, a in enumerate(actions)}
    nodes: dict[Node, int] = {}

    def onward(node: Node) -> dict[int, list[tuple[float, Node, float]]]:
        state, past = node
        return {
            number[a]: [(1.0, (there, _remembered((*past, a), memory)), reward)]
            for a, (there, reward, _) in moves[state].items()
        }

    def numbered(states: list[Node]) -> dict[str, Any]:
        nodes.update({node: i for i, node in enumerate(states)})
        return {}

    task = tabulated_task(
        Rules(onward, lambda node: node[0][0], lambda node: 0.0),
        {first: 1.0},
        actions,
        family="tabulated",
        seed=0,
        horizon=horizon,
        limit=most,
        of_states=numbered,
    )
    return task, nodes


def table_truth(batch: Batch, tables: Mapping[str, Table]) -> StepTruth:
    """Return the exact truth of each step of rollouts that were played in tabulated worlds.

    ``value`` is V of (state, steps left), ``advantage`` Q - V of the action taken; ``advantage_key``
    the visit-weighted mean over what one recorded state merges, that is over the steps left.

    Args:
        batch: rollouts that begin at the start and carry every action.
        tables: by group.

    Raises:
        DataError: if a group has no table, a step no action, or a rollout leaves its table.
    """
    parts = [_rollout_truth(batch, r, tables) for r in range(len(batch))]
    value, advantage, spread, by_key = (
        np.concatenate([p[i] for p in parts] or [np.zeros(0)]) for i in range(4)
    )
    first = np.diff(batch.token_start_S1) > 0
    token = np.zeros(batch.n_tokens)
    token[batch.token_start_S1[:-1][first]] = advantage[first]
    token_value = np.repeat(value + advantage, np.diff(batch.token_start_S1))
    token_value[batch.token_start_S1[:-1][first]] = value[first]
    return StepTruth(
        value=value,
        q=value + advantage,
        advantage=advantage,
        advantage_key=by_key,
        spread=spread,
        critical=spread > CRITICAL,
        token_advantage=token,
        token_value=token_value,
    )


def _rollout_truth(batch: Batch, r: int, tables: Mapping[str, Table]) -> tuple[Floats, ...]:
    group = str(batch.group_names[int(batch.group_R[r])])
    if group not in tables:
        raise DataError(f"group {group!r} has no table", hint="Give the world of every group")
    table = tables[group]
    actions, states = batch.column("action_S"), batch.columns.get("state_S")
    steps = batch.steps_of(r)
    keys = [str(states.item(s)) if states is not None and states.given(s) else None for s in steps]
    try:
        at, taken = table.walk([str(actions.item(s)) for s in steps], keys)
    except DataError as error:
        raise DataError(f"rollout {batch.ids[r]!r} {error.message}", hint=error.hint) from None
    t = np.arange(len(steps))
    tables_ = table.tables
    by_key = table.key_advantages[at, taken]
    return tables_.V[t, at], tables_.A[t, at, taken], table.spread[t, at], by_key
