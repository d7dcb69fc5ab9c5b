"""The continuation engine: executes what planners ask, once, within a budget, whatever happens."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from accredit.errors import Interrupted
from accredit.planners import Answer, Outcome, Planner, Request
from accredit.signals.continuation.journal import Journal
from accredit.signals.continuation.ledger import Budget, Ledger
from accredit.signals.continuation.playing import STEPS, Job
from accredit.signals.continuation.seeds import fingerprint, seed_of

__all__ = ["Crew", "Engine", "Progress"]

P = TypeVar("P", bound=Planner)


class Crew(Protocol):
    """Whoever plays jobs: one process, or several (`Alone`, `Workers`).

    Attributes:
        versions: of the actors, by name of policy.
        scorer: version of the scorer; "" = the rewards of the world.
    """

    versions: Mapping[str, str]
    scorer: str

    def play(self, jobs: Iterator[Job]) -> Iterator[tuple[str, Outcome]]:
        """Yield the outcome of each job as it ends, taking the next when there is room."""
        ...

    def close(self) -> None:
        """Stop at once."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is.

    Args:
        done: continuations there, cached ones included.
        total: asked for so far.
        seconds: since the engine began.
        played: of them, played by this process.
        spent: ledger of what was really spent.
    """

    done: int
    total: int
    seconds: float
    played: int
    spent: Mapping[str, int]

    @property
    def rate(self) -> float:
        """Continuations played a second."""
        return self.played / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds left at this rate; None while nothing is known."""
        return (self.total - self.done) / self.rate if self.rate > 0 else None


class Engine:
    """Buys continuations.

    An outcome depends on the request, the replicate, the versions of policy, world and scorer and on
    ``seed``; not on the order of requests, the number of workers, or what was cached.

    Args:
        crew: who plays.
        journal: path of a file, or an open Journal; None = memory alone.  What is in it is not
            played again.
        budget: hard limits.
        seed: of all chance.
        world: name and version of the world, part of what is remembered.
        progress: called now and then.

    Example:
        >>> from accredit.planners import Place, Request
        >>> from accredit.worlds import TabularWorld, make, make_policy
        >>> from accredit.worlds.acting import TableActor
        >>> from accredit.signals.continuation import Alone, Player, Replay
        >>> task = make("lock", seed=1)
        >>> actor = TableActor(task, make_policy(task))
        >>> player = Player(Replay(lambda group: TabularWorld(task)), {"actor": actor})
        >>> answer, = Engine(Alone(player)).run([Request(Place("g", "start"), k=8)])
        >>> answer.k
        8
    """

    def __init__(
        self,
        crew: Crew,
        *,
        journal: Journal | str | None = None,
        budget: Budget | None = None,
        seed: int = 0,
        world: str = "",
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.crew = crew
        self.journal = journal if isinstance(journal, Journal) else Journal(journal)
        self.ledger = Ledger(budget or Budget())
        self.seed, self.world = seed, world
        self._progress = progress
        self._began = time.monotonic()
        self._total = self._done = self._played = 0

    def run(self, requests: Iterable[Request]) -> list[Answer]:
        """Return the answers to requests, in their order.

        Raises:
            Interrupted: at Ctrl-C; what was played stays in the journal.
            ProbeError: if a world or a policy refuses to be continued at all.
        """
        asked = list(requests)
        wanted = [[self._wanted(request, r) for r in range(request.k)] for request in asked]
        self._total += sum(map(len, wanted))
        missing: dict[str, _Wanted] = {}
        there: dict[str, Outcome] = {}
        for row in wanted:
            for want in row:
                found = self.journal.get(want.id, want.mark)
                if found is None or (
                    want.job.request.record and found.is_result and not found.path and found.steps
                ):
                    old = missing.get(want.id)
                    missing[want.id] = want if old is None or want.job.request.record else old
                else:
                    there[want.id] = replace(found, cached=True)
        missing = {id: want for id, want in missing.items() if id not in there}
        self._done += sum(want.id in there for row in wanted for want in row)
        there |= self._play(missing)
        return [self._answer(request, row, there) for request, row in zip(asked, wanted, strict=True)]

    def drive(self, planner: P) -> P:
        """Answer a planner until it asks nothing more; return it."""
        while asked := list(planner.ask()):
            planner.tell(self.run(asked))
        return planner

    def close(self) -> None:
        """Stop the workers and close the journal."""
        self.crew.close()
        self.journal.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- jobs ---------------------------------------------------------------------------------------

    def _wanted(self, request: Request, replicate: int) -> _Wanted:
        seed = seed_of(request, replicate, self.seed)
        version = self.crew.versions.get(request.policy, "")
        place = request.place
        world = f"{self.world} scored by {self.crew.scorer}" if self.crew.scorer else self.world
        what: list[Any] = [
            place.group,
            place.key,
            list(request.forced),
            request.policy,
            version,
            world,
            request.max_steps,
            seed,
            *(() if request.max_tokens is None else (request.max_tokens,)),
        ]
        text = json.dumps(what, separators=(",", ":"), ensure_ascii=False)
        id = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
        return _Wanted(id, fingerprint(text), Job(id, request, replicate, seed))

    def _play(self, missing: Mapping[str, _Wanted]) -> dict[str, Outcome]:
        found: dict[str, Outcome] = {}
        queue = sorted(missing.values(), key=lambda want: want.job.request.priority)
        reserved: dict[str, int] = {}

        def admitted() -> Iterator[Job]:
            for want in queue:
                steps = want.job.request.max_steps
                reserved[want.id] = STEPS if steps is None else steps
                if self.ledger.admits(want.job.request, reserved[want.id]):
                    yield want.job

        try:
            for id, outcome in self.crew.play(admitted()):
                self.ledger.pay(outcome, reserved[id])
                if outcome.is_result:
                    self.journal.add(id, missing[id].mark, outcome)
                found[id] = outcome
                self._tick()
        except KeyboardInterrupt:
            self.close()
            raise Interrupted(
                f"interrupted after {self._played} continuations",
                hint="Run the same command again: what the journal holds is not played again"
                if self.journal.path
                else "Name a journal next time, to go on from there",
            ) from None
        return found

    def _answer(self, request: Request, row: Sequence[_Wanted], there: Mapping[str, Outcome]) -> Answer:
        outcomes = tuple(
            replace(there[want.id], replicate=want.job.replicate) for want in row if want.id in there
        )
        for outcome in outcomes:
            self.ledger.deliver(outcome)
        return Answer(request, outcomes, partial=len(outcomes) < request.k)

    def _tick(self) -> None:
        self._done += 1
        self._played += 1
        if self._progress is not None:
            seconds = time.monotonic() - self._began
            spent = self.ledger.physical.to_dict()
            self._progress(Progress(self._done, self._total, seconds, self._played, spent))


@dataclass(frozen=True, slots=True)
class _Wanted:
    id: str
    mark: str
    job: Job
