"""What a planner asks and what it is told: places, requests for continuations, outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np

from accredit.errors import ParamError
from accredit.index.samples import spread_of_one
from accredit.typing import Floats

__all__ = ["Answer", "Outcome", "Place", "Planner", "Request", "Status", "Visit", "version_of"]

Status: TypeAlias = Literal["finished", "truncated", "illegal", "failed_restore", "infra_error"]
RESULTS = frozenset({"finished", "truncated", "illegal"})


@dataclass(frozen=True, slots=True)
class Place:
    """A state from which to go on, and how it was reached.

    Args:
        group: task of the rollout; names the world.
        key: what two places must share to be the same; the state where policy and world remember
            nothing else, else the whole path.
        actions: taken from the start of the episode to here.
        start: seed of the episode's start.
        state: key that the world shows here, checked when it is restored; "" = unknown.
        rollout: id of a rollout that was here.
        step: 0-based step that this is the state before.
    """

    group: str
    key: str
    actions: tuple[str, ...] = ()
    start: int = 0
    state: str = ""
    rollout: str = ""
    step: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """k continuations from one place.

    Args:
        place: where they begin.
        k: how many, fixed before any outcome is seen.
        policy: name of the policy that goes on.
        forced: actions that are taken first.
        arm: the planner's name of this alternative; part of the seeds.
        common: leave the arm out of the seeds, so that arms share their chance.
        chance: a name that stands for place and arm in the seeds: requests of one group that give the
            same name share the chance of every step of the episode; "" = none.
        max_steps: of each, forced ones included; None = what the world has left.
        shared: places of one key in one group share their continuations; False: each rollout has its own.
        record: give the path of each continuation back.
        priority: lower is bought first where a budget is short.
        purpose: for reports.
    """

    place: Place
    k: int = 1
    policy: str = "actor"
    forced: tuple[str, ...] = ()
    arm: str = ""
    common: bool = False
    chance: str = ""
    max_steps: int | None = None
    shared: bool = True
    record: bool = False
    priority: int = 0
    purpose: str = ""

    def __post_init__(self) -> None:
        if self.k < 0 or (self.max_steps is not None and self.max_steps < 0):
            raise ParamError(f"k and max_steps must be >= 0, got {self.k} and {self.max_steps}")


@dataclass(frozen=True, slots=True)
class Visit:
    """One step of a continuation.

    Args:
        key: of the state before it.
        action: taken.
        reward: paid.
        logprob: of the action under the policy; None where it was forced.
        tokens: that the policy generated for it.
        options: what could be done there; empty where that is free text.
        agent: who decided; "" where only one does.
    """

    key: str
    action: str
    reward: float
    logprob: float | None = None
    tokens: int = 0
    options: tuple[str, ...] = ()
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one continuation went.

    Args:
        status: ``finished``, ``truncated`` and ``illegal`` are results; ``failed_restore`` and
            ``infra_error`` are none.
        reward: rewards from the place on, in reward units; None where it is no result.
        steps: taken, forced ones included, and the illegal one that ended it.
        tokens: generated.
        final_key: key of the state reached.
        seed: of its chance.
        replicate: 0-based number among its like.
        seconds: wall time that it took.
        cached: whether it was there before.
        reason: why there is no result.
        path: its steps, where the request asked for them.
    """

    status: Status
    reward: float | None
    steps: int = 0
    tokens: int = 0
    final_key: str = ""
    seed: int = 0
    replicate: int = 0
    seconds: float = 0.0
    cached: bool = False
    reason: str = ""
    path: tuple[Visit, ...] = ()

    @property
    def is_result(self) -> bool:
        """Whether it counts in a mean."""
        return self.status in RESULTS


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for a request.

    Args:
        request: the request.
        outcomes: in order of their replicates; fewer than asked where a budget was spent.
        partial: whether a budget cut it short.
    """

    request: Request
    outcomes: tuple[Outcome, ...]
    partial: bool = False

    @property
    def rewards(self) -> Floats:
        """Rewards of the results ``[K]``, K those that came back."""
        return np.array([o.reward for o in self.outcomes if o.is_result], np.float64)

    @property
    def k(self) -> int:
        """Number of results K."""
        return sum(o.is_result for o in self.outcomes)

    @property
    def mean(self) -> float | None:
        """Mean reward of the results; None where there is none."""
        return float(self.rewards.mean()) if self.k else None

    @property
    def variance(self) -> float:
        """Variance of one outcome from here; zero spread is not zero variance (see `spread_of_one`)."""
        return spread_of_one(self.rewards)

    @property
    def se(self) -> float | None:
        """Standard error of the mean; None where there is none."""
        return float(np.sqrt(self.variance / self.k)) if self.k else None

    def counts(self) -> dict[str, int]:
        """Return how many outcomes there are of each status."""
        found: dict[str, int] = {}
        for outcome in self.outcomes:
            found[outcome.status] = found.get(outcome.status, 0) + 1
        return found


class Planner(Protocol):
    """A rule that asks until it knows enough; it never plays anything itself."""

    def ask(self) -> Sequence[Request]:
        """Return what to buy next; nothing = done."""
        ...

    def tell(self, answers: Sequence[Answer]) -> None:
        """Take the answers to what was asked last, in its order."""
        ...


def version_of(rule: object) -> str:
    """Return what tells one judge, reviser or other callable from another: its ``version``, else its name.

    Args:
        rule: any callable.

    Example:
        >>> version_of(len)
        'len'
    """
    found = getattr(rule, "version", None) or getattr(rule, "__qualname__", None) or type(rule).__name__
    return str(found)
