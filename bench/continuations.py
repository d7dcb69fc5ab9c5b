"""`python -m bench.continuations`: what the continuation engine costs, as a table in Markdown.

Three questions: continuations a minute on a world of tables, what a second process adds, and the share
of the engine beside the time inside the environment and the policy.  Rounds take turns; the figures are
medians of the rounds with the smallest and the largest.  Needs the extra `worlds` for TextWorld.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from accredit.planners import Place, Request
from accredit.signals.continuation import Alone, Engine, Player, Replay, Workers
from accredit.worlds import TabularWorld, World, make, make_policy
from accredit.worlds.acting import Actor, TableActor, UniformActor
from accredit.worlds.textworld import TextWorldGame, game_file
from accredit.worlds.toolshop import ToolShop

ROUNDS = 7


class Clock:
    """Seconds spent inside what it wraps."""

    seconds = 0.0
    running = False

    def __call__(self, act: Callable[..., Any]) -> Callable[..., Any]:
        """Return the same function, timed."""

        def timed(*given: Any, **named: Any) -> Any:
            if self.running:  # called by another one of it, which is timed already
                return act(*given, **named)
            self.running, began = True, time.perf_counter()
            try:
                return act(*given, **named)
            finally:
                self.running = False
                self.seconds += time.perf_counter() - began

        return timed


WORLD = ("reset", "step", "key", "seen", "actions", "snapshot", "restore", "reseed", "steps_left")


def clocked(thing: Any, names: Sequence[str], clock: Clock) -> Any:
    """Return the thing, the named methods of it timed."""
    for name in names:
        setattr(thing, name, clock(getattr(thing, name)))
    return thing


def tables() -> Player:
    """Return who plays the world of tables."""
    task = make("rooms", seed=1)
    actor = TableActor(task, make_policy(task, success_rate=0.3))
    return Player(Replay(lambda group: TabularWorld(task)), {"actor": actor})


def shop() -> Player:
    """Return who plays the tool shop, whose world is bound by Python and SQLite."""
    return Player(Replay(lambda group: ToolShop(1)), {"actor": UniformActor()})


def adventure() -> Player:
    """Return who plays the text game."""
    return Player(Replay(lambda group: game()), {"actor": UniformActor()})


def rate(crew: Callable[[], Any], k: int) -> float:
    """Return continuations a minute from the start, processes begun before the clock."""
    with Engine(crew(), seed=0) as engine:
        engine.run([Request(Place("g", "start"), k=64, max_steps=1)])  # makes processes and worlds
        began = time.perf_counter()
        engine.run([Request(Place("g", "start"), k=k)])
        return 60 * k / (time.perf_counter() - began)


def rates(player: Callable[[], Player], k: int) -> tuple[dict[str, list[float]], list[float]]:
    """Return the rates of each crew by round, and the speed-up of two processes over one."""
    crews: dict[str, Callable[[], Any]] = {
        "this process": lambda: Alone(player()),
        "one worker": lambda: Workers(player, 1, chunk=8),
        "two workers": lambda: Workers(player, 2, chunk=8),
    }
    found: dict[str, list[float]] = {name: [] for name in crews}
    for _ in range(ROUNDS):
        for name, crew in crews.items():
            found[name].append(rate(crew, k))
    pairs = zip(found["two workers"], found["one worker"], strict=True)
    return found, [two / one for two, one in pairs]


def overhead(world: Callable[[], World], actor: Callable[[], Actor], k: int) -> tuple[float, float, float]:
    """Return the engine's own seconds as a share of the environment's, and the seconds of both.

    The engine's own time is all that is spent neither in the world nor in the policy; the journal is
    a file.
    """
    inside, chosen = Clock(), Clock()
    restorer = Replay(lambda group: clocked(world(), WORLD, inside))
    player = Player(restorer, {"actor": clocked(actor(), ("act",), chosen)})
    with (
        tempfile.TemporaryDirectory() as folder,
        Engine(Alone(player), journal=str(Path(folder, "journal"))) as engine,
    ):
        engine.run([Request(Place("g", "start"), k=16, max_steps=1)])  # makes the worlds
        inside.seconds = chosen.seconds = 0.0
        began = time.perf_counter()
        engine.run([Request(Place("g", "start"), k=k)])
        own = time.perf_counter() - began - inside.seconds - chosen.seconds
    return own / inside.seconds, own, inside.seconds


def told(numbers: Sequence[float], form: str) -> str:
    """Return the median with the smallest and the largest."""
    low, high = min(numbers), max(numbers)
    return f"{statistics.median(numbers):{form}} ({low:{form}} to {high:{form}})"


def game() -> TextWorldGame:
    """Return the game of two rooms that the samples have."""
    sizes = ["--world-size", "2", "--nb-objects", "4", "--quest-length", "2", "--seed", "11"]
    return TextWorldGame(game_file("bench-242-11", ["custom", *sizes], Path(".cache", "accredit")))


def main() -> None:
    """Print the tables."""
    print("| world | who plays | continuations a minute | speed-up of two over one |\n|---|---|---|---|")
    rows = ("tables (`rooms:1`)", tables, 8192), ("`toolshop`", shop, 1024), ("`textworld`", adventure, 128)
    for name, player, k in rows:
        found, ratio = rates(player, k)
        for crew, numbers in found.items():
            gain = told(ratio, ".2f") if crew == "two workers" else ""
            print(f"| {name} | {crew} | {told(numbers, ',.0f')} | {gain} |", flush=True)
    print("\n| world | engine's own time, share of the environment's | own, ms | environment, ms |")
    print("|---|---|---|---|")
    for name, world, k in (("`textworld`", game, 24), ("`toolshop`", partial(ToolShop, 1), 256)):
        shares = [overhead(world, UniformActor, k) for _ in range(ROUNDS)]
        own, env = (told([1000 * row[i] / k for row in shares], ".2f") for i in (1, 2))
        print(f"| {name} | {told([100 * row[0] for row in shares], '.1f')} % | {own} | {env} |", flush=True)


if __name__ == "__main__":
    main()
