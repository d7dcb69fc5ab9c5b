"""Stateful toy environments without snapshots, one of which cannot be copied."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import numpy as np

from accredit.errors import ParamError

__all__ = ["Closed", "Urn", "closed", "threaded", "urn"]


class Urn:
    """Draws balls without putting them back: chance, a bag, a history; pays what is drawn."""

    def __init__(self) -> None:
        self.rng, self.bag, self.drawn = np.random.default_rng(0), list[int](), list[int]()

    def reset(self, seed: int) -> str:
        self.rng, self.bag, self.drawn = np.random.default_rng(seed), list(range(8)), []
        return self.seen()

    def step(self, action: str) -> tuple[str, float, bool]:
        if action == "crash":
            os._exit(7)
        if action not in ("draw", "put back"):
            raise ParamError(f"cannot {action!r}", hint="draw")
        if action == "draw":
            self.drawn.append(self.bag.pop(int(self.rng.integers(len(self.bag)))))
        elif self.drawn:
            self.bag.append(self.drawn.pop(0))
        return self.seen(), float(self.drawn[-1] if self.drawn else 0), not self.bag

    def actions(self) -> list[str]:
        return ["draw", "put back"] if self.bag else []

    def steps_left(self) -> int | None:
        return None

    def reseed(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def seen(self) -> str:
        return f"in the bag {self.bag}, drawn {self.drawn}"

    def key(self) -> str:
        return f"{sorted(self.bag)} {self.drawn}"


class Closed(Urn):
    """An urn whose state is in a running generator and behind a lock: neither copied nor pickled."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.turns: Iterator[int] = iter(n for n in range(10**6))
        self.turn = 0

    def reset(self, seed: int) -> str:
        self.turns, self.turn = iter(n for n in range(1, 10**6)), 0
        return super().reset(seed)

    def step(self, action: str) -> tuple[str, float, bool]:
        with self.lock:
            self.turn = next(self.turns)
            if action == "divide":
                raise ZeroDivisionError("by zero")
            return super().step(action)

    def seen(self) -> str:
        return f"turn {self.turn}: {super().seen()}"

    def key(self) -> str:
        return f"turn {self.turn}: {super().key()}"


def urn() -> Urn:
    """Return an urn."""
    return Urn()


def closed() -> Closed:
    """Return a closed urn."""
    return Closed()


def threaded() -> Closed:
    """Return a closed urn beside a thread."""
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return Closed()
