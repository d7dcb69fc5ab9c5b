"""Snapshots by fork: an environment that cannot be copied lives in a process, which can."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

from accredit.errors import AccreditError, ProbeError
from accredit.worlds.protocol import Cost
from accredit.worlds.snapshots import Playable

__all__ = ["Fork"]

_ASKED = frozenset({"reset", "step", "actions", "steps_left", "reseed", "seen", "key"})


class Fork:
    """Plays an environment in a process; a snapshot is a fork of it that waits.

    Everything in memory is saved, chance included, whatever the language it is written in.  Not saved:
    files and connections that the environment has open (copies share them), threads (there must be
    none when it is saved), other processes (a JVM, a browser).  Linux and macOS only.

    Args:
        make: makes the environment, in the new process; importable by name where this process has threads.
        deterministic: whether the same actions always lead to the same state.
        side_effects: whether its steps change something outside.

    Raises:
        ProbeError: if the environment cannot be made, or its process ended.
    """

    exact_snapshot = True
    snapshot_cost = 0.0

    def __init__(
        self, make: Callable[[], Playable], *, deterministic: bool = False, side_effects: bool = False
    ) -> None:
        self.deterministic, self.side_effects = deterministic, side_effects
        self.cost = Cost()
        # Threads do not survive a fork, and what they held stays locked: then a clean process is spawned.
        threads = threading.active_count() > 1 or "torch" in sys.modules
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn") if threads else multiprocessing.get_context("fork")
        context.Process(target=_begin, args=(theirs, make), daemon=True).start()
        theirs.close()
        self._live = _Held(ours)
        self._live.ask("made")

    def reset(self, seed: int) -> str:
        """Begin an episode."""
        return str(self._live.ask("reset", seed))

    def step(self, action: str) -> tuple[str, float, bool]:
        """Take an action."""
        self.cost.environment_steps += 1
        seen, reward, over = self._live.ask("step", action)
        return str(seen), float(reward), bool(over)

    def actions(self) -> Sequence[str] | None:
        """Return what can be done here."""
        found: Sequence[str] | None = self._live.ask("actions")
        return found

    def steps_left(self) -> int | None:
        """Return after how many more steps the episode ends."""
        left: int | None = self._live.ask("steps_left")
        return left

    def reseed(self, seed: int) -> None:
        """Give the rest of the episode another chance."""
        self._live.ask("reseed", seed)

    def seen(self) -> str:
        """Return what is seen."""
        return str(self._live.ask("seen"))

    def key(self) -> str:
        """Return the key of the present state."""
        return str(self._live.ask("key"))

    def snapshot(self) -> Any:
        """Return a process that waits in this state; it ends when nobody holds it any more."""
        self.cost.snapshots += 1
        return self._live.fork()

    def restore(self, token: Any) -> str:
        """Go back to a snapshot, which stays usable."""
        self.cost.restores += 1
        self._live = token.fork()
        return self.seen()


class _Held:
    """Our end of a process; the process ends with it."""

    def __init__(self, line: Connection) -> None:
        self._line = line
        weakref.finalize(self, _let_go, line, os.getpid())

    def ask(self, what: str, *given: Any) -> Any:
        """Return the answer, or raise what was raised."""
        return self._said((what, given))

    def fork(self) -> _Held:
        """Return a copy of the process as it is now."""
        ours, theirs = socket.socketpair()
        with ours, theirs:  # detached, ours stays open
            self._said(("fork", ()), theirs.fileno())
            return _Held(Connection(ours.detach()))

    def _said(self, asked: tuple[str, tuple[Any, ...]], handle: int | None = None) -> Any:
        try:
            self._line.send(asked)
            if handle is not None:
                send_handle(self._line, handle, 0)
            failed, answer = self._line.recv()
        except (EOFError, OSError) as error:
            raise ProbeError("the environment's process ended", hint="Its own output may say why") from error
        if failed:
            raise answer
        return answer


def _let_go(line: Connection, owner: int) -> None:
    """End the process at the other end, unless it is our parent that holds it."""
    if os.getpid() == owner:
        with contextlib.suppress(OSError):
            line.send(("end", ()))
        line.close()


# -- in the environment's process -------------------------------------------------------------------------


def _begin(line: Connection, make: Callable[[], Playable]) -> None:
    """Make the environment and serve it; never returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asked for us ends us
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks that ended are not waited for
    gc.freeze()  # objects of our parent are not collected here: they would close numbers that are ours now
    for other in range(3, 4096):  # what came over from our parent keeps other processes alive
        if other != line.fileno():
            with contextlib.suppress(OSError):
                os.close(other)
    try:
        play = make()
    except Exception as error:  # noqa: BLE001 - told to who asked
        line.recv()
        line.send((True, ProbeError(f"the environment cannot be made: {type(error).__name__}: {error}")))
        os._exit(1)
    _serve(line, play)


def _serve(line: Connection, play: Playable) -> None:
    """Answer until the line is closed; never returns."""
    answer: Connection | tuple[bool, Any]
    while True:
        try:
            what, given = line.recv()
            if what == "end":
                os._exit(0)
            if what == "fork":
                answer = _forked(line)
            else:
                answer = (False, None) if what == "made" else _answer(play, what, given)
            if isinstance(answer, Connection):
                line.close()
                line = answer
            else:
                line.send(answer)
        except (EOFError, OSError):
            os._exit(0)


def _forked(line: Connection) -> Connection | tuple[bool, Any]:
    """Fork; return the new line in the copy, and what to say in the original."""
    handle = recv_handle(line)
    if threading.active_count() > 1:
        os.close(handle)
        return True, ProbeError("the environment has threads: it cannot be forked")
    if os.fork() == 0:
        return Connection(handle)
    os.close(handle)
    return False, None


def _answer(play: Playable, what: str, given: tuple[Any, ...]) -> tuple[bool, Any]:
    assert what in _ASKED, what
    try:
        return False, getattr(play, what)(*given)
    except AccreditError as error:
        return True, error
    except Exception as error:  # noqa: BLE001 - told to who asked, in words: others may not survive the way
        return True, RuntimeError(f"{type(error).__name__}: {error}")
