"""Odds that the rollouts of a group all get the same reward: pure functions of counts and rates.

A group whose rewards tie tells nothing to a method that compares them. With binary rewards and success
rate p that happens with probability p^n + (1-p)^n; over tasks whose rates differ as a Beta law it is the
beta-binomial's chance of 0 or n successes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import beta as beta_law

from accredit.errors import ParamError
from accredit.typing import Floats, Ints

__all__ = ["RateFit", "Span", "fit_rates", "posterior_rate", "share_span", "subgroup_ties", "tie_probability"]

LEVEL = 0.95
_DROP = 1.9207294103470562  # half the 95 % point of chi-square with one degree of freedom
_CELLS = 41  # points a side of the grid that closes in on the maximum
_ROUNDS = 14


class Span(NamedTuple):
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float


class RateFit(NamedTuple):
    """The law of success rates over groups that the counts fit best.

    Args:
        mean: mean m of the rates.
        spread: how much they differ, rho in [0, 1]: 0 all groups share one rate, 1 each group's rate
            is 0 or 1; between them Beta(a, b) with a + b = 1/rho - 1.
        kind: ``fitted``; or, where the counts fit no Beta law inside, ``one_rate`` (rho = 0), ``split``
            (rho = 1), ``one_outcome`` (every rollout succeeded, or every one failed).
        groups: groups that were counted.
        region_m: means of the laws whose likelihood is within the 95 % region ``[k]``.
        region_rho: their spreads ``[k]``.
    """

    mean: float
    spread: float
    kind: str
    groups: int
    region_m: Floats
    region_rho: Floats

    @property
    def beta(self) -> tuple[float, float] | None:
        """Parameters a and b of the Beta law; None where there is none inside."""
        if self.kind != "fitted":
            return None
        total = 1 / self.spread - 1
        return self.mean * total, (1 - self.mean) * total

    def tie(self, size: int) -> Span:
        """Return the chance that a group of this size has no signal, with its profile interval.

        Args:
            size: rollouts a group.
        """
        best = float(tie_probability(self.mean, size, self.spread))
        around = tie_probability(self.region_m, size, self.region_rho)
        return Span(best, min(best, float(around.min())), max(best, float(around.max())))


def tie_probability(mean: float | Floats, size: int, spread: float | Floats = 0.0) -> Floats:
    """Return E[p^n + (1-p)^n] over success rates p of mean m and spread rho.

    ``prod_{j<n} (m (1-rho) + j rho) / (1-rho + j rho)``, and the same with 1 - m. At rho = 0 it is
    m^n + (1-m)^n; at rho = 1, and for n = 1, it is 1.

    Args:
        mean: mean success rate, in [0, 1]; an array gives an array.
        size: rollouts a group n, at least 1.
        spread: rho in [0, 1] (see `RateFit`).

    Raises:
        ParamError: if a number is out of its range.

    Example:
        >>> float(tie_probability(0.5, 2)), round(float(tie_probability(0.2, 8)), 4)
        (0.5, 0.1678)
        >>> round(float(tie_probability(0.5, 2, 1 / 3)), 4)  # rates spread evenly over [0, 1]
        0.6667
    """
    m, rho = np.asarray(mean, np.float64), np.asarray(spread, np.float64)
    if size < 1:
        raise ParamError(f"group size must be a whole number >= 1, got {size}")
    for name, value in (("success rate", m), ("spread", rho)):
        if not ((value >= 0) & (value <= 1)).all():
            raise ParamError(f"{name} must be in [0, 1], got {value}")
    passed, failed = m + 0 * rho, 1 - m + 0 * rho
    for j in range(1, size):
        below = 1 - rho + j * rho
        passed = passed * (m * (1 - rho) + j * rho) / below
        failed = failed * ((1 - m) * (1 - rho) + j * rho) / below
    found: Floats = np.minimum(passed + failed, 1.0)
    return found


def fit_rates(passed: Ints, size: Ints) -> RateFit | None:
    """Return the beta-binomial law of greatest likelihood; None where no group has two rollouts.

    The likelihood is taken over the whole square of m and rho, its edges included, so that counts that
    fit no Beta law (they spread less than by chance, or every group ties) still have an answer and
    an interval; ``kind`` says so.

    Args:
        passed: successes of each group ``[G]``.
        size: rollouts of each group ``[G]``.

    Source: maximum likelihood of the beta-binomial (Skellam 1948) by m and rho; profile-likelihood
        intervals.

    Example:
        >>> fit = fit_rates(np.array([1, 7, 4, 0, 8, 2]), np.full(6, 8))
        >>> fit.kind, round(fit.mean, 2), fit.tie(8).low < fit.tie(8).value < fit.tie(8).high
        ('fitted', 0.47, True)
    """
    if not (size > 1).any():
        return None
    tables = tuple(_more_than(counts) for counts in (passed, size - passed, size))
    found = _maximum(tables)
    m, rho = np.sin(found) ** 2
    if not passed.any() or not (size - passed).any():
        kind = "one_outcome"
    else:
        kind = "one_rate" if rho < 1e-9 else "split" if rho > 1 - 1e-9 else "fitted"
    region = _region(tables, found)
    return RateFit(float(m), float(rho), kind, int(size.size), *np.sin(region) ** 2)


def posterior_rate(passed: int, size: int, law: tuple[float, float] | None) -> Span:
    """Return a group's success rate given its counts: posterior mean and 95 % interval.

    Args:
        passed: successes of the group.
        size: its rollouts.
        law: Beta law of the rates over groups; None: Jeffreys' Beta(1/2, 1/2).

    Example:
        >>> posterior_rate(0, 8, None).value
        0.05555555555555555
    """
    a, b = law or (0.5, 0.5)
    a, b = a + passed, b + size - passed
    low, high = beta_law.ppf([(1 - LEVEL) / 2, (1 + LEVEL) / 2], a, b)
    return Span(a / (a + b), float(low), float(high))


def share_span(share: float, n: int) -> Span:
    """Return a mean of n values in [0, 1] with its Clopper-Pearson interval.

    For values of 0 and 1 it is the exact interval of a share. Values in between vary less than those, so
    there it is too wide rather than too narrow.

    Args:
        share: the mean.
        n: how many values, at least 1.

    Example:
        >>> [round(x, 3) for x in share_span(0.0, 10)]
        [0.0, 0.0, 0.308]
    """
    x, tail = share * n, (1 - LEVEL) / 2
    low = float(beta_law.ppf(tail, x, n - x + 1)) if x > 0 else 0.0
    high = float(beta_law.ppf(1 - tail, x + 1, n - x)) if x < n else 1.0
    return Span(share, min(low, share), max(high, share))


def subgroup_ties(levels: Sequence[Ints], size: int) -> Span | None:
    """Return the mean chance that n rollouts drawn from a group tie, whatever their rewards are.

    A group with c_v rollouts at the v-th reward gives ``sum_v C(c_v, n) / C(sum_v c_v, n)``, which is
    unbiased for the chance that n rollouts of its task tie. No law of rates is assumed.

    Args:
        levels: counts c_v of each group's distinct rewards.
        size: rollouts n of a drawn group.

    Returns:
        The mean over groups of at least n rollouts; None where there is none.

    Example:
        >>> subgroup_ties([np.array([2, 2]), np.array([4])], 2).value
        0.6666666666666666
    """
    chances = [_drawn_alike(counts, size) for counts in levels if counts.sum() >= size]
    return share_span(float(np.mean(chances)), len(chances)) if chances else None


def _drawn_alike(counts: Ints, size: int) -> float:
    chance = np.ones(counts.size)
    for j in range(size):
        chance *= np.maximum(counts - j, 0) / (counts.sum() - j)
    return float(chance.sum())


def _more_than(counts: Ints) -> Ints:
    """Number of groups whose count is above j, for j = 0, 1 …"""
    found: Ints = np.cumsum(np.bincount(counts)[::-1])[::-1][1:]
    return found


Tables = tuple[Ints, ...]


def _log_likelihood(tables: Tables, x: Floats, y: Floats) -> Floats:
    """Of m = sin^2 x and rho = sin^2 y: rising factorials, term by term, so that edges are exact."""
    m, f, rho = np.sin(x) ** 2, np.cos(x) ** 2, np.sin(y) ** 2
    rest = np.cos(y) ** 2
    firsts = [int(t[0]) if t.size else 0 for t in tables]
    mixed = firsts[0] + firsts[1] - firsts[2]  # groups with both outcomes
    found = _xlogy(firsts[0], m) + _xlogy(firsts[1], f) + _xlogy(mixed, rest)
    for sign, table, share in ((1, tables[0], m), (1, tables[1], f), (-1, tables[2], 1.0)):
        for j in range(1, table.size):
            found = found + sign * _xlogy(int(table[j]), share * rest + j * rho)
    return found


def _xlogy(count: int, x: Floats) -> Floats:
    """Count times log x; 0 where the count is 0."""
    if not count:
        return np.zeros_like(x)
    with np.errstate(divide="ignore"):
        found: Floats = count * np.log(x)
    return found


def _grid(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    x, y = (np.linspace(a, b, _CELLS) for a, b in zip(low, high, strict=True))
    return np.repeat(x, _CELLS), np.tile(y, _CELLS)


_WHOLE = np.zeros(2), np.full(2, np.pi / 2)


def _maximum(tables: Tables) -> Floats:
    """Angles (x, y) of greatest likelihood, by grids that close in on it."""
    low, high = _WHOLE
    best = np.zeros(2)
    for _ in range(_ROUNDS):
        x, y = _grid(low, high)
        at = int(np.argmax(_log_likelihood(tables, x, y)))
        best = np.array([x[at], y[at]])
        reach = 3 * (high - low) / (_CELLS - 1)
        low, high = np.maximum(best - reach, _WHOLE[0]), np.minimum(best + reach, _WHOLE[1])
    return best


def _region(tables: Tables, best: Floats) -> Floats:
    """Angles ``[2, k]`` whose log-likelihood is at most 1.92 below the greatest, the best included."""
    top = float(_log_likelihood(tables, best[:1], best[1:])[0])
    low, high = _WHOLE
    inside = best[:, None]
    for _ in range(_ROUNDS):
        x, y = _grid(low, high)
        kept = _log_likelihood(tables, x, y) >= top - _DROP
        inside = np.concatenate([best[:, None], np.stack([x[kept], y[kept]])], axis=1)
        cell = (high - low) / (_CELLS - 1)
        tighter = np.maximum(inside.min(axis=1) - cell, low), np.minimum(inside.max(axis=1) + cell, high)
        if np.allclose(tighter, (low, high), rtol=0, atol=1e-12):
            break
        low, high = tighter
    return inside
