"""ScienceWorld tasks as worlds: a house with a laboratory in words, simulated in a JVM of its own.

Needs ``pip install "accredit[worlds-more]"`` and Java; nothing here imports scienceworld before it is called.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import weakref
from collections.abc import Iterator
from typing import Any

from accredit.errors import BackendError, ParamError, ProbeError, suggest
from accredit.worlds.protocol import Cost
from accredit.worlds.textworld import COMMANDS

__all__ = ["ScienceWorld"]

HORIZON = 100  # ScienceWorld's own
_IDLE = ("inventory", "look ", "reset ", "task")  # what they tell is seen; time passes with `wait1` as well
_CARRIED = ("dunk ", "move ", "pour ")
_WIRED = ("connect ", "disconnect ")
_DOORS = ("close ", "go ", "open ")
_NO_THINGS = frozenset({"agent", "air", "inventory"})
# The simulator goes through sets in the order of the JVM's identity hashes, which differ from run to run:
# temperatures then differ in the third digit, and objects of one name are told apart by other words.
# With one hash for all, the order is that of insertion.
_ORDERED = "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockExperimentalVMOptions -XX:hashCode=2"


class ScienceWorld:
    """Plays a task of ScienceWorld; rewards are rises of its score, and sum to the final score / 100.

    A score below 0 (the task was failed by a focus on a wrong object) counts as 0 and ends the episode.
    A snapshot is the list of actions so far, which are taken again; then the states are compared.
    The world has a JVM, which ends with `close`, or when the world is collected or the process ends.

    Args:
        task: one of its 30 tasks, by name (``boil``).
        variation: of the task: other substances, other rooms.
        horizon: actions after which an episode is cut; it keeps what it has scored.
        free: any text is taken as an action, and `actions` lists none.

    Raises:
        BackendError: if scienceworld or Java is not installed.
        ParamError: for an unknown task or variation, or a horizon below 1.
    """

    exact_snapshot = True
    deterministic = True
    side_effects = False

    def __init__(self, task: str, variation: int = 0, *, horizon: int = HORIZON, free: bool = False) -> None:
        if horizon < 1:
            raise ParamError(f"horizon is {horizon}, must be at least 1")
        self._env: Any = _simulator()
        self.close = weakref.finalize(self, _end, self._env)
        self._task, self._variation, self._horizon, self._free = task, variation, horizon, free
        self._check()
        self._load(gold=False)
        self._given: tuple[str, ...] = ()
        self._options: list[str] | None = None
        self._said, self._score, self._done = "", 0.0, True
        self.snapshot_cost = horizon / 2
        self.cost = Cost()

    def _check(self) -> None:
        tasks = self._env.get_task_names()
        if self._task not in tasks:
            raise ParamError(f"no task {self._task[:80]!r}", hint=suggest(self._task, tasks))
        most = self._env.get_max_variations(self._task)
        if not 0 <= self._variation < most:
            raise ParamError(f"variation is {self._variation}, {self._task} has 0 to {most - 1}")

    def _load(self, *, gold: bool) -> None:
        self._env.load(self._task, self._variation, "", generateGoldPath=gold)

    def solution(self) -> list[str]:
        """Return ScienceWorld's gold path from the start.

        Some of its actions only look, and the last ones may come after the end.  To make it takes about a
        second, and the episode is over after that.
        """
        self._load(gold=True)
        self._done = True
        return [str(action) for action in self._env.get_gold_action_sequence()]

    def reset(self, seed: int) -> str:
        """Begin an episode; a variation has one beginning, whatever the seed."""
        self._begin()
        return self.seen()

    def _begin(self) -> None:
        self._env.server.reset()
        self._given, self._options = (), None
        self._said, self._score, self._done = "", 0.0, False

    def step(self, action: str) -> tuple[str, float, bool]:
        """Act.

        Raises:
            ParamError: if the episode is over.
        """
        if self._over:
            raise ParamError(f"cannot {action[:80]!r} here", hint="The episode is over")
        reward = self._take(action)
        return self.seen(), reward, self._over

    def _take(self, action: str) -> float:
        """Do it, without a look at the new state, which takes longer."""
        server = self._env.server
        self._said = str(server.step(action)).strip()
        score = float(server.getScore())
        self._done = bool(server.getCompleted()) or score < 0
        before, self._score = self._score, max(score, 0.0)
        self._given, self._options = (*self._given, action), None
        self.cost.environment_steps += 1
        return self._score - before

    @property
    def _over(self) -> bool:
        return self._done or self.steps_left() <= 0

    def actions(self) -> list[str] | None:
        """Return what is possible and can change something; none where the episode is over.

        Left out are looks, what is done to doors, rooms and air, wires without a terminal, and moving,
        pouring or dunking what was not picked up first.
        """
        if self._over:
            return []
        if not self._free and self._options is None:
            self._options = self._sensible()
        return self._options

    def _sensible(self) -> list[str]:
        told = json.loads(self._env.server.getValidActionObjectCombinationsJSON())["validActions"]
        kinds = _kinds(self._env.getObjectTree())
        return sorted({a["action"] for a in told if _makes_sense(a["action"], a["obj_ids"], kinds)})

    def steps_left(self) -> int:
        """Return the rest of the horizon."""
        return self._horizon - len(self._given)

    def cut(self) -> bool:
        """Return whether the horizon alone ended the episode."""
        return self._over and not self._done

    def reseed(self, seed: int) -> None:
        """Nothing here is left to chance."""

    def seen(self) -> str:
        """Return the task, what the last action did, the room, what is carried, and possible actions."""
        env = self._env
        parts = [env.taskdescription(), self._said, env.look(), env.inventory()]
        options = self.actions()
        if options is not None:
            parts.append(COMMANDS + ", ".join(options))
        return "\n\n".join(part.strip() for part in parts if part.strip())

    def key(self) -> str:
        """Return score and end, and a digest of all objects, what was achieved, and what was asked back."""
        asked = self._said if self._said.startswith("Ambiguous request") else ""
        state = [_plain(self._env.getObjectTree()), self._env.get_goal_progress(), asked]
        digest = hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()[:16]
        return f"score {round(100 * self._score)} | {'done' if self._done else 'open'} | {digest}"

    def snapshot(self) -> Any:
        """Return the actions so far, and the key that they led to."""
        self.cost.snapshots += 1
        return self._given, self.key()

    def restore(self, token: Any) -> str:
        """Take the actions of a snapshot again.

        Raises:
            ProbeError: if they lead to another state.
        """
        self.cost.restores += 1
        given, key = token
        self._begin()
        for action in given:
            self._take(action)
        if self.key() != key:
            raise ProbeError(
                f"the same actions led to {self.key()!r}, before they led to {key!r}",
                hint=f"ScienceWorld is exact where the JVM takes {_ORDERED.rpartition(' ')[2]}",
            )
        return self.seen()


def _simulator() -> Any:
    """Return a simulator in a JVM that goes through sets in the same order every time."""
    try:
        from scienceworld import ScienceWorldEnv
    except ImportError as error:
        raise BackendError(
            "ScienceWorld is not installed", code="ACC756", hint="pip install 'accredit[worlds-more]'"
        ) from error
    if shutil.which("java") is None:
        raise BackendError(
            "ScienceWorld needs Java, and there is none",
            code="ACC756",
            hint="As root: apt-get install default-jre-headless",
        )
    with _java_options(_ORDERED):
        return ScienceWorldEnv("")


@contextlib.contextmanager
def _java_options(options: str) -> Iterator[None]:
    """Start JVMs with options: ScienceWorld passes none on, but a JVM reads its environment."""
    kept = os.environ.get("JAVA_TOOL_OPTIONS")
    os.environ["JAVA_TOOL_OPTIONS"] = f"{kept or ''} {options}".strip()
    try:
        yield
    finally:
        if kept is None:
            del os.environ["JAVA_TOOL_OPTIONS"]
        else:
            os.environ["JAVA_TOOL_OPTIONS"] = kept


def _end(env: Any) -> None:
    """End the JVM of a simulator, and wait for it."""
    java = env._gateway.java_process
    env.close()
    try:
        java.wait(timeout=5)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()
    env._obj_tree_tempdir.cleanup()


def _kinds(tree: Any) -> dict[str, set[int]]:
    """Return the ids of all things (no rooms, no doors), of those that are carried, and of terminals."""
    found: dict[str, set[int]] = {"things": set(), "carried": set(), "terminals": set()}

    def walk(node: Any, *, carried: bool) -> None:
        for inner in node["contents"].values():
            if inner["name"] not in _NO_THINGS:
                found["things"].add(int(inner["uuid"]))
                if carried:
                    found["carried"].add(int(inner["uuid"]))
                if inner["propElectricalConnection"] is not None:
                    found["terminals"].add(int(inner["uuid"]))
            walk(inner, carried=carried or inner["name"] == "inventory")

    for room in tree["contents"].values():
        walk(room, carried=False)
    return found


def _makes_sense(action: str, objects: list[int], kinds: dict[str, set[int]]) -> bool:
    if action.startswith(_IDLE):
        return False
    if action.startswith(_DOORS) or action.isdigit():
        return True
    if action.startswith(_WIRED) and not kinds["terminals"] & set(objects):
        return False
    if action.startswith(_CARRIED) and objects[0] not in kinds["carried"]:
        return False
    return kinds["things"] >= set(objects)


def _plain(node: Any) -> Any:
    """Return an object with all in it; without ids, which are others after each reset, and in one order."""
    inside = sorted((_plain(inner) for inner in node["contents"].values()), key=repr)
    return {**{k: v for k, v in node.items() if k not in ("uuid", "contents")}, "contents": inside}
