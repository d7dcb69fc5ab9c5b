"""Alternatives tried in one context, each against the others: what `c3` and its like share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from accredit.data import Term
from accredit.errors import MissingSignal
from accredit.index import GroupStats, Index, segment_sum
from accredit.methods._params import bounded, choice
from accredit.typing import Array, BoolArray, Floats, Ints

__all__ = ["Contrast", "ContrastParams", "Tried"]


@dataclass(frozen=True)
class ContrastParams:
    """What every contrast of alternatives decides."""

    variant: str = choice(
        "reward_only",
        "value_only",
        "value_assisted",
        doc="continuations alone, a critic's `action_value` alone, or the critic as the baseline",
    )
    alpha: float = bounded(1.0, at_least=0, at_most=1, doc="value_assisted: share of the critic in the base")
    baseline: str = choice(
        "loo", "weighted", "full_mean", doc="mean of the others, their mean by continuations, or of all"
    )


@dataclass(frozen=True, eq=False)
class Tried:
    """Alternatives with their contexts.

    Args:
        context: of each alternative ``[J]``, 0 .. n-1.
        n: number of contexts.
        counts: continuations behind each alternative ``[J]``.
        counted: alternatives that are compared ``[J]``; each has at least one continuation.
        baseline: ``loo`` (mean of the others), ``weighted`` (their mean by counts) or ``full_mean``
            (mean of all).

    Example:
        >>> tried = Tried(np.zeros(3, int), 1, np.array([1.0, 1.0, 2.0]), np.ones(3, bool), "weighted")
        >>> tried.contrast(np.array([1.0, 0.0, 0.5])).round(3).tolist()
        [0.667, -0.667, 0.0]
    """

    context: Ints
    n: int
    counts: Floats
    counted: BoolArray
    baseline: str

    @cached_property
    def several(self) -> BoolArray:
        """Alternatives that have another one beside them ``[J]``."""
        found: BoolArray = self.counted & (self.size[self.context] > 1)
        return found

    @cached_property
    def size(self) -> Ints:
        """Number of alternatives of each context ``[n]``."""
        return np.bincount(self.context[self.counted], minlength=self.n)

    def contrast(self, values: Floats) -> Floats:
        """Return each alternative's value minus its baseline ``[J]``; 0 for an only one.

        Exactly 0 where all alternatives of a context tie.

        Args:
            values: ``[J]``.
        """
        weights = self.counts if self.baseline == "weighted" else None
        stats = GroupStats(values, self.context, self.n, self.counted, weights)
        found = np.where(self.several, stats.centred, 0.0)
        if self.baseline == "full_mean":
            return found
        unit = np.ones(values.size) if weights is None else weights
        whole = np.bincount(self.context, unit * self.counted, self.n)[self.context]
        others = whole - unit
        return found * np.divide(whole, others, out=np.zeros(values.size), where=others > 0)

    def base(self, values: Floats) -> Floats:
        """Return the baseline of each alternative ``[J]``; its own value where it is the only one."""
        found: Floats = values - self.contrast(values)
        return found


@dataclass(frozen=True, eq=False)
class Contrast:
    """Alternatives with their continuations, and the credit that this gives to steps.

    Args:
        index: of the batch.
        params: variant and baseline.
        tried: alternatives with their contexts.
        mean: mean return of each alternative's continuations ``[J]``.
        alternative_S: of each step ``[S]``.
        counted_S: steps whose rollout counts ``[S]``.
    """

    index: Index
    params: ContrastParams
    tried: Tried
    mean: Floats
    alternative_S: Ints
    counted_S: BoolArray

    @cached_property
    def credit_S(self) -> Floats:
        """Credit of each step ``[S]``; 0 where its rollout does not count."""
        return np.where(self.counted_S, self._credit_J()[self.alternative_S], 0.0)

    @cached_property
    def informed_S(self) -> BoolArray:
        """Steps whose context has another alternative ``[S]``."""
        return self.tried.several[self.alternative_S] & self.counted_S

    @property
    def fallbacks(self) -> dict[str, int]:
        """Number of steps without another alternative, and of those without a continuation."""
        lost = self.counted_S & ~self.tried.counted[self.alternative_S]
        return {
            "no_alternative": int((self.counted_S & ~lost & ~self.informed_S).sum()),
            "no_continuation": int(lost.sum()),
        }

    @property
    def extras(self) -> dict[str, Array]:
        """Q, number of continuations and context of each step ``[S]``; context -1 = not compared."""
        at = self.alternative_S
        return {
            "q": np.where(self.counted_S, self.mean[at], 0.0),
            "count": np.where(self.counted_S, self.tried.counts[at], 0.0),
            "context": np.where(self.informed_S, self.tried.context[at], -1),
        }

    def _credit_J(self) -> Floats:
        tried, params = self.tried, self.params
        if params.variant == "reward_only":
            return tried.contrast(self.mean)
        critic = self._critic_J()
        if params.variant == "value_only":
            return tried.contrast(critic)
        base = (1 - params.alpha) * tried.base(self.mean) + params.alpha * tried.base(critic)
        return np.where(tried.several, self.mean - base, 0.0)

    def _critic_J(self) -> Floats:
        """Return the critic's value of each alternative ``[J]``, a mean over copies."""
        column = self.index.batch.columns.get("action_value_S")
        if column is None or not column.mask(self.counted_S.size)[self.counted_S].all():
            raise MissingSignal(
                "some step has no `action_value`, the critic's value of its context and action",
                code="ACC401",
                hint="Give `action_value` at every step, or take variant='reward_only'",
            )
        at, size = self.alternative_S, self.mean.size
        total = segment_sum(np.where(self.counted_S, column.values, 0.0), at, size)
        return total / np.maximum(segment_sum(self.counted_S * 1.0, at, size), 1)

    def term(self, s: int, weight: float = 1.0) -> Term:
        """Return how the credit of one step came about.

        Args:
            s: index of the step.
            weight: that the credit has in the whole.
        """
        j, tried = int(self.alternative_S[s]), self.tried
        n = int(tried.size[tried.context[j]])
        inputs = {"q": float(self.mean[j]), "count": float(tried.counts[j]), "alternatives": float(n)}
        value = weight * float(self.credit_S[s])
        if not self.informed_S[s]:
            text = "no other alternative was tried here" if self.counted_S[s] else "not counted"
            return Term("contrast", value, text, inputs)
        text = (
            f"{self.mean[j]:.6g} of {tried.counts[j]:.0f} continuations, against {n - 1} other alternatives "
            f"({self.params.variant}, {self.params.baseline})"
        )
        return Term("contrast", value, text if weight == 1 else f"{weight:g} x ({text})", inputs)
