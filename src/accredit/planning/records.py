"""What a plan tells, as records."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from accredit.odds import Span

__all__ = ["Finder", "GroupPlan", "SizeOdds", "TaskRate", "Waste"]


@dataclass(frozen=True, slots=True)
class SizeOdds:
    """What a group size promises.

    Args:
        size: rollouts a group.
        tie: chance that a group has no signal, with its 95 % interval (of no width where the rate is given).
        drawn: the same from the file's groups drawn down to this size, without a law of rates; None where
            no group is as large.
        cost: rollouts that a group with signal costs, ``size / (1 - tie)``; None where none has signal.
    """

    size: int
    tie: Span
    drawn: Span | None
    cost: float | None


@dataclass(frozen=True, slots=True)
class Waste:
    """The rollouts whose group has no signal.

    Args:
        rollouts: their number.
        scored: scored rollouts in all.
        groups: groups whose rewards tie, with the exact 95 % interval of their share.
        of_groups: groups of two or more scored rollouts.
        share: share of such groups.
        all_pass: of them, groups at the best reward.
        all_fail: groups at the worst reward.
        tie: groups at another one.
        single: groups of one scored rollout, which are not counted here.
    """

    rollouts: int
    scored: int
    groups: int
    of_groups: int
    share: Span
    all_pass: int
    all_fail: int
    tie: int
    single: int


@dataclass(frozen=True, slots=True)
class Finder:
    """What a method finds in the groups without signal.

    Args:
        method: id.
        steps: steps there with credit other than 0.
        of_steps: steps there.
        groups: groups there with such a step.
        of_groups: groups there that have steps.
        across: the method compares across groups: its credit there is that of the group's mean.
    """

    method: str
    steps: int
    of_steps: int
    groups: int
    of_groups: int
    across: bool

    @property
    def share(self) -> float:
        """Share of the steps there that get credit."""
        return self.steps / self.of_steps if self.of_steps else 0.0


@dataclass(frozen=True, slots=True)
class TaskRate:
    """The success rate of one task, given its rollouts and the law of rates over tasks.

    Args:
        group: id.
        passed: rollouts that succeeded.
        rollouts: scored rollouts.
        rate: posterior mean and 95 % interval.
    """

    group: Any
    passed: int
    rollouts: int
    rate: Span


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What group sizes promise, and what is lost at the present one.

    Args:
        kind: where the odds come from: ``given`` (a success rate), ``fitted`` (Beta law of the rates over
            groups), ``one_rate``, ``split``, ``one_outcome`` (no Beta law fits, see `accredit.odds.RateFit`),
            ``graded`` (more than two different rewards: groups drawn down, no law), ``unknown`` (no group has
            two scored rollouts).
        success_rate: mean rate; None for graded rewards.
        beta: parameters of the Beta law, if one was fitted.
        size: rollouts a group now.
        sizes: odds by size; empty where unknown.
        target: chance of no signal that a suggested size must not exceed.
        suggested: smallest such size; None if there is none up to 1,024 (graded: up to the file's groups).
        waste: of the file; None without one.
        finders: methods by what they find in groups without signal, the most first.
        unable: methods that could not run, with the reason.
        tasks: success rate of each group; empty for graded rewards.
    """

    kind: str
    success_rate: float | None
    beta: tuple[float, float] | None
    size: int | None
    sizes: tuple[SizeOdds, ...]
    target: float
    suggested: int | None
    waste: Waste | None = None
    finders: tuple[Finder, ...] = ()
    unable: tuple[tuple[str, str], ...] = ()
    tasks: tuple[TaskRate, ...] = ()

    @property
    def now(self) -> SizeOdds | None:
        """The odds at the present size; None where they are unknown."""
        return next((odds for odds in self.sizes if odds.size == self.size), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values."""
        found = asdict(self)
        for finder, told in zip(self.finders, found["finders"], strict=True):
            told["share"] = finder.share
        for odds in [*found["sizes"], *found["tasks"], *([found["waste"]] if self.waste else [])]:
            odds.update({k: v._asdict() for k, v in odds.items() if isinstance(v, Span)})
        return found
