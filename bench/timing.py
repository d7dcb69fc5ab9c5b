"""Fair clocks: all contestants in one process, in turn, on one thread, garbage collection off."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Contestant", "Timing", "race"]


@dataclass(frozen=True)
class Contestant:
    """What is timed, and what is made before the clock starts, anew for every repeat."""

    run: Callable[[Any], Any]
    before: Callable[[], Any] = lambda: None


@dataclass(frozen=True)
class Timing:
    """CPU seconds of n turns, in order, and the wall-clock seconds of the shortest one."""

    seconds: tuple[float, ...]
    wall_s: float

    @property
    def best(self) -> float:
        return min(self.seconds)

    def to_dict(self) -> dict[str, Any]:
        """Best, number of turns, and spread: median / best and worst / best."""
        spread = [statistics.median(self.seconds) / self.best, max(self.seconds) / self.best]
        return {"best_s": self.best, "wall_s": self.wall_s, "n": len(self.seconds), "spread": spread}


def race(contestants: Mapping[str, Contestant], n: int, budget_s: float = 60.0) -> dict[str, Timing]:
    """Seconds of each contestant: n rounds in which each has one turn, after two calls to warm up.

    Taking turns lets a busy moment of the machine hit all alike. A turn is one call, or as many as
    fill 20 ms where a call takes less than 5 ms (then its average counts). Results of single calls
    are freed outside the clock. A race past its budget stops after at least two rounds.

    The clock is the CPU time of the whole process, all its threads: on a quiet machine it is wall
    time; on a busy one it leaves out the others' shares, which hit long calls more than short ones.
    """
    gc.collect()
    gc.freeze()  # what is there already need not be searched before every turn
    try:
        return _raced(contestants, n, budget_s)
    finally:
        gc.unfreeze()


def _raced(contestants: Mapping[str, Contestant], n: int, budget_s: float) -> dict[str, Timing]:
    calls = {name: _calls_a_turn(min(_turn(c, 1), _turn(c, 1))[0]) for name, c in contestants.items()}
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    started = time.perf_counter()
    for done in range(n):
        if done >= 2 and time.perf_counter() - started > budget_s:
            break
        for name, contestant in contestants.items():
            turns[name].append(_turn(contestant, calls[name]))
    return {
        name: Timing(tuple(cpu for cpu, _ in taken), min(wall for _, wall in taken))
        for name, taken in turns.items()
    }


def _calls_a_turn(seconds: float) -> int:
    return 1 if seconds >= 0.005 else math.ceil(0.02 / max(seconds, 1e-6))


def _turn(contestant: Contestant, calls: int) -> tuple[float, float]:
    """CPU and wall seconds a call of so many calls in a row."""
    given = [contestant.before() for _ in range(calls)]
    result: Any = None
    gc.collect()
    gc.disable()
    try:
        wall, cpu = time.perf_counter(), time.process_time()
        for one in given:
            result = contestant.run(one)
        taken = time.process_time() - cpu, time.perf_counter() - wall
        del result
    finally:
        gc.enable()
    return taken[0] / calls, taken[1] / calls
