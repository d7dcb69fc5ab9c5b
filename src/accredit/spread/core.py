"""The one place where a step's credit becomes its tokens' advantages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from accredit.errors import DataError, ParamError, suggest
from accredit.index import GroupStats, Index
from accredit.index.groups import FLAT
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["Spread", "Whitening", "population_T", "spread_tokens", "token_mask", "whiten"]


@dataclass(frozen=True, slots=True)
class Spread:
    """How step credit becomes token advantages; the default is the plain broadcast.

    Args:
        how: ``broadcast`` = each policy token of a step carries the step's credit; ``divide`` =
            the step's credit is shared equally by its tokens (they sum to it).
        normalise: level at which trained tokens are centred and scaled afterwards.
        centre: subtract the mean when normalising.
        scale: divide by ``std + eps`` when normalising.
        ddof: 1 = unbiased, 0 = population.
        eps: added to the deviation.
        clip: bound on |advantage| after all else, None = no bound.
    """

    how: str = "broadcast"
    normalise: str = "none"
    centre: bool = True
    scale: bool = True
    ddof: int = 1
    eps: float = 1e-8
    clip: float | None = None

    def __post_init__(self) -> None:
        _one_of("spread", self.how, ("broadcast", "divide"))
        _one_of("normalise", self.normalise, ("none", "rollout", "group", "batch"))
        if self.ddof not in (0, 1):
            raise ParamError(f"ddof must be 0 or 1, got {self.ddof!r}")
        for name, value in (("eps", self.eps), ("clip", 1.0 if self.clip is None else self.clip)):
            if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
                raise ParamError(f"{name} must be a number, got {value!r}")
        if not (0 <= self.eps < np.inf and (self.clip is None or self.clip > 0)):
            raise ParamError(f"eps must be >= 0, finite, and clip > 0, got {self.eps!r} and {self.clip!r}")

    @classmethod
    def of(cls, value: Spread | str | Mapping[str, Any] | None) -> Spread:
        """Return the spread that a user's value means: None, a name, a mapping or a Spread.

        Raises:
            ParamError: for an unknown name.
        """
        if value is None:
            return cls()
        if isinstance(value, Spread):
            return value
        if isinstance(value, str):
            return cls(how=value)
        if not isinstance(value, Mapping):
            raise ParamError(
                f"spread must be a name, a mapping of options, a Spread or None; got {value!r}",
                hint="For example 'divide' or {'normalise': 'group'}",
            )
        known = {f.name for f in fields(cls)}
        for name in value:
            if name not in known:
                raise ParamError(f"spread has no option {name!r}", hint=suggest(name, known))
        return cls(**value)


def _one_of(name: str, got: str, allowed: tuple[str, ...]) -> None:
    if got not in allowed:
        raise ParamError(f"{name} must be one of {', '.join(allowed)}; got {got!r}")


def token_mask(index: Index) -> BoolArray:
    """Return which policy tokens are trained ``[T]``."""
    if index.trainable_S.all():
        return np.ones(index.batch.n_tokens, bool)
    return np.repeat(index.trainable_S, index.tokens_S)


def spread_tokens(index: Index, values: Floats, spread: Spread, *, per_token: bool) -> Floats:
    """Return token advantages ``[T]``, 0 on tokens that are not trained.

    Args:
        index: of the batch.
        values: credit of steps ``[S]``, or of tokens ``[T]`` where ``per_token``.
        spread: what to do.
        per_token: whether the values belong to tokens already.
    """
    if per_token:
        found = values.copy() if index.trainable_S.all() else values * token_mask(index)
    else:
        step = np.where(index.trainable_S, values, 0.0)
        if spread.how == "divide":
            step = step / np.maximum(index.tokens_S, 1)
        found = np.repeat(step, index.tokens_S)
    if spread.normalise != "none":
        found = _normalised(index, found, spread)
    if spread.clip is not None:
        np.clip(found, -spread.clip, spread.clip, out=found)
    return found


def _normalised(index: Index, values: Floats, spread: Spread) -> Floats:
    ids, n = population_T(index, spread.normalise)
    stats = GroupStats(values, ids, n, token_mask(index))
    kept = stats.centred if spread.centre else values
    if not spread.scale:
        return kept
    scale = stats.std(spread.ddof) + spread.eps
    found: Floats = np.divide(kept, scale[ids], out=np.zeros_like(kept), where=scale[ids] > 0)
    return found


def population_T(index: Index, level: str) -> tuple[Ints, int]:
    """Return the population of each policy token ``[T]``, and how many populations there are.

    Args:
        index: of the batch.
        level: ``batch``, ``group``, ``rollout`` or ``step``.

    Raises:
        ParamError: for another word.
    """
    if level == "batch":
        return np.zeros(index.batch.n_tokens, np.int64), 1
    if level == "group":
        return np.repeat(index.group_R, index.tokens_R), index.n_groups
    if level == "rollout":
        return np.repeat(np.arange(len(index.batch)), index.tokens_R), len(index.batch)
    if level == "step":
        return index.step_T, index.batch.n_steps
    raise ParamError(f"population must be one of batch, group, rollout, step; got {level!r}")


@dataclass(frozen=True, slots=True)
class Whitening:
    """Mean and unbiased variance of some values, and the values whitened by them.

    Args:
        mean: of the counted values; 0 if there is none.
        var: unbiased; 0 for a tie or fewer than two values.
        n: number of counted values.
        tie: whether they do not spread (relative to 1e-12).
    """

    mean: float
    var: float
    n: int
    tie: bool

    @classmethod
    def over(cls, values: Floats, counted: BoolArray) -> Whitening:
        """Return the statistics of the counted values.

        Args:
            values: ``[T]``.
            counted: ``[T]``.

        Raises:
            DataError: if their variance does not fit float64.
        """
        inside = values if counted.all() else values[counted]
        if not inside.size:
            return cls(0.0, 0.0, 0, tie=True)
        low, high, mean = float(inside.min()), float(inside.max()), float(inside.mean())
        tie = not high - low > FLAT * max(1.0, abs(low), abs(high))
        if tie or inside.size < 2:
            return cls(mean, 0.0, inside.size, tie=True)
        away = inside - mean
        with np.errstate(over="ignore"):
            var = float(away @ away) / (inside.size - 1)
        if not np.isfinite(var):
            raise DataError(
                f"values from {low:g} to {high:g} are too large to whiten",
                hint="Scale the rewards down: their squares must fit float64",
            )
        return cls(mean, var, inside.size, tie=False)

    def of(self, values: Floats, counted: BoolArray, eps: float = 1e-8) -> Floats:
        """Return ``(x - mean) / sqrt(var + eps)`` of counted values; 0 elsewhere and in a tie.

        Args:
            values: ``[T]``.
            counted: ``[T]``.
            eps: inside the root.
        """
        if self.tie:
            return np.zeros_like(values)
        found = values - self.mean
        found /= np.sqrt(self.var + eps)
        if self.n < values.size:
            found[~counted] = 0.0
        return found


def whiten(values: Floats, counted: BoolArray, eps: float = 1e-8) -> Floats:
    """Return ``(x - mean) / sqrt(var + eps)`` over counted values, var unbiased; 0 elsewhere.

    Fewer than two counted values, or all equal: exactly 0.

    Args:
        values: ``[T]``.
        counted: ``[T]``.
        eps: inside the root.

    Source: verl 0.9.1 ``masked_whiten``.

    Example:
        >>> whiten(np.array([1.0, 0.0, 9.0]), np.array([True, True, False])).round(4).tolist()
        [0.7071, -0.7071, 0.0]
    """
    return Whitening.over(values, counted).of(values, counted, eps)
