"""Explored worlds played by the policy that was asked in them: real continuations without the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accredit.errors import DataError, ParamError, suggest
from accredit.oracle.tabulated import Table
from accredit.signals.continuation import Player, Replay
from accredit.typing import Floats
from accredit.worlds import Cost
from accredit.worlds.acting import Actor, Choice, Scene, ScriptedActor, UniformActor, drawn

__all__ = ["TableWorld", "TablesActor", "player_of"]


class TableWorld:
    """Plays an explored world by its moves; a snapshot is a state and a time.

    An episode that reaches the horizon is cut, not over: its last state still says what could be done.

    Args:
        table: of the world.
    """

    exact_snapshot = True
    snapshot_cost = 0.0
    deterministic = True
    side_effects = False

    def __init__(self, table: Table) -> None:
        self.table, self.cost = table, Cost()
        self._choices = {state: list(ways) for state, ways in table.moves.items()}
        self._state, self._time = table.start[0], table.task.horizon

    def reset(self, seed: int) -> str:
        """Begin an episode; there is one beginning, whatever the seed."""
        self._state, self._time = self.table.start[0], 0
        return self.seen()

    def step(self, action: str) -> tuple[str, float, bool]:
        """Take an action.

        Raises:
            ParamError: if it is not possible here, or the episode is over.
        """
        if action not in self.actions() or not self.steps_left():
            hint = suggest(action, self.actions()) or "See actions() and steps_left()"
            raise ParamError(f"{self.table.group}: cannot {action!r} here", hint=hint)
        self._state, reward, _ = self.table.moves[self._state][action]
        self._time += 1
        self.cost.environment_steps += 1
        return self.seen(), reward, not self.actions()

    def actions(self) -> list[str]:
        """Return what can be done here; nothing where the episode is over."""
        return self._choices[self._state]

    def steps_left(self) -> int:
        """Return the rest of the horizon."""
        return self.table.task.horizon - self._time

    def reseed(self, seed: int) -> None:
        """Nothing here is left to chance."""

    def seen(self) -> str:
        """Return what the policy reads here."""
        return self._state[1]

    def key(self) -> str:
        """Return the key of the present state."""
        return self._state[0]

    def snapshot(self) -> Any:
        """Return the state and the time."""
        self.cost.snapshots += 1
        return self._state, self._time

    def restore(self, token: Any) -> str:
        """Go back to a snapshot, which stays usable."""
        self.cost.restores += 1
        self._state, self._time = token
        return self.seen()


class TablesActor:
    """Plays each group by the chances in its table.

    Args:
        tables: by group.
        version: of the policy.
    """

    def __init__(self, tables: Mapping[str, Table], version: str = "tables") -> None:
        self.version, self._tables = version, tables
        self._rows: dict[Any, Floats] = {}

    def probs(self, scenes: Sequence[Scene]) -> Sequence[Floats]:
        """Return the probability of each scene's actions, in their order.

        Raises:
            DataError: if a table has no such state.
        """
        return [self._row(scene) for scene in scenes]

    def act(self, scenes: Sequence[Scene], rngs: Sequence[np.random.Generator]) -> Sequence[Choice]:
        """Return a draw for each scene."""
        return [self._one(scene, rng) for scene, rng in zip(scenes, rngs, strict=True)]

    def likeliest(self, scene: Scene) -> str:
        """Return the action that the policy takes most often, the first of equals."""
        return (scene.actions or ())[int(np.argmax(self._row(scene)))]

    def _one(self, scene: Scene, rng: np.random.Generator) -> Choice:
        probs = self._row(scene)
        a = drawn(probs, rng)
        return Choice((scene.actions or ())[a], float(np.log(probs[a])))

    def _row(self, scene: Scene) -> Floats:
        table = self._tables.get(scene.group)
        past = scene.history[-table.memory :] if table is not None and table.memory else ()
        where = (scene.group, scene.key, scene.seen, past, scene.actions)
        if where not in self._rows:
            node = None if table is None else table.nodes.get(((scene.key, scene.seen), past))
            if table is None or node is None:
                raise DataError(f"the tables have no state {scene.key[:80]!r} in group {scene.group!r}")
            chances = table.chances(node)
            self._rows[where] = np.array([chances[action] for action in scene.actions or ()])
        return self._rows[where]


def player_of(tables: Mapping[str, Table], version: str = "tables", *, slots: int = 64) -> Player:
    """Return who goes on from any place of explored worlds, as the engine's crew takes it.

    Its policies are ``actor`` (the one that was asked), ``greedy`` (its likeliest action) and
    ``uniform``.

    Args:
        tables: by group.
        version: of the policy.
        slots: worlds at a time.

    Example:
        >>> from accredit.oracle import tabulate
        >>> from accredit.planners import Place, Request
        >>> from accredit.signals.continuation import Alone, Engine
        >>> from accredit.worlds import TabularWorld, make, make_policy
        >>> from accredit.worlds.acting import TableActor
        >>> task = make("rooms", seed=1, slip=0.0)
        >>> world = TabularWorld(task)
        >>> world.deterministic = True  # without slips it is
        >>> table = tabulate(world, TableActor(task, make_policy(task, 0.3)), "g")
        >>> answer, = Engine(Alone(player_of({"g": table}))).run([Request(Place("g", "start"), k=400)])
        >>> abs(answer.mean - table.value) < 3 * answer.se
        True
    """
    actor = TablesActor(tables, version)
    actors: dict[str, Actor] = {
        "actor": actor,
        "greedy": ScriptedActor(actor.likeliest, name=f"greedy {version}"),
        "uniform": UniformActor(),
    }
    return Player(Replay(lambda group: TableWorld(tables[group])), actors, slots=slots)
