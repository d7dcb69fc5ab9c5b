"""The odds of a group without signal by its size, from rates or from rollouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from accredit.engine import Rollouts, as_batch
from accredit.errors import ParamError
from accredit.index import Index, Key
from accredit.odds import Span, fit_rates, subgroup_ties, tie_probability
from accredit.planning.finders import find_signal
from accredit.planning.groups import ScoredGroups
from accredit.planning.records import GroupPlan, SizeOdds
from accredit.typing import Floats

__all__ = ["plan"]

_SIZES = (2, 4, 8, 16, 32, 64, 128)
_LARGEST = 1024  # no larger group is suggested
_Odds: TypeAlias = Callable[[int], Span | None]


def plan(
    rollouts: Rollouts | None = None,
    *,
    success_rate: float | Sequence[float] | None = None,
    group_size: int | None = None,
    target: float = 0.1,
    methods: Sequence[str] | None = None,
    key: Key | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> GroupPlan:
    """Return P(no signal) by group size, a size to take, and what is lost at the present one.

    With binary rewards ``E[p^n + (1-p)^n]`` over the success rates p of the tasks: of the rates given, or
    of the Beta law that fits the groups of the rollouts best (beta-binomial, maximum likelihood). With
    graded rewards the chance that n rollouts drawn from a group tie, for n up to the size of the groups.

    Args:
        rollouts: a Batch, a path, or an iterable of records; None: only rates are given.
        success_rate: rate of a task, or of several; it stands in for the fit.
        group_size: rollouts a group to tell of; None: the commonest of the rollouts.
        target: chance of no signal that the suggested size must not exceed, in (0, 1).
        methods: those to look for signal in groups without; None: all that can run.
        key: which states count as the same, as in `assign`.
        progress: called with what is done, what there is in all, and what comes now.

    Raises:
        ParamError: if neither rollouts nor a rate is given, or a number is out of its range.
        DataError: if no rollout is scored.

    Example:
        >>> found = plan(success_rate=0.2, group_size=8)
        >>> round(found.now.tie.value, 3), found.suggested
        (0.168, 11)
    """
    rates = _rates(success_rate)
    _check_numbers(group_size, target)
    if rollouts is None:
        if rates is None:
            raise ParamError("plan needs rollouts or a success rate", hint="Give a file, or success_rate=0.2")
        return _planned("given", _of_rates(rates), rates, None, group_size, target)
    index = Index(as_batch(rollouts), key)
    groups = ScoredGroups.of(index)
    size = group_size or groups.usual
    kind, odds, beta = _odds_of(groups, rates)
    found = _planned(kind, odds, rates, groups, size, target)
    finders, unable = find_signal(groups, methods, key, progress)
    tasks = groups.tasks(beta)
    return replace(found, beta=beta, waste=groups.waste(), finders=finders, unable=unable, tasks=tasks)


def _rates(given: float | Sequence[float] | None) -> Floats | None:
    if given is None:
        return None
    try:
        rates = np.atleast_1d(np.asarray(given, np.float64))
    except (TypeError, ValueError):
        rates = np.zeros(0)
    if not rates.size or rates.ndim > 1 or not ((rates >= 0) & (rates <= 1)).all():
        raise ParamError(f"success_rate must be in [0, 1], got {given!r}")
    return rates


def _check_numbers(group_size: int | None, target: float) -> None:
    whole = isinstance(group_size, int | np.integer) and not isinstance(group_size, bool)
    if group_size is not None and not (whole and 1 <= group_size <= _LARGEST):
        raise ParamError(f"group_size must be a whole number from 1 to {_LARGEST}, got {group_size!r}")
    if isinstance(target, bool) or not 0 < target < 1:
        raise ParamError(f"target must be in (0, 1), got {target!r}")


def _odds_of(groups: ScoredGroups, rates: Floats | None) -> tuple[str, _Odds, tuple[float, float] | None]:
    if rates is not None:
        return "given", _of_rates(rates), None
    if groups.n_levels > 2:
        return "graded", lambda n: subgroup_ties(groups.levels, n), None
    fit = fit_rates(groups.passed_G[groups.size_G > 0], groups.size_G[groups.size_G > 0])
    if fit is None:
        return "unknown", lambda n: None, None
    return fit.kind, fit.tie, fit.beta


def _of_rates(rates: Floats) -> _Odds:
    def odds(size: int) -> Span:
        mean = float(tie_probability(rates, size).mean())
        return Span(mean, mean, mean)

    return odds


def _planned(
    kind: str, odds: _Odds, rates: Floats | None, groups: ScoredGroups | None, size: int | None, target: float
) -> GroupPlan:
    sizes = sorted({*_SIZES, *([size] if size else [])})
    found = [told for n in sizes if (told := _size_odds(n, odds, groups)) is not None]
    rate = None
    if rates is not None:
        rate = float(rates.mean())
    elif groups is not None and groups.n_levels <= 2:
        rate = float(groups.passed_G.sum() / groups.size_G.sum())
    return GroupPlan(kind, rate, None, size, tuple(found), target, _suggested(odds, target))


def _size_odds(size: int, odds: _Odds, groups: ScoredGroups | None) -> SizeOdds | None:
    tie = odds(size)
    if tie is None:
        return None
    drawn = None if groups is None else subgroup_ties(groups.levels, size)
    return SizeOdds(size, tie, drawn, size / (1 - tie.value) if tie.value < 1 else None)


def _suggested(odds: _Odds, target: float) -> int | None:
    """Smallest size whose chance of no signal is at most the target; the chance falls with the size."""
    low, high = 1, 2
    while (tie := odds(high)) is not None and tie.value > target:
        low, high = high, 2 * high
        if low >= _LARGEST:
            return None
    if tie is None:
        return next((n for n in range(low + 1, high) if _at_most(odds(n), target)), None)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _at_most(odds(middle), target) else (middle, high)
    return high


def _at_most(tie: Span | None, target: float) -> bool:
    return tie is not None and tie.value <= target
