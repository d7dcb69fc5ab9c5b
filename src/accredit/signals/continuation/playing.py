"""Plays continuations: some worlds at a time go on in step, so that an actor is asked in batches."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Protocol

from accredit.errors import ParamError, ProbeError
from accredit.planners import Outcome, Place, Request, Visit
from accredit.signals.continuation.restorers import RestoreFailed, Restorer
from accredit.signals.continuation.seeds import generator, prf
from accredit.worlds import World
from accredit.worlds.acting import Actor, Choice, Scene
from accredit.worlds.protocol import agent_of, was_cut

__all__ = ["Ending", "Job", "Player", "Scorer"]

STEPS = 64  # of a world that has no limit of its own


@dataclass(frozen=True, slots=True)
class Job:
    """One continuation to play.

    Args:
        id: given back with the outcome.
        request: what is asked.
        replicate: 0-based.
        seed: of its chance.
    """

    id: str
    request: Request
    replicate: int
    seed: int


@dataclass(frozen=True, slots=True)
class Ending:
    """Where a continuation ended.

    Args:
        place: from which it went on.
        status: ``finished``, ``truncated`` or ``illegal``.
        path: its steps.
        reward: that the world paid for them.
        key: of the state reached.
        seen: what the world shows there.
    """

    place: Place
    status: str
    path: tuple[Visit, ...]
    reward: float
    key: str
    seen: str


class Scorer(Protocol):
    """Says what a continuation earned, where that is not what the world pays (a judge, other units).

    Attributes:
        version: of the scorer; outcomes of another version are bought anew.
    """

    version: str

    def score(self, ending: Ending) -> float | None:
        """Return the reward from the place on; None = nothing to say, which counts 0."""
        ...


@dataclass(slots=True)
class _Run:
    job: Job
    world: World
    began: float
    limit: int
    tries: int = 0
    tokens: int = 0
    reward: float = 0.0
    over: bool = False
    path: list[Visit] = field(default_factory=list)

    def depth(self) -> int:
        """Return the number of the next step: of the episode where chance is shared along it."""
        begun = self.job.request.place.step if self.job.request.chance else 0
        return begun + len(self.path)

    def take(self, visit: Visit) -> None:
        self.path.append(visit)
        self.reward += visit.reward
        self.tokens += visit.tokens

    def scene(self) -> Scene:
        place, world = self.job.request.place, self.world
        actions = world.actions()
        done = place.actions + tuple(v.action for v in self.path)
        return Scene(
            place.group,
            world.key(),
            world.seen(),
            None if actions is None else tuple(actions),
            done,
            agent_of(world),
        )


class Player:
    """Plays jobs one after another, up to ``slots`` of them in step.

    Args:
        restorer: of the worlds.
        actors: by name of policy.
        scorer: of endings; None = the rewards of the world.
        slots: worlds at a time.
        retries: further tries, with the same seed, after a failure of the world or the actor.
        seconds: wall time after which a continuation is cut; None = no limit.
    """

    def __init__(
        self,
        restorer: Restorer,
        actors: Mapping[str, Actor],
        *,
        scorer: Scorer | None = None,
        slots: int = 16,
        retries: int = 3,
        seconds: float | None = None,
    ) -> None:
        if slots < 1 or retries < 0:
            raise ParamError(f"slots must be >= 1 and retries >= 0, got {slots} and {retries}")
        if scorer is not None and not isinstance(getattr(scorer, "version", None), str):
            raise ParamError(
                f"the scorer ({type(scorer).__name__}) has no version",
                hint="Give it a text `version`: outcomes of another version are bought anew",
            )
        self.restorer, self.actors, self.scorer = restorer, actors, scorer
        self._slots, self._retries, self._seconds = slots, retries, seconds

    def play(self, jobs: Iterable[Job]) -> Iterator[tuple[str, Outcome]]:
        """Yield the id and the outcome of each job, as they end.

        Raises:
            ParamError: for a policy that there is no actor for.
        """
        waiting, running = iter(jobs), list[_Run]()
        while True:
            while len(running) < self._slots and (job := next(waiting, None)) is not None:
                begun = self._begin(job)
                if isinstance(begun, Outcome):
                    yield job.id, begun
                else:
                    running.append(begun)
            if not running:
                return
            still = []
            for run, outcome in self._advance(running):
                if outcome is None:
                    still.append(run)
                else:
                    outcome = self._scored(run, outcome)
                    self.restorer.release(run.world, run.job.request.place)
                    yield run.job.id, outcome
            running = still

    # -- one continuation -------------------------------------------------------------------------

    def _begin(self, job: Job, tries: int = 0) -> _Run | Outcome:
        began = time.perf_counter()
        if job.request.policy not in self.actors:
            known = ", ".join(self.actors)
            raise ParamError(f"no actor for the policy {job.request.policy!r}", hint=f"Known: {known}")
        status, reason = "failed_restore", ""
        for attempt in range(tries, self._retries + 1):
            try:
                world = self.restorer.stand(job.request.place)
                world.reseed(prf(job.seed, "world"))
                return _Run(job, world, began, _limit(job, world), attempt)
            except RestoreFailed as error:
                reason = str(error)
            except ProbeError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a world raises is its failure
                status, reason = "infra_error", f"{type(error).__name__}: {error}"
        return _failed(job, status, reason, began)

    def _advance(self, running: list[_Run]) -> list[tuple[_Run, Outcome | None]]:
        """Take one step in each world."""
        asked = [run for run in running if self._ended(run) is None]
        chosen = dict(zip(map(id, asked), self._choices(asked), strict=True))
        found: list[tuple[_Run, Outcome | None]] = []
        for run in running:
            ended = self._ended(run)
            if ended is None:
                ended = self._take(run, chosen[id(run)])
            found.append((run, ended))
        return found

    def _choices(self, runs: list[_Run]) -> list[Choice | Exception]:
        """Return the next action of each run: forced, or chosen by its policy."""
        found: dict[int, Choice | Exception] = {}
        free: dict[str, list[_Run]] = defaultdict(list)
        for run in runs:
            forced = run.job.request.forced
            if len(run.path) < len(forced):
                found[id(run)] = Choice(forced[len(run.path)])
            else:
                free[run.job.request.policy].append(run)
        for policy, group in free.items():
            rngs = [generator(run.job.seed, run.depth()) for run in group]
            answers: list[Choice | Exception]
            try:
                answers = list(self.actors[policy].act([run.scene() for run in group], rngs))
            except ProbeError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever an actor raises is its failure
                answers = [error] * len(group)
            found |= {id(run): answer for run, answer in zip(group, answers, strict=True)}
        return [found[id(run)] for run in runs]

    def _take(self, run: _Run, choice: Choice | Exception) -> Outcome | None:
        if isinstance(choice, Exception):
            return self._again(run, choice)
        options = run.world.actions()
        visit = Visit(
            run.world.key(),
            choice.action,
            0.0,
            choice.logprob,
            choice.tokens,
            tuple(options or ()),
            agent_of(run.world),
        )
        if options is not None and choice.action not in options:
            run.take(visit)
            return _outcome(run, "illegal", f"{choice.action!r} is not possible")
        try:
            _, reward, run.over = run.world.step(choice.action)
        except Exception as error:  # noqa: BLE001 - whatever a world raises is its failure
            return self._again(run, error)
        run.take(replace(visit, reward=reward))
        return self._ended(run)

    def _again(self, run: _Run, error: Exception) -> Outcome | None:
        """Begin the run anew with the same seed, or give up."""
        reason = f"{type(error).__name__}: {error}"
        if run.tries >= self._retries:
            return _failed(run.job, "infra_error", reason, run.began)
        fresh = self._begin(run.job, run.tries + 1)
        if isinstance(fresh, Outcome):
            return fresh
        run.world, run.tries, run.path = fresh.world, fresh.tries, []
        run.reward, run.tokens, run.over = 0.0, 0, False
        return None

    def _scored(self, run: _Run, outcome: Outcome) -> Outcome:
        if self.scorer is None or outcome.reward is None:
            return outcome
        place, world = run.job.request.place, run.world
        ending = Ending(
            place, outcome.status, tuple(run.path), outcome.reward, outcome.final_key, world.seen()
        )
        reason = ""
        for _ in range(self._retries + 1):
            try:
                reward = float(self.scorer.score(ending) or 0.0)
            except Exception as error:  # noqa: BLE001 - whatever a scorer raises is its failure
                reason = f"the scorer failed: {type(error).__name__}: {error}"
            else:
                if isfinite(reward):
                    return replace(outcome, reward=reward)
                reason = f"the scorer returned {reward}"
        return replace(outcome, status="infra_error", reward=None, reason=reason)  # its steps were taken

    def _ended(self, run: _Run) -> Outcome | None:
        options = run.world.actions()
        if run.over or (options is not None and not options):
            return _outcome(run, "truncated" if was_cut(run.world) else "finished")
        late = self._seconds is not None and time.perf_counter() - run.began > self._seconds
        most = run.job.request.max_tokens
        spent = most is not None and run.tokens >= most
        if len(run.path) >= run.limit or late or spent:
            reason = "out of time" if late else "out of tokens" if spent else ""
            return _outcome(run, "truncated", reason)
        return None


def _limit(job: Job, world: World) -> int:
    if job.request.max_steps is not None:
        return job.request.max_steps
    left = world.steps_left()
    return STEPS if left is None else left


def _outcome(run: _Run, status: str, reason: str = "") -> Outcome:
    return Outcome(
        status,  # type: ignore[arg-type]
        run.reward,
        len(run.path),
        run.tokens,
        run.world.key(),
        run.job.seed,
        run.job.replicate,
        time.perf_counter() - run.began,
        reason=reason,
        path=tuple(run.path) if run.job.request.record else (),
    )


def _failed(job: Job, status: str, reason: str, began: float) -> Outcome:
    seconds = time.perf_counter() - began
    return Outcome(status, None, seed=job.seed, replicate=job.replicate, seconds=seconds, reason=reason)  # type: ignore[arg-type]
