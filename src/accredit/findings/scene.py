"""What every check looks at: the index of a batch, and the method that is to run on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from accredit.data import Batch, Finding, MethodCard
from accredit.findings.codes import CODES
from accredit.findings.recurrence import Revisits, normaliser_gains, revisits
from accredit.findings.ties import Ties, zero_spread
from accredit.index import Index, has_score_R
from accredit.index.rewards import COMPONENT, components_of
from accredit.typing import BoolArray, Floats, Ints, Scalar

__all__ = ["Check", "Plan", "Scene", "distinct_pairs", "named"]

_EXAMPLES = 5
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class Plan:
    """The method that is to run on the rollouts.

    Args:
        card: of the method.
        params: its parameters in force.
        missing: its needs that the batch does not meet, as the card words them.
    """

    card: MethodCard
    params: Mapping[str, Any] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scene:
    """A batch as the checks see it.

    Args:
        index: of the batch.
        plan: the method that is to run on it; None = any.
    """

    index: Index
    plan: Plan | None = None

    @property
    def batch(self) -> Batch:
        """The rollouts."""
        return self.index.batch

    def param(self, name: str, default: Any = None) -> Any:
        """Return a parameter of the chosen method; the default where it has none, or none is chosen."""
        return default if self.plan is None else self.plan.params.get(name, default)

    @cached_property
    def components(self) -> dict[str, float]:
        """Named rewards that the chosen method sums, with their weights; none = it takes the outcome."""
        if self.param("combine", "outcome") == "outcome":
            return {}
        there = components_of(self.index)
        weights = self.param("weights") or dict.fromkeys(there, 1.0)
        return {name: float(weights[name]) for name in there if name in weights}

    @cached_property
    def scored_R(self) -> BoolArray:
        """Rollouts that have a score and are not rejected ``[R]``."""
        combine = self.param("combine", "outcome")
        return has_score_R(self.index, combine, self.components or None)

    @cached_property
    def score_R(self) -> Floats:
        """Total return of each rollout ``[R]``, as group methods compare it."""
        if not self.components:
            return self.index.score_R
        columns = {name: self.batch.column(f"{COMPONENT}{name}_R").values for name in self.components}
        total: Floats = np.sum([weight * columns[name] for name, weight in self.components.items()], axis=0)
        return total

    @cached_property
    def counted_R(self) -> BoolArray:
        """Rollouts that join the statistics of the chosen method ``[R]``."""
        truncated, incomplete = self.param("truncated", "keep"), self.param("incomplete", "keep")
        return self.index.counted_R(truncated, incomplete, self.scored_R)

    @cached_property
    def ties(self) -> Ties:
        """How the returns of each group spread."""
        return zero_spread(self.score_R, self.index.group_R, self.index.n_groups, self.counted_R)

    @cached_property
    def revisits(self) -> Revisits | None:
        """How often states recur; None without states."""
        return revisits(self.index)

    @cached_property
    def gains(self) -> dict[str, float]:
        """What each state normaliser would add to the share of steps with a shared state."""
        return normaliser_gains(self.index)

    def present(self, name: str) -> BoolArray:
        """Return where a column has a value, all False without it ``[R]`` or ``[S]``."""
        size = len(self.batch) if name.endswith("_R") else self.batch.n_steps
        column = self.batch.columns.get(name)
        return np.zeros(size, bool) if column is None else column.mask(size)

    def rollouts(self, code: str, mask_R: BoolArray, message: str, mend: str = "") -> Iterator[Finding]:
        """Yield the finding of the rollouts in a mask; none if it is empty.

        Args:
            code: of the finding.
            mask_R: which rollouts show it ``[R]``.
            message: ``{n}`` stands for "3 of 16 rollouts".
            mend: instead of the table's.
        """
        at = np.flatnonzero(mask_R)
        places = [f"rollout {named(self.batch.ids[r])}" for r in at[:_EXAMPLES].tolist()]
        yield from _finding(code, at.size, mask_R.size, "rollout", places, message, mend)

    def steps(self, code: str, mask_S: BoolArray, message: str, mend: str = "") -> Iterator[Finding]:
        """Yield the finding of the steps in a mask ``[S]``; none if it is empty."""
        at = np.flatnonzero(mask_S)
        places = [self.step_place(s) for s in at[:_EXAMPLES].tolist()]
        yield from _finding(code, at.size, mask_S.size, "step", places, message, mend)

    def tokens(self, code: str, mask_T: BoolArray, message: str, mend: str = "") -> Iterator[Finding]:
        """Yield the finding of the tokens in a mask ``[T]``, placed by step; none if it is empty."""
        count = int(np.count_nonzero(mask_T))
        if count:
            first: Ints = np.flatnonzero(mask_T)[: _EXAMPLES * 200]
            steps = np.unique(self._step_of(first))[:_EXAMPLES]
            places = [self.step_place(s) for s in steps.tolist()]
            yield from _finding(code, count, mask_T.size, "policy token", places, message, mend)

    def groups(self, code: str, mask_G: BoolArray, message: str, mend: str = "") -> Iterator[Finding]:
        """Yield the finding of the groups in a mask ``[G]``; none if it is empty."""
        at = np.flatnonzero(mask_G)
        places = [f"group {named(self.group_name(g))}" for g in at[:_EXAMPLES].tolist()]
        yield from _finding(code, at.size, mask_G.size, "group", places, message, mend)

    def _step_of(self, tokens: Ints) -> Ints:
        found: Ints = np.searchsorted(self.batch.token_start_S1, tokens, side="right") - 1
        return found

    def step_place(self, s: int) -> str:
        """Return the place of step s: its rollout and its position."""
        r = int(self.index.rollout_S[s])
        return f"rollout {named(self.batch.ids[r])} step {int(self.index.position_S[s])}"

    @cached_property
    def group_size_G(self) -> Ints:
        """Number of rollouts of each group ``[G]``."""
        return np.bincount(self.index.group_R, minlength=self.index.n_groups)

    def group_name(self, g: int) -> Scalar:
        """Return the group id of a dense group code."""
        return self.batch.group_names[int(self.batch.group_R[self._first_of_group[g]])]

    @cached_property
    def _first_of_group(self) -> Ints:
        return np.unique(self.index.group_R, return_index=True)[1]


Check: TypeAlias = Callable[[Scene], Iterator[Finding]]


def _finding(
    code: str, count: int, of: int, noun: str, places: list[str], message: str, mend: str
) -> Iterator[Finding]:
    if count:
        text = message.replace("{n}", f"{count} of {of} {noun}{'s' * (of > 1)}", 1)
        yield CODES[code].finding(text, count=int(count), examples=places, mend=mend)


def distinct_pairs(first: Ints, second: Ints) -> tuple[Ints, Ints]:
    """Return the different pairs of two columns of codes >= 0, in order.

    Args:
        first: ``[n]``.
        second: ``[n]``.

    Example:
        >>> [column.tolist() for column in distinct_pairs(np.array([1, 0, 1]), np.array([2, 2, 2]))]
        [[0, 1], [2, 2]]
    """
    width = int(second.max(initial=0)) + 1
    key = first.astype(np.int64) * width + second
    few = int(key.max(initial=0)) <= 8 * key.size  # then counting is faster than sorting
    left, right = np.divmod(np.flatnonzero(np.bincount(key)) if few else np.unique(key), width)
    return left, right


def named(value: Any) -> str:
    r"""Return a name for a message: quoted, control characters escaped, cut to 80 characters.

    Example:
        >>> print(named("r\x1b[31m"))
        'r\x1b[31m'
    """
    text = repr(value)
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 4] + "..." + text[-1]
