"""`python -m bench.worlds`: what a step, a snapshot and a restore of each world cost, as a table in Markdown.

Needs the extras `worlds` and `worlds-more`, Java and bubblewrap.
`python -m bench.worlds NAME…` makes only the rows whose names begin like one of these.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from accredit.worlds import TabularWorld, make
from accredit.worlds.babyai import BabyAIWorld
from accredit.worlds.forked import Fork
from accredit.worlds.gym import GymWorld
from accredit.worlds.household import HouseholdWorld
from accredit.worlds.households import house
from accredit.worlds.reasoning import ReasoningWorld
from accredit.worlds.repair import RepairWorld
from accredit.worlds.sandbox import Sandbox
from accredit.worlds.science import ScienceWorld
from accredit.worlds.search import SearchWorld
from accredit.worlds.textworld import TextWorldGame, game_file
from accredit.worlds.toolshop import ToolShop

BABYAI = "turn left", "go forward"
SCIENCE = "open door to hallway", "go to hallway", "wait1"


def game(*, copies: bool) -> TextWorldGame:
    """Return the game of two rooms that the samples have."""
    sizes = ["--world-size", "2", "--nb-objects", "4", "--quest-length", "2", "--seed", "11"]
    path = game_file("bench-242-11", ["custom", *sizes], Path(".cache", "accredit"))
    return TextWorldGame(path, copies=copies)


ROWS: tuple[tuple[str, str, Callable[[], Any], tuple[str, ...], int], ...] = (
    ("tables (`rooms:1`)", "state and generator", lambda: TabularWorld(make("rooms", seed=1)), (), 200),
    ("`textworld`", "transcript", partial(game, copies=False), (), 30),
    ("`textworld`, `copies=True`", "`env.copy()`", partial(game, copies=True), (), 30),
    ("`GymWorld`, FrozenLake", "deep copy", lambda: GymWorld("FrozenLake-v1"), ("0", "0"), 200),
    ("`toolshop`", "SQLite `serialize`", partial(ToolShop, 1), ToolShop(1).task.solution[:3], 200),
    ("`search`", "transcript", partial(SearchWorld, 1), SearchWorld(1).solution()[:3], 200),
    ('`repair`, `snapshots="git"`', "tree of git objects", partial(RepairWorld, 5), ("run tests",), 20),
    ('`repair`, `snapshots="copy"`', "copy", partial(RepairWorld, 5, snapshots="copy"), ("run tests",), 20),
    ("`babyai`", "deep copy", partial(BabyAIWorld, 1), BABYAI, 200),
    ("`reasoning`", "the answer", partial(ReasoningWorld, 1), (), 200),
    ("`household`", "planner's number", partial(HouseholdWorld, 1), house(1, size=4).solution[:3], 100),
    ("`household`, 16 receptacles", "planner's number", partial(HouseholdWorld, 1, size=16), (), 50),
    ("`scienceworld:boil`", "transcript", partial(ScienceWorld, "boil", 1), SCIENCE, 20),
    (
        "`Fork` of `babyai`",
        "forked process",
        partial(Fork, partial(BabyAIWorld, 1), deterministic=True),
        BABYAI,
        100,
    ),
)


def milliseconds(act: Callable[[], Any], n: int) -> float:
    """Return the median time of n calls."""
    found = []
    for _ in range(n):
        began = time.perf_counter()
        act()
        found.append(1000 * (time.perf_counter() - began))
    return statistics.median(found)


def told(number: float) -> str:
    """Return milliseconds as a table tells them.

    Example:
        >>> told(0.0013), told(0.153), told(283.4)
        ('< 0.01', '0.15', '283')
    """
    return "< 0.01" if number < 0.01 else f"{number:.2g}" if number < 100 else f"{number:.0f}"


def row(name: str, kind: str, make_one: Callable[[], Any], actions: tuple[str, ...], n: int) -> str:
    """Return a world's row: times in a state a few steps in; a step is taken from there, after a restore."""
    world = make_one()
    world.reset(0)
    for action in actions or [str((world.actions() or ["1"])[0])] * (name != "`reasoning`"):
        world.step(action)
    step = str((world.actions() or ["1"])[-1])
    token, steps = world.snapshot(), []
    saving = milliseconds(world.snapshot, n)
    restoring = milliseconds(partial(world.restore, token), n)
    for _ in range(n):
        world.restore(token)
        steps.append(milliseconds(partial(world.step, step), 1))
    exact = "yes" if world.exact_snapshot else "no"
    times = " | ".join(map(told, (statistics.median(steps), saving, restoring)))
    return f"| {name} | {kind} | {exact} | {'yes' if world.deterministic else 'no'} | {times} | {n} |"


if __name__ == "__main__":
    print("| world | snapshot | exact? | deterministic? | step, ms | snapshot, ms | restore, ms | n |")
    print("|---|---|---|---|---|---|---|---|")
    wanted = tuple(f"`{name}" for name in sys.argv[1:]) or ("",)
    for given in ROWS:
        if given[0].startswith(wanted):
            print(row(*given))
            sys.stdout.flush()
    if sys.argv[1:]:
        sys.exit()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        run = milliseconds(partial(Sandbox().run, "pass", Path(folder)), 30)
    print(f"\nPython started and ended in the sandbox: {run:.0f} ms (median of 30).")
