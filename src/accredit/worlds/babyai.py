"""BabyAI missions (MiniGrid) as text worlds: what is seen is told, actions are words, copies are exact.

Needs ``pip install "accredit[worlds]"``; nothing here imports minigrid before it is called.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
from typing import Any

from accredit.errors import BackendError, ParamError, suggest
from accredit.worlds.protocol import Cost
from accredit.worlds.textworld import COMMANDS

__all__ = ["ACTIONS", "BabyAIWorld"]

HORIZON = 40
ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")  # in MiniGrid's order
_FACING = ("east", "south", "west", "north")
_DOORS = ("open", "closed", "locked")


class BabyAIWorld:
    """Plays a mission; 1 when it is fulfilled in time, else 0, however long it took.

    Args:
        seed: of the mission and its rooms; an episode always begins the same.
        level: environment id of MiniGrid's BabyAI levels.
        horizon: actions after which an episode is cut.

    Raises:
        BackendError: if minigrid is not installed.
        ParamError: if there is no such level.
    """

    exact_snapshot = True
    snapshot_cost = 0.0
    deterministic = True
    side_effects = False

    def __init__(self, seed: int = 0, *, level: str = "BabyAI-GoToLocal-v0", horizon: int = HORIZON) -> None:
        try:
            import gymnasium
            import minigrid  # noqa: F401 - registers its levels
        except ImportError as error:
            raise BackendError(
                "MiniGrid is not installed", code="ACC756", hint="pip install 'accredit[worlds]'"
            ) from error
        levels = [name for name in gymnasium.registry if name.startswith("BabyAI-")]
        if level not in levels or horizon < 1:
            raise ParamError(f"no level {level!r}, or horizon < 1", hint=suggest(level, levels))
        self._seed = seed
        self._env: Any = gymnasium.make(level, max_steps=horizon).unwrapped
        self._done = True
        self.cost = Cost()

    def reset(self, seed: int) -> str:
        """Begin an episode; a mission has one beginning, whatever the seed."""
        with contextlib.redirect_stdout(io.StringIO()):  # it tells of layouts that it rejects
            self._env.reset(seed=self._seed)
        self._done = False
        return self.seen()

    def step(self, action: str) -> tuple[str, float, bool]:
        """Act.

        Raises:
            ParamError: if the episode is over or there is no such action.
        """
        if self._over or action not in ACTIONS:
            hint = "The episode is over" if self._over else suggest(action, ACTIONS)
            raise ParamError(f"cannot {action[:80]!r} here", hint=hint)
        _, reward, ended, _, _ = self._env.step(ACTIONS.index(action))
        self._done = bool(ended)
        self.cost.environment_steps += 1
        return self.seen(), float(self._done and reward > 0), self._over

    @property
    def _over(self) -> bool:
        return self._done or self.steps_left() <= 0

    def actions(self) -> list[str]:
        """Return the six actions; none where the episode is over."""
        return [] if self._over else list(ACTIONS)

    def steps_left(self) -> int:
        """Return the rest of the horizon."""
        return int(self._env.max_steps - self._env.step_count)

    def cut(self) -> bool:
        """Return whether the horizon alone ended the episode."""
        return self._over and not self._done

    def reseed(self, seed: int) -> None:
        """Nothing here is left to chance."""

    def seen(self) -> str:
        """Return the mission, what is carried, and where things in view are."""
        carried = self._env.carrying
        lines = [
            f"Your mission: {self._env.mission}.",
            f"You carry {'nothing' if carried is None else _called(carried)}.",
            *(_in_view(self._env) or ["You see nothing."]),
            COMMANDS + ", ".join(self.actions()),
        ]
        return "\n".join(lines)

    def key(self) -> str:
        """Return place and direction, and a digest of all that decides what follows."""
        env = self._env
        x, y = (int(v) for v in env.agent_pos)
        carried = "nothing" if env.carrying is None else _called(env.carrying)
        state = [env.grid.encode().tolist(), x, y, int(env.agent_dir), carried, _progress(env.instrs)]
        digest = hashlib.sha256(repr(state).encode()).hexdigest()[:16]
        end = "done" if self._done else "open"
        return f"at {x},{y} facing {_FACING[int(env.agent_dir)]} | {end} | {digest}"

    def snapshot(self) -> Any:
        """Return a deep copy of the environment."""
        self.cost.snapshots += 1
        return copy.deepcopy(self._env), self._done

    def restore(self, token: Any) -> str:
        """Go back to a snapshot, which stays usable."""
        self.cost.restores += 1
        env, self._done = token
        self._env = copy.deepcopy(env)
        return self.seen()


def _called(thing: Any) -> str:
    return f"a {thing.color} {thing.type}"


def _progress(instruction: Any) -> Any:
    """Return what an instruction remembers of what was done, and those inside it."""
    said = {}
    for name, value in sorted(vars(instruction).items()):
        if name in ("instr_a", "instr_b"):
            said[name] = _progress(value)
        elif isinstance(value, bool | str | int) or value is None:
            said[name] = value
        elif name == "preCarrying":
            said[name] = _called(value)
    return said


def _in_view(env: Any) -> list[str]:
    """Return a line for each thing that is seen, nearest first, and one for the wall ahead."""
    grid, visible = env.gen_obs_grid()
    me_x, me_y = grid.width // 2, grid.height - 1  # the view is turned: ahead is up
    found = []
    for x in range(grid.width):
        for y in range(grid.height):
            thing = grid.get(x, y)
            if thing is None or not visible[x, y] or (x, y) == (me_x, me_y):
                continue
            if thing.type != "wall" or x == me_x:
                found.append((abs(x - me_x) + me_y - y, x, thing, (me_y - y, x - me_x)))
    walls = [n for n, _, thing, _ in found if thing.type == "wall"]
    near = [row for row in sorted(found, key=lambda row: row[:2]) if row[2].type != "wall"]
    lines = [f"You see {_told(thing)} {_where(*place)}." for _, _, thing, place in near]
    return lines + ([f"There is a wall {_where(min(walls), 0)}."] if walls else [])


def _told(thing: Any) -> str:
    if thing.type != "door":
        return _called(thing)
    return f"a {_DOORS[int(thing.encode()[2])]} {thing.color} door"


def _where(ahead: int, right: int) -> str:
    parts = [f"{ahead} {'step' if ahead == 1 else 'steps'} ahead"] if ahead else []
    if right:
        side = "right" if right > 0 else "left"
        parts.append(f"{abs(right)} {'step' if abs(right) == 1 else 'steps'} to the {side}")
    return " and ".join(parts)
