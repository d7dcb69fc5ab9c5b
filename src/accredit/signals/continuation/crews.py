"""Who plays: this process alone, or several of them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice

from accredit.errors import ParamError
from accredit.planners import Outcome
from accredit.signals.continuation.playing import Job, Player

__all__ = ["Alone", "Workers"]

_CHUNK = 32
_player: Player | None = None


class Alone:
    """This process plays; actors that run best in batches belong here.

    Args:
        player: of it.
    """

    def __init__(self, player: Player) -> None:
        self._player = player
        self.versions: Mapping[str, str] = _versions(player)
        self.scorer = _scorer(player)

    def play(self, jobs: Iterator[Job]) -> Iterator[tuple[str, Outcome]]:
        """Yield the outcome of each job as it ends."""
        return self._player.play(jobs)

    def close(self) -> None:
        """Nothing runs between calls."""


class Workers:
    """Several processes play; for worlds and actors that are bound by Python.

    Processes are forked, or spawned where torch is loaded (its threads do not survive a fork); then
    ``make`` must be importable by name.

    Args:
        make: makes each process's player.
        n: processes.
        chunk: jobs handed over at a time.
        crashes: how often a process may die before its jobs are given up.
    """

    def __init__(
        self, make: Callable[[], Player], n: int = 2, *, chunk: int = _CHUNK, crashes: int = 3
    ) -> None:
        if n < 1 or chunk < 1:
            raise ParamError(f"workers and chunk must be >= 1, got {n} and {chunk}")
        self._make, self._n, self._chunk, self._crashes = make, n, chunk, crashes
        player = make()
        self.versions: Mapping[str, str] = _versions(player)
        self.scorer = _scorer(player)
        self._pool: ProcessPoolExecutor | None = None

    def play(self, jobs: Iterator[Job]) -> Iterator[tuple[str, Outcome]]:
        """Yield the outcome of each job as it ends."""
        running: dict[Future[list[tuple[str, Outcome]]], list[Job]] = {}
        while True:
            while len(running) < 2 * self._n and (chunk := list(islice(jobs, self._chunk))):
                running[self._started().submit(_play, chunk)] = chunk
            if not running:
                return
            for ended in wait(running, return_when=FIRST_COMPLETED).done:
                chunk = running.pop(ended, [])
                try:
                    yield from ended.result() if chunk else ()
                except BrokenProcessPool:
                    suspects = [job for some in (chunk, *running.values()) for job in some]
                    running.clear()
                    self.close()
                    yield from self._one_by_one(suspects)

    def _one_by_one(self, jobs: list[Job]) -> Iterator[tuple[str, Outcome]]:
        """Play jobs of which one killed its process, each alone, so that it is found."""
        for job in jobs:
            for _ in range(self._crashes):
                try:
                    yield from self._started().submit(_play, [job]).result()
                    break
                except BrokenProcessPool:
                    self.close()
            else:
                yield job.id, _lost(job)

    def close(self) -> None:
        """Stop the processes at once."""
        if self._pool is not None:
            for process in list((self._pool._processes or {}).values()):
                process.terminate()
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn" if "torch" in sys.modules else "fork")
            self._pool = ProcessPoolExecutor(
                self._n, context, initializer=_begin, initargs=(self._make, os.getpid())
            )
        return self._pool


def _versions(player: Player) -> dict[str, str]:
    return {name: actor.version for name, actor in player.actors.items()}


def _scorer(player: Player) -> str:
    return "" if player.scorer is None else player.scorer.version


def _begin(make: Callable[[], Player], parent: int) -> None:
    global _player  # noqa: PLW0603 - one player a process, made once
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops us
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _player = make()


def _end_with(parent: int) -> None:
    """End this process soon after its parent was killed: its queue would wait for ever."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _play(jobs: list[Job]) -> list[tuple[str, Outcome]]:
    assert _player is not None
    return list(_player.play(jobs))


def _lost(job: Job) -> Outcome:
    return Outcome("infra_error", None, seed=job.seed, replicate=job.replicate, reason="its process died")
