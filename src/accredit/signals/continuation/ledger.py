"""What continuations may cost, and what they did: as if nothing was cached, and in truth."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, fields

from accredit.errors import ParamError
from accredit.planners import Outcome, Request
from accredit.worlds import Cost

__all__ = ["Budget", "Ledger"]


@dataclass(frozen=True, slots=True)
class Budget:
    """Hard limits of one job; None = none.

    What is cached costs nothing of it.  Steps are reserved before a continuation begins, so that the
    limit holds; tokens and seconds are looked at before each one, and those that run then are ended.

    Args:
        continuations: bought.
        environment_steps: taken by continuations.
        tokens: generated.
        seconds: wall time.
        per_state: continuations from one place.
        per_rollout: continuations from all places of one rollout.
        judge_calls: questions to a judge or a reviser.
    """

    continuations: int | None = None
    environment_steps: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    per_state: int | None = None
    per_rollout: int | None = None
    judge_calls: int | None = None

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None and value < 0:
                raise ParamError(f"budget {f.name} must be >= 0 or None, got {value!r}")


@dataclass(slots=True)
class Ledger:
    """Spending against a budget.

    Args:
        budget: the limits.
        logical: as if nothing had been cached.
        physical: in truth.
        status: outcomes of each status, cached ones included.
    """

    budget: Budget
    logical: Cost = field(default_factory=Cost)
    physical: Cost = field(default_factory=Cost)
    status: Counter[str] = field(default_factory=Counter)
    began: float = field(default_factory=time.monotonic)
    _reserved: int = 0
    _running: int = 0
    _states: Counter[tuple[str, str]] = field(default_factory=Counter)
    _rollouts: Counter[str] = field(default_factory=Counter)

    def admits(self, request: Request, steps: int) -> bool:
        """Return whether one more continuation may begin, and reserve it.

        Args:
            request: whose continuation it is.
            steps: most steps that it can take.
        """
        budget, state = self.budget, (request.place.group, request.place.key)
        spent = self.physical
        full = (
            _over(budget.continuations, spent.continuations + self._running + 1)
            or _over(budget.environment_steps, spent.environment_steps + self._reserved + steps)
            or _over(budget.per_state, self._states[state] + 1)
            or _over(budget.per_rollout, self._rollouts[request.place.rollout] + 1)
            or (budget.tokens is not None and spent.tokens >= budget.tokens)
            or (budget.seconds is not None and time.monotonic() - self.began >= budget.seconds)
        )
        if full:
            return False
        self._running += 1
        self._reserved += steps
        self._states[state] += 1
        self._rollouts[request.place.rollout] += 1
        return True

    def pay(self, outcome: Outcome, steps: int) -> None:
        """Book a continuation that was played, and give back what was reserved for it."""
        self._running -= 1
        self._reserved -= steps
        self.physical = self.physical + _cost(outcome)

    def admits_question(self, *, known: bool = False) -> bool:
        """Return whether one more question to a judge or a reviser may be asked, and book it.

        Args:
            known: its answer is there already, and costs nothing of the budget.
        """
        if known:
            self.logical = self.logical + Cost(judge_calls=1)
            return True
        budget = self.budget
        if _over(budget.judge_calls, self.physical.judge_calls + 1):
            return False
        if budget.seconds is not None and time.monotonic() - self.began >= budget.seconds:
            return False
        self.physical = self.physical + Cost(judge_calls=1)
        self.logical = self.logical + Cost(judge_calls=1)
        return True

    def deliver(self, outcome: Outcome) -> None:
        """Book an outcome that somebody got, cached or not."""
        self.logical = self.logical + _cost(outcome)
        self.status[outcome.status] += 1


def _cost(outcome: Outcome) -> Cost:
    return Cost(environment_steps=outcome.steps, continuations=1, restores=1, tokens=outcome.tokens)


def _over(limit: int | None, value: int) -> bool:
    return limit is not None and value > limit
