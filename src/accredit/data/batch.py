"""Rollouts as flat ragged columns.

Nothing is padded and nothing is nested: one array a field, and offsets that say which steps
belong to which rollout and which tokens to which step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from accredit.data.column import Column
from accredit.data.finding import Exclusion, Finding
from accredit.data.ragged import take_offsets
from accredit.errors import DataError, suggest
from accredit.typing import Array, BoolArray, Ints, Scalar

if TYPE_CHECKING:
    from accredit.data.records import Rollout

__all__ = ["Batch"]


class Batch:
    """Rollouts in memory: flat columns and offsets, immutable.

    Axes: ``R`` rollouts, ``S`` steps, ``T`` policy tokens, ``C`` context tokens. A column's name
    ends in its axis letter; ``batch.reward_R`` is the array, ``batch.column("reward_R")`` the
    Column with its validity mask.

    Args:
        ids: rollout ids, unique.
        group_R: int32 codes into ``group_names``.
        group_names: group ids.
        step_start_R1: int64 offsets of each rollout's steps.
        token_start_S1: int64 offsets of each step's policy tokens.
        columns: the fields.
        context_start_S1: int64 offsets of each step's added context tokens, if recorded.
        outcome_in_steps: the reward convention, if it was decided for the whole source already.
        findings: made while reading.
        excluded: rollouts that were read but are not used.
        provenance: source, reader, header.

    Example:
        >>> batch = Batch.from_records([
        ...     {"id": "a", "group": "g", "reward": 1, "steps": [{"state": "s", "n_tokens": 2}]},
        ...     {"id": "b", "group": "g", "reward": 0, "steps": [{"state": "s", "n_tokens": 1}]},
        ... ])
        >>> len(batch), batch.n_steps, batch.n_tokens, batch.reward_R.tolist()
        (2, 2, 3, [1.0, 0.0])
    """

    def __init__(
        self,
        ids: tuple[str, ...],
        group_R: Array,
        group_names: tuple[Scalar, ...],
        step_start_R1: Ints,
        token_start_S1: Ints,
        columns: Mapping[str, Column],
        *,
        context_start_S1: Ints | None = None,
        outcome_in_steps: bool | None = None,
        findings: tuple[Finding, ...] = (),
        excluded: tuple[Exclusion, ...] = (),
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        self.ids = ids
        self.group_R = group_R
        self.group_names = group_names
        self.step_start_R1 = step_start_R1
        self.token_start_S1 = token_start_S1
        self.context_start_S1 = context_start_S1
        self.columns: Mapping[str, Column] = dict(columns)
        self.findings = findings
        self.excluded = excluded
        self.provenance: Mapping[str, Any] = dict(provenance or {})
        self._outcome_in_steps = outcome_in_steps
        for array in (group_R, step_start_R1, token_start_S1):
            array.flags.writeable = False

    # -- building ---------------------------------------------------------------------------

    @classmethod
    def from_records(
        cls, records: Iterable[Mapping[str, Any] | Rollout], *, source: str = "", strict: bool = False
    ) -> Batch:
        """Return the batch of native records (dicts or Rollouts), read one at a time.

        Args:
            records: any iterable; memory stays that of the columns.
            source: name of the source, for places in findings.
            strict: raise at the first record that cannot be used; default: exclude it, with the
                reason in ``excluded`` and in ``findings``.

        Raises:
            DataError: if it is a text, an open file or one record; strict: at a record that cannot be used.
        """
        from accredit.data.builder import build  # the builder makes Batches

        return build(records, source, strict)

    @classmethod
    def concat(cls, batches: Sequence[Batch]) -> Batch:
        """Return one batch of several, in order; equal group ids become one group.

        Raises:
            DataError: if a rollout id occurs in two of them, or a column's kind differs.
        """
        from accredit.data.joins import concat

        return concat(batches)

    def with_column(
        self,
        name: str,
        values: Any,
        provenance: Mapping[str, Any] | None = None,
        *,
        valid: BoolArray | None = None,
    ) -> Batch:
        """Return a batch with one more column (or one replaced).

        Args:
            name: ends in its axis letter, e.g. ``value_S``; a step or rollout field of the record
                format by its own name (``value``, ``logprobs``) means its column.
            values: ``[R]``, ``[S]`` or ``[T]`` numbers or strings (interned), or vectors ``[…, d]``.
            provenance: who made it, from what.
            valid: where values are present; ``[R]`` or ``[S]``.

        Raises:
            DataError: if the length does not fit the axis, or numbers are NaN or infinite.
        """
        from accredit.data.joins import make_column
        from accredit.data.vocabulary import column_of

        name = column_of(name)
        column = make_column(self, name, values, valid, provenance or {})
        return self._replace(columns={**self.columns, name: column})

    def without_column(self, name: str) -> Batch:
        """Return the batch without a column.

        Args:
            name: of the column, or the field of the record format that it holds.

        Raises:
            DataError: if it is absent, or holds what others are counted by.
        """
        from accredit.data.vocabulary import column_of

        name = column_of(name)
        if self.column(name).level == "context" or name in ("token_T", "context_reset_S"):
            raise DataError(f"column {name!r} cannot be left out: others are counted by it")
        return self._replace(columns={k: v for k, v in self.columns.items() if k != name})

    def annotated(self, findings: tuple[Finding, ...], excluded: tuple[Exclusion, ...]) -> Batch:
        """Return the batch with findings and exclusions set."""
        return self._replace(findings=findings, excluded=excluded)

    def with_provenance(self, provenance: Mapping[str, Any]) -> Batch:
        """Return the batch with another account of where it comes from."""
        return self._replace(provenance=provenance)

    def _replace(self, **changes: Any) -> Batch:
        state: dict[str, Any] = {
            "ids": self.ids,
            "group_R": self.group_R,
            "group_names": self.group_names,
            "step_start_R1": self.step_start_R1,
            "token_start_S1": self.token_start_S1,
            "columns": self.columns,
            "context_start_S1": self.context_start_S1,
            "outcome_in_steps": self._outcome_in_steps,
            "findings": self.findings,
            "excluded": self.excluded,
            "provenance": self.provenance,
        }
        return Batch(**(state | changes))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        for array in (self.group_R, self.step_start_R1, self.token_start_S1):
            array.flags.writeable = False  # forgotten in a pickle

    # -- sizes and access -------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def n_steps(self) -> int:
        """Number of steps S."""
        return self.token_start_S1.size - 1

    @property
    def n_tokens(self) -> int:
        """Number of policy tokens T."""
        return int(self.token_start_S1[-1])

    @property
    def n_groups(self) -> int:
        """Number of groups that have a rollout."""
        return int(np.unique(self.group_R).size)

    def has(self, name: str) -> bool:
        """Return whether the column is there."""
        return name in self.columns

    def column(self, name: str) -> Column:
        """Return a column by name.

        Raises:
            DataError: naming the nearest columns, if it is absent.
        """
        if name not in self.columns:
            raise DataError(f"no column {name!r} in this batch", hint=suggest(name, self.columns))
        return self.columns[name]

    def __getattr__(self, name: str) -> Array:
        columns = self.__dict__.get("columns", {})
        if name in columns:
            values: Array = columns[name].values
            return values
        raise AttributeError(f"Batch has no attribute or column {name!r}. {suggest(name, columns)}")

    @cached_property
    def rollout_of(self) -> Mapping[str, int]:
        """Position of each rollout id."""
        return {name: r for r, name in enumerate(self.ids)}

    def position(self, rollout: str) -> int:
        """Return the position of a rollout id.

        Raises:
            DataError: naming the nearest id, if there is none such.
        """
        if not isinstance(rollout, str):
            raise DataError(f"a rollout is named by its id, a string; got {rollout!r}")
        if rollout not in self.rollout_of:
            near = suggest(rollout, self.ids) if len(self) <= 1000 else ""
            raise DataError(f"no rollout {rollout!r} in this batch", hint=near)
        return self.rollout_of[rollout]

    def steps_of(self, r: int) -> range:
        """Return the step indices of rollout r."""
        return range(int(self.step_start_R1[r]), int(self.step_start_R1[r + 1]))

    @property
    def outcome_in_steps(self) -> bool:
        """Whether the step rewards already contain the outcome (rule ``auto``).

        True when some step reward is non-zero and ``reward`` equals the sum of the step rewards
        (1e-9) in every scored rollout that has step rewards. Decided once for a whole source;
        slices inherit it. A rollout without any step reward keeps its outcome either way.
        """
        if self._outcome_in_steps is None:
            self._outcome_in_steps = _decide_outcome(self)
        return self._outcome_in_steps

    # -- slices -----------------------------------------------------------------------------

    def take(self, rollouts: Any) -> Batch:
        """Return the batch of some rollouts, in the order given.

        Args:
            rollouts: positions ``[n]``, unique. A contiguous range gives views.

        Raises:
            DataError: if one is no position of this batch.
        """
        picked = _positions(rollouts, len(self))
        steps, step_start = take_offsets(self.step_start_R1, picked)
        tokens, token_start = take_offsets(self.token_start_S1, steps)
        index: dict[str, Any] = {"rollout": _view(picked), "step": _view(steps)}
        index["token"] = _view(tokens)
        context_start = None
        if self.context_start_S1 is not None:
            context, context_start = take_offsets(self.context_start_S1, steps)
            index["context"] = _view(context)
        columns = {
            name: Column(
                c.level,
                c.values[index[c.level]],
                None if c.valid is None else c.valid[index["rollout" if c.level == "rollout" else "step"]],
                c.words,
                c.provenance,
            )
            for name, c in self.columns.items()
        }
        return self._replace(
            ids=tuple(self.ids[i] for i in picked.tolist()),
            group_R=self.group_R[index["rollout"]],
            step_start_R1=step_start,
            token_start_S1=token_start,
            columns=columns,
            context_start_S1=context_start,
            outcome_in_steps=self.outcome_in_steps,
        )

    def groups(self) -> Iterator[tuple[Scalar, Batch]]:
        """Yield each group's id and its batch, in order of first appearance."""
        order = np.argsort(self.group_R, kind="stable")
        codes, first = np.unique(self.group_R[order], return_index=True)
        members = np.split(order, first[1:]) if codes.size else []
        for rows in sorted(members, key=lambda m: int(m[0])):
            yield self.group_names[int(self.group_R[rows[0]])], self.take(rows)

    # -- records and equality ---------------------------------------------------------------

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield native records; rollouts given as several rows come as several records."""
        from accredit.data.export import records

        return records(self)

    @cached_property
    def batch_hash(self) -> str:
        """Fingerprint of the content (``sha256:…``): equal batches have equal ones."""
        from accredit.data.hashing import batch_hash

        return batch_hash(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Batch):
            return NotImplemented
        from accredit.data.joins import equal

        return equal(self, other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        size = f"{len(self)} rollouts, {self.n_groups} groups, {self.n_steps} steps"
        names = ", ".join(sorted(self.columns))
        return f"Batch({size}, {self.n_tokens} policy tokens; {names})"


def _decide_outcome(batch: Batch) -> bool:
    if not (batch.has("reward_S") and batch.has("reward_R")):
        return False
    paid, outcome = batch.column("reward_S"), batch.column("reward_R")
    if not np.any(paid.values):
        return False
    rollout_S = np.repeat(np.arange(len(batch)), np.diff(batch.step_start_R1))
    sums = np.bincount(rollout_S, paid.values, len(batch))
    given = np.bincount(rollout_S, paid.mask(batch.n_steps), len(batch)) > 0
    judged = given & outcome.mask(len(batch))
    apart = np.abs(sums - outcome.values) > 1e-9 * np.maximum(1, np.abs(outcome.values))
    return bool(judged.any() and not apart[judged].any())


def _positions(rollouts: Any, size: int) -> Ints:
    given = np.asarray(rollouts)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise DataError(
            f"rollouts to take must be a list of positions, got {repr(rollouts)[:60]}",
            hint="Positions are whole numbers from 0; batch.position(id) gives that of a rollout",
        )
    picked = given.astype(np.int64)
    wrong = picked[(picked < 0) | (picked >= size)]
    if wrong.size:
        raise DataError(f"no rollout at position {wrong[0]}: this batch has {size} rollouts, from 0")
    return picked


def _view(index: Ints) -> Any:
    """Return a slice for a contiguous ascending index, so that numpy gives a view."""
    if index.size and index[-1] - index[0] == index.size - 1 and np.all(np.diff(index) == 1):
        return slice(int(index[0]), int(index[-1]) + 1)
    return index
