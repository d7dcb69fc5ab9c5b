"""The order of the report: rollouts of a group side by side, steps after their rollout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from accredit.errors import ParamError
from accredit.typing import Array, BoolArray, Floats, Ints
from accredit.views.colour import domain
from accredit.views.decisive import decisions
from accredit.views.plain import visible

if TYPE_CHECKING:
    from accredit.data import Batch, Credit

__all__ = ["Sheet", "Texts", "sheet_of"]

T = TypeVar("T")

MAX_METHODS = 8
# A picture, not a store: what float32 and sums of it cannot hold is drawn at this end.
LARGEST = 1e30


@dataclass(frozen=True, slots=True)
class Texts:
    """One word column in sheet order.

    Args:
        codes: int32 ``[S]`` index into ``words``, -1 where absent.
        words: the vocabulary as harmless text.
    """

    codes: Array
    words: Sequence[str]


@dataclass(frozen=True)
class Sheet:
    """Results over one batch, put in the order in which the report shows them.

    Args:
        batch: the rollouts.
        credits: one result a method, over this batch.
        labels: a distinct name for each result.
        order_R: batch index of each shown rollout; groups are contiguous.
        order_S: batch index of each shown step.
        start_R1: first shown step of each shown rollout.
        first_G1: first shown rollout of each shown group.
        names: group names.
        words: harmless vocabularies by column, shared by all sheets of one report.
        memo: columns that were asked for before.
    """

    batch: Batch
    credits: tuple[Credit, ...]
    labels: tuple[str, ...]
    order_R: Ints
    order_S: Ints
    start_R1: Ints
    first_G1: Ints
    names: tuple[str, ...]
    words: dict[str, Sequence[str]] = field(default_factory=dict, repr=False)
    memo: dict[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def ids(self) -> list[str]:
        """Rollout ids in sheet order, as they are."""
        ids = self.batch.ids
        return [ids[r] for r in self.order_R]

    @cached_property
    def place_of(self) -> dict[str, int]:
        """Sheet index of a rollout id."""
        return {name: i for i, name in enumerate(self.ids)}

    @cached_property
    def rollout_S(self) -> Ints:
        """Sheet index of the rollout of each step."""
        return np.repeat(np.arange(len(self.order_R)), np.diff(self.start_R1))

    @cached_property
    def group_R(self) -> Ints:
        """Group index of each shown rollout."""
        return np.repeat(np.arange(len(self.names)), np.diff(self.first_G1))

    @cached_property
    def group_S(self) -> Ints:
        """Group index of each shown step."""
        return self.group_R[self.rollout_S]

    @cached_property
    def credit_MS(self) -> Floats:
        """Credit of each method and step, sheet order."""
        return np.stack([_drawable(c.steps)[self.order_S] for c in self.credits])

    @cached_property
    def domain_M(self) -> list[float]:
        """Where each method's colour scale ends, one domain for all linked views."""
        return [domain(row) for row in self.credit_MS]

    @cached_property
    def same_MS(self) -> Ints:
        """Code of the decision of each step under each method (see `decisions`)."""
        return np.stack([decisions(self.batch, c.steps)[self.order_S] for c in self.credits])

    def pick(self, rollouts: Ints) -> Sheet:
        """Return the sheet of some rollouts (sheet indices, ascending) with the same colour domains."""
        counts = np.diff(self.start_R1)[rollouts]
        start_R1 = np.concatenate([[0], np.cumsum(counts)])
        steps = np.arange(int(start_R1[-1])) + np.repeat(self.start_R1[rollouts] - start_R1[:-1], counts)
        groups, sizes = np.unique(self.group_R[rollouts], return_counts=True)
        part = Sheet(
            self.batch,
            self.credits,
            self.labels,
            self.order_R[rollouts],
            self.order_S[steps],
            start_R1,
            np.concatenate([[0], np.cumsum(sizes)]),
            tuple(self.names[g] for g in groups),
            self.words,
        )
        part.__dict__["domain_M"] = self.domain_M
        part.__dict__["same_MS"] = self.same_MS[:, steps]
        return part

    def pick_ids(self, rollouts: Sequence[int]) -> Sheet:
        """Return the sheet of some rollouts, given by their batch index."""
        return self.pick(np.flatnonzero(np.isin(self.order_R, rollouts)))

    def rollout_column(self, name: str) -> tuple[Floats, BoolArray]:
        """Return a number column of rollouts and its validity, sheet order; absent = all invalid."""
        return self.remember(name, lambda: self._numbers(name))

    def step_column(self, name: str) -> tuple[Floats, BoolArray]:
        """Return a number column of steps and its validity, sheet order; absent = all invalid."""
        return self.remember(name, lambda: self._numbers(name))

    def texts(self, name: str, level: str = "S") -> Texts:
        """Return a word column as codes and harmless text; absent = all codes -1."""
        return self.remember(f"text {name}_{level}", lambda: self._texts(f"{name}_{level}"))

    def remember(self, name: str, make: Callable[[], T]) -> T:
        """Return what was made under a name before, or make it."""
        if name not in self.memo:
            self.memo[name] = make()
        kept: T = self.memo[name]
        return kept

    def group_steps(self, group: int) -> slice:
        """Return the shown steps of a group."""
        first, last = self.first_G1[group], self.first_G1[group + 1]
        return slice(int(self.start_R1[first]), int(self.start_R1[last]))

    def group_tokens(self, group: int) -> tuple[Ints, Ints]:
        """Return batch token indices of a group in sheet order, and token offsets of its steps."""
        steps = self.order_S[self.group_steps(group)]
        start = np.asarray(self.batch.token_start_S1)
        counts = start[steps + 1] - start[steps]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        shift = np.repeat(start[steps] - offsets[:-1], counts)
        return np.arange(int(offsets[-1])) + shift, offsets

    def _order(self, name: str) -> Ints:
        return self.order_S if name.endswith("_S") else self.order_R

    def _texts(self, name: str) -> Texts:
        order = self._order(name)
        if not self.batch.has(name):
            return Texts(np.full(len(order), -1, np.int32), ())
        column = self.batch.column(name)
        codes, words = _coded(column)
        if name not in self.words:
            self.words[name] = [visible(_said(w)) for w in words]
        codes = np.where(column.mask(len(codes)), codes, -1).astype(np.int32)
        return Texts(codes[order], self.words[name])

    def _numbers(self, name: str) -> tuple[Floats, BoolArray]:
        order = self._order(name)
        if not self.batch.has(name):
            return np.zeros(len(order)), np.zeros(len(order), bool)
        column = self.batch.column(name)
        return _drawable(column.values[order]), column.mask(len(column.values))[order]


def sheet_of(results: Credit | Sequence[Credit]) -> Sheet:
    """Return results over one batch in sheet order.

    Raises:
        ParamError: no result, too many, or results over different rollouts.
    """
    credits = tuple(results) if isinstance(results, list | tuple) else (results,)
    _check(credits)
    batch = credits[0].batch
    order_R, names = _grouped(batch)
    start = np.asarray(batch.step_start_R1)
    counts = (start[1:] - start[:-1])[order_R]
    start_R1 = np.concatenate([[0], np.cumsum(counts)])
    order_S = np.arange(int(start_R1[-1])) + np.repeat(start[:-1][order_R] - start_R1[:-1], counts)
    sizes = np.unique(np.asarray(batch.group_R), return_counts=True)[1]
    shown = _appearance(batch)
    first_G1 = np.concatenate([[0], np.cumsum(sizes[shown])])
    return Sheet(batch, credits, _labels(credits), order_R, order_S, start_R1, first_G1, names)


def _appearance(batch: Batch) -> Ints:
    """Present groups (as ranks among the sorted codes), in order of first appearance."""
    _, first = np.unique(np.asarray(batch.group_R), return_index=True)
    return np.argsort(first, kind="stable")


def _grouped(batch: Batch) -> tuple[Ints, tuple[str, ...]]:
    codes, first, inverse = np.unique(np.asarray(batch.group_R), return_index=True, return_inverse=True)
    shown = np.argsort(first, kind="stable")
    rank = np.empty(len(shown), int)
    rank[shown] = np.arange(len(shown))
    order = np.argsort(rank[inverse], kind="stable")
    return order, tuple(visible(str(batch.group_names[codes[g]])) for g in shown)


def _check(credits: Sequence[Credit]) -> None:
    if not credits:
        raise ParamError(
            "a report needs at least one result, got none",
            code="ACC821",
            hint="report(assign(batch, 'grpo'), path)",
        )
    if len(credits) > MAX_METHODS:
        raise ParamError(
            f"a report shows at most {MAX_METHODS} results, got {len(credits)}",
            code="ACC822",
            hint="Write several reports",
        )
    for credit in credits:
        if not hasattr(credit, "steps"):
            raise ParamError(
                f"a report shows Credits, got {credit!r:.60}", hint="report(assign(batch, 'grpo'), path)"
            )
        _check_steps(credit)
    first = credits[0].batch
    for other in credits[1:]:
        same = other.batch is first or (
            other.batch.ids == first.ids and np.array_equal(other.batch.step_start_R1, first.step_start_R1)
        )
        if not same:
            raise ParamError(
                "the results of one report must be over the same rollouts and steps",
                code="ACC823",
                hint="Assign all methods on one batch: compare(batch, ['grpo', 'gigpo'])",
            )


def _check_steps(credit: Credit) -> None:
    if len(credit.steps) != credit.batch.n_steps:
        raise ParamError(
            f"{credit.card.id} gives a table, not a credit of each step, so a report cannot show it",
            code="ACC826",
            hint="Leave it out, or print its `table`",
        )


def _labels(credits: Sequence[Credit]) -> tuple[str, ...]:
    """Return method ids; where an id occurs twice, with the parameters that set the results apart."""
    ids = [str(c.card.id) for c in credits]
    out = []
    for i, credit in enumerate(credits):
        twins = [c.params for j, c in enumerate(credits) if ids[j] == ids[i]]
        changed = [f"{k}={v}" for k, v in credit.params.items() if any(t.get(k) != v for t in twins)]
        label = ids[i] + (":" + ",".join(changed) if changed else "")
        out.append(label if label not in out else f"{label} ({i + 1})")
    return tuple(out)


def _drawable(values: Array) -> Floats:
    drawable: Floats = np.clip(np.asarray(values, float), -LARGEST, LARGEST)
    return drawable


def _coded(column: Any) -> tuple[Array, Sequence[Any]]:
    """Return codes and words of any column that is not a vector; numbers are interned here."""
    if column.words is not None:
        return column.values, column.words
    if column.is_json:
        return np.arange(len(column.values), dtype=np.int32), list(column.values)
    words, codes = np.unique(column.values, return_inverse=True)
    return codes.astype(np.int32), words.tolist()


def _said(word: Any) -> str:
    if isinstance(word, bool):
        return "true" if word else "false"
    return "" if word is None else str(word)
