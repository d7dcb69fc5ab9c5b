"""Outcomes of continuations: their mean, the variance of one, and what chance alone would earn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from accredit.errors import DataError
from accredit.typing import Floats

__all__ = ["Floor", "Sampled", "noise_floor", "outcomes_of", "spread_of_one"]


def outcomes_of(listed: Any, unfinished: float = 0.0, where: str = "") -> tuple[float, ...]:
    """Return the outcomes that a record lists: numbers, or objects with `reward` and `truncated`.

    Args:
        listed: the list; None = none.
        unfinished: outcome of a truncated continuation that has no reward of its own.
        where: place in the records, for the message.

    Raises:
        DataError: for anything else.

    Example:
        >>> outcomes_of([1, {"reward": 0.5}, {"reward": None, "truncated": True}], -1.0)
        (1.0, 0.5, -1.0)
    """
    if listed is None:
        return ()
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise _odd(listed, where)
    return tuple(_outcome(one, unfinished, where) for one in listed)


def _outcome(one: Any, unfinished: float, where: str) -> float:
    told = one
    if isinstance(one, Mapping):
        told = one.get("reward")
        if told is None and one.get("truncated"):
            return unfinished
    number = isinstance(told, int | float | np.integer | np.floating) and not isinstance(told, bool)
    if not number or not math.isfinite(told):
        raise _odd(one, where)
    return float(told)


def _odd(got: Any, where: str) -> DataError:
    return DataError(
        f"continuations hold {repr(got)[:60]}",
        code="ACC110",
        where=where,
        hint='Give a list of {"reward": number or null, "truncated": true or false}; '
        "only a truncated one may lack its reward",
    )


def spread_of_one(outcomes: Sequence[float] | Floats) -> float:
    """Return the variance of one outcome from where these came; zero spread is not zero variance.

    Outcomes of 0 and 1: p (1 - p) with p = (successes + 1) / (K + 2); others: the sample variance, for
    K = 1 that of nothing known, 1/4.

    Args:
        outcomes: ``[K]``.

    Example:
        >>> spread_of_one([1.0, 1.0]), spread_of_one([0.0, 3.0])
        (0.1875, 4.5)
    """
    found = np.asarray(outcomes, np.float64)
    if np.isin(found, (0.0, 1.0)).all():
        p = (found.sum() + 1) / (found.size + 2)
        return float(p * (1 - p))
    return float(found.var(ddof=1)) if found.size > 1 else 0.25


@dataclass(frozen=True, slots=True)
class Sampled:
    """A value estimated from K outcomes, K at least 1.

    Args:
        mean: of the outcomes, reward units.
        k: how many.
        error: squared standard error of the mean.
    """

    mean: float
    k: int
    error: float

    @classmethod
    def of(cls, outcomes: Sequence[float]) -> Sampled:
        """Return the estimate.

        Args:
            outcomes: at least one.
        """
        return cls(math.fsum(outcomes) / len(outcomes), len(outcomes), spread_of_one(outcomes) / len(outcomes))


class Floor(NamedTuple):
    """What a change of value that is none earns by chance.

    Args:
        bonus: mean of the positive part of the measured change.
        accepted: chance that it is positive.
    """

    bonus: float
    accepted: float


def noise_floor(k_pre: int, k_post: int, p: float = 0.5) -> Floor:
    """Return what a segment of no worth earns, both states having chance p of success.

    ``E max(X/k_post - Y/k_pre, 0)`` and ``P(X/k_post > Y/k_pre)`` for independent binomial X and Y: exact.

    Args:
        k_pre: outcomes before, at least 1.
        k_post: outcomes after, at least 1.
        p: chance of success, in [0, 1].

    Example:
        >>> [round(x, 3) for x in noise_floor(8, 8)]
        [0.098, 0.402]
    """
    change = np.arange(k_post + 1)[:, None] / k_post - np.arange(k_pre + 1) / k_pre
    weight = _binomial(k_post, p)[:, None] * _binomial(k_pre, p)
    better = change > 1e-12
    return Floor(float((weight * change)[better].sum()), float(weight[better].sum()))


def _binomial(k: int, p: float) -> Floats:
    return np.array([math.comb(k, s) * p**s * (1 - p) ** (k - s) for s in range(k + 1)], np.float64)
