"""Outcomes of continuations: their mean, the variance of one, and what chance alone would earn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from accredit.data.values import is_number
from accredit.errors import DataError
from accredit.typing import Floats

__all__ = [
    "Estimates",
    "Floor",
    "Sampled",
    "estimates_of",
    "noise_floor",
    "outcomes_of",
    "spread_of_one",
]


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
    plain: list[Any] = [one.get("reward") if type(one) is dict else one for one in listed]
    if {type(x) for x in plain} <= {float, int}:
        with suppress(OverflowError):  # a whole number beyond the floats, which is told of below
            if math.isfinite(sum(plain)):
                return tuple(map(float, plain))
    return tuple(_outcome(one, unfinished, where) for one in listed)


def _outcome(one: Any, unfinished: float, where: str) -> float:
    told = one
    if isinstance(one, Mapping):
        told = one.get("reward")
        if told is None and one.get("truncated"):
            return unfinished
    if not is_number(told):
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
        mean: of the outcomes, reward units; exactly theirs where all are equal.
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
        (k,), (mean,), (error,) = estimates_of([outcomes])
        return cls(float(mean), int(k), float(error))


class Estimates(NamedTuple):
    """Values estimated from lists of outcomes; 0 where a list is empty.

    Args:
        k: number of outcomes ``[n]``.
        mean: of the outcomes ``[n]``, exactly theirs where all are equal.
        error: squared standard error of the mean ``[n]``.
    """

    k: Floats
    mean: Floats
    error: Floats


def estimates_of(lists: Sequence[Sequence[float]]) -> Estimates:
    """Return what `Sampled.of` says of each of many lists.

    Args:
        lists: outcomes ``[n]``, any number each.

    Example:
        >>> estimates_of([(1.0, 0.0), ()]).mean.tolist()
        [0.5, 0.0]
    """
    k = np.fromiter(map(len, lists), np.int64, len(lists))
    flat = np.fromiter(chain.from_iterable(lists), np.float64, int(k.sum()))
    owner, full = np.repeat(np.arange(k.size), k), k > 0
    total = np.bincount(owner, flat, k.size)
    mean = total / np.maximum(k, 1)
    starts = (np.cumsum(k) - k)[full]
    if flat.size:
        low, high = np.minimum.reduceat(flat, starts), np.maximum.reduceat(flat, starts)
        mean[full] = np.where(low == high, low, mean[full])
    chance = (total + 1) / (k + 2)
    square = np.bincount(owner, (flat - mean[owner]) ** 2, k.size)
    spread = np.where(k > 1, square / np.maximum(k - 1, 1), 0.25)
    odd = np.bincount(owner, (flat != 0) & (flat != 1), k.size) > 0
    error = np.where(odd, spread, chance * (1 - chance)) / np.maximum(k, 1)
    return Estimates(k.astype(np.float64), mean, np.where(full, error, 0.0))


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
