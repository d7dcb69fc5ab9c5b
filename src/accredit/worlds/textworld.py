"""TextWorld games as worlds: generated, played through their admissible commands, copied exactly.

Needs ``pip install "accredit[worlds]"``; nothing here imports textworld before it is called.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from accredit.errors import BackendError, ParamError
from accredit.worlds.protocol import Cost

__all__ = ["HORIZON", "TextWorldGame", "answer", "choices", "facts_key", "game_file", "scene_text"]

HORIZON = 20
COMMANDS = "Possible commands: "
_IDLE = ("look", "inventory", "examine ")  # what they tell is in the prompt
_INFOS = ("facts", "admissible_commands", "description", "inventory", "objective", "won", "lost", "score")


def game_file(name: str, make: Sequence[str], cache: Path) -> Path:
    """Return the compiled game (.z8 with its .json), made by ``tw-make`` unless the cache has it.

    Args:
        name: of the file.
        make: arguments of ``tw-make``; they make the same game byte for byte.
        cache: folder; games lie in its ``textworld``.

    Raises:
        BackendError: if TextWorld is not installed, or refuses the arguments.
    """
    if Path(name).name != name or name.startswith("."):
        raise ParamError(f"{name[:80]!r} is no name of a game")
    target = cache / "textworld" / f"{name}.z8"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder, target.name)
            _compile(list(make), made)
            for suffix in (".json", ".z8"):  # the .z8 last: it marks the pair as complete
                made.with_suffix(suffix).replace(target.with_suffix(suffix))
    return target


_KINDS = frozenset({"custom", "tw-coin_collector", "tw-treasure_hunter", "tw-simple", "tw-cooking"})
_SIZES = re.compile(r"--(world-size|nb-objects|quest-length|quest-breadth|level|seed|recipe|take|go)")


def _compile(make: list[str], target: Path) -> None:
    # What to make may come from a file of rollouts: kinds and sizes only, nothing that names a path.
    odd = [part for part in make[1:] if not (_SIZES.fullmatch(part) or re.fullmatch(r"[0-9]{1,9}", part))]
    if not make or make[0] not in _KINDS or odd:
        raise BackendError(
            f"tw-make is not asked for {' '.join(make)[:80]!r}",
            code="ACC756",
            hint="Kinds of game and their sizes only",
        )
    tool = Path(sys.executable).with_name("tw-make")
    if not tool.exists():
        raise BackendError("TextWorld is not installed", code="ACC756", hint="pip install 'accredit[worlds]'")
    command = [str(tool), *make, "--output", str(target), "--silent"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    if ran.returncode != 0:
        raise BackendError(f"tw-make failed: {ran.stderr.strip()[-200:]}", code="ACC756")


def facts_key(state: Any) -> str:
    """Return the whole world as one text: sorted facts, score, and open, won or lost."""
    end = "won" if state.won else "lost" if state.lost else "open"
    return " | ".join([*sorted(map(str, state.facts)), f"score={state.score}", end])


def choices(state: Any) -> list[str]:
    """Return the admissible commands that can change the world."""
    return [command for command in state.admissible_commands if not command.startswith(_IDLE)]


def scene_text(state: Any) -> str:
    """Return what there is to read: task, room, inventory, possible commands."""
    task = f"Your task: {state.objective}\n\n"
    room = f"{state.description.strip()}\n\n{state.inventory.strip()}\n\n"
    return task + room + COMMANDS + ", ".join(choices(state))


def answer(state: Any) -> str:
    """Return the game's words after a command, without the status line of the terminal."""
    return str(state.feedback).rpartition("\n>")[0].strip()


class TextWorldGame:
    """Plays a game: reward 1 when it is won, else 0.

    A snapshot is the list of commands so far, which are given again, or a copy of the game; both lead
    to the same state.  Commands take some 5 ms each, a copy 100 ms and 2 MB.

    Args:
        path: of a compiled game.
        horizon: commands after which an episode is cut.
        key: ``facts`` = all facts of the world, which say all of it; ``text`` = room and inventory as
            they read, which several states may share.
        copies: snapshots are copies.
    """

    exact_snapshot = True
    deterministic = True
    side_effects = False

    def __init__(
        self,
        path: Path,
        *,
        horizon: int = HORIZON,
        key: Literal["facts", "text"] = "facts",
        copies: bool = False,
    ) -> None:
        try:
            import textworld
        except ImportError as error:
            raise BackendError(
                "TextWorld is not installed", code="ACC756", hint="pip install 'accredit[worlds]'"
            ) from error
        infos = textworld.EnvInfos(**dict.fromkeys(_INFOS, True))
        self._env: Any = textworld.start(str(path), request_infos=infos)
        self._horizon, self._by, self._copies = horizon, key, copies
        self._state: Any = None
        self._given: tuple[str, ...] = ()
        self._done = True
        self.snapshot_cost = 0.0 if copies else horizon / 2
        self.cost = Cost()

    def reset(self, seed: int) -> str:
        """Begin an episode; a game has one beginning, whatever the seed."""
        self._state, self._given, self._done = self._env.reset(), (), False
        return self.seen()

    def step(self, action: str) -> tuple[str, float, bool]:
        """Give a command."""
        self._state, _, done = self._env.step(action)
        self._given, self._done = (*self._given, action), bool(done)
        self.cost.environment_steps += 1
        return self.seen(), float(self._done and self._state.won), self._over

    @property
    def _over(self) -> bool:
        return self._done or len(self._given) >= self._horizon

    def actions(self) -> list[str]:
        """Return the commands that can change the world; none where the episode is over."""
        return [] if self._over else choices(self._state)

    def steps_left(self) -> int:
        """Return the rest of the horizon."""
        return self._horizon - len(self._given)

    def cut(self) -> bool:
        """Return whether the horizon alone ended the episode."""
        return self._over and not self._done

    def reseed(self, seed: int) -> None:
        """Nothing here is left to chance."""

    def seen(self) -> str:
        """Return task, room, inventory and possible commands."""
        return scene_text(self._state)

    def key(self) -> str:
        """Return the key of the present state."""
        if self._by == "facts":
            return facts_key(self._state)
        return f"{self._state.description.strip()}\n\n{self._state.inventory.strip()}"

    def snapshot(self) -> Any:
        """Return the commands so far, or a copy of the game."""
        self.cost.snapshots += 1
        game = (self._env.copy(), self._state) if self._copies else None
        return self._given, self._done, game

    def restore(self, token: Any) -> str:
        """Go back to a snapshot, which stays usable."""
        self.cost.restores += 1
        given, self._done, game = token
        if game is None:
            self._state = self._env.reset()
            for command in given:
                self._state, _, _ = self._env.step(command)
                self.cost.environment_steps += 1
        else:
            self._env, self._state = game[0].copy(), game[1]
        self._given = given
        return self.seen()
