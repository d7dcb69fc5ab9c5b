"""From a trainer's padded rows to a Batch, and from its token advantages back to the rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

import accredit as ac
from accredit.adapters.arrays import as_mask, as_numpy
from accredit.adapters.echo import check_row, layout_of
from accredit.errors import DataError, ParamError
from accredit.typing import Array, BoolArray, Floats, Ints

__all__ = ["Laid", "PaddedRows", "RowRewards", "lay_out"]

RowRewards: TypeAlias = Literal["repeat", "sum", "last"]
Record: TypeAlias = dict[str, Any]
_SCALARS = (str, int, float, bool)
_NOT_THE_RECORDS = ("id", "group", "reward", "row")


@dataclass(frozen=True, slots=True)
class PaddedRows:
    """A trainer's batch: one row a rollout, or a part of one, with positions after the prompt.

    Args:
        rewards: outcome of each row ``[B]`` (NaN = unscored), or rewards at tokens ``[B, L]``: a
            reward belongs to the last step that has begun at its position.
        mask: ``[B, L]``, 1 at the tokens that the policy sampled.
        group: id of each row's task ``[B]``; rollouts of one task are compared.
        rollout: id of each row's rollout ``[B]``; None = every row is a rollout of its own.
        order: number of each row within its rollout, from 0 without gaps; None = as they come.
        keep: False marks rows of padding ``[B]``; None = rows without a policy token are padding.
        tokens: ids ``[B, L]``.
        spans: of each row, half-open ranges of positions, one a step; or the step's number at each
            position ``[B, L]``; None = from ``records``, else each run of ones is a step.
        states: of each row, one state key a step.
        step_rewards: of each row, one reward a step, apart from ``rewards``.
        records: of each row, further fields of a native record (``steps``, ``status``, ``rewards``
            …); token ids in its steps are checked against ``tokens``.
        logprobs, entropies, values: ``[B, L]``, of the token at their position.
        signals: further token signals ``[B, L]`` by their record name, ``logprobs_teacher``, say.
        row_rewards: how a rollout of several rows gets its outcome: every row ``repeat``s it
            (checked), rows ``sum`` up to it, or the ``last`` row has it.
        prompt_in_rows: rows begin with the prompt.
    """

    rewards: Any
    mask: Any
    group: Sequence[Hashable]
    rollout: Sequence[Hashable] | None = None
    order: Sequence[int] | None = None
    keep: Sequence[bool] | None = None
    tokens: Any = None
    spans: Any = None
    states: Sequence[Sequence[Any]] | None = None
    step_rewards: Sequence[Sequence[float]] | None = None
    records: Sequence[Mapping[str, Any] | None] | None = None
    logprobs: Any = None
    entropies: Any = None
    values: Any = None
    signals: Mapping[str, Any] = field(default_factory=dict)
    row_rewards: RowRewards = "repeat"
    prompt_in_rows: bool = False


class Laid(NamedTuple):
    """The batch of padded rows, and where its tokens belong.

    Args:
        batch: one rollout a rollout, whatever its rows.
        mask: ``[B, L]``.
        place_T: flat position in ``[B, L]`` of each policy token of the batch, in its order.
        kept: row numbers in the batch's order.
        ids: rollout id of each row ``[B]``.
        order: number of each row within its rollout ``[B]``.
        left_out: rows of padding.
    """

    batch: ac.Batch
    mask: BoolArray
    place_T: Ints
    kept: list[int]
    ids: list[str]
    order: list[int]
    left_out: tuple[int, ...]


def lay_out(rows: PaddedRows) -> Laid:
    """Return the Batch of padded rows and the place of each of its policy tokens.

    Raises:
        DataError: if shapes, spans, steps or masks do not fit each other, a signal is not finite at
            a policy token, a row comes twice or is missing, or recorded ids are not those of the row.
    """
    mask = as_mask(rows.mask)
    ids, order = _identities(rows, len(mask))
    kept, left_out = _kept(rows, mask)
    firsts: dict[str, int] = {}
    for b in kept:
        firsts.setdefault(ids[b], b)
    kept.sort(key=lambda b: (firsts[ids[b]], order[b]))
    _check_identities(rows, kept, ids, order)
    records = list(_Recorder(rows, mask).records(kept, ids, order))
    batch = ac.Batch.from_records(records, source="padded rows")
    if batch.excluded:
        lost = batch.excluded[0]
        raise DataError(f"rollout {lost.id!r} cannot be used: {lost.reason}", code="ACC875")
    length = mask.shape[1]
    place = [b * length + np.flatnonzero(mask[b]) for b in kept]
    place_T = np.concatenate(place).astype(np.int64) if place else np.zeros(0, np.int64)
    assert place_T.size == batch.n_tokens, (place_T.size, batch.n_tokens)
    return Laid(batch, mask, place_T, kept, ids, order, left_out)


def _identities(rows: PaddedRows, size: int) -> tuple[list[str], list[int]]:
    for name in ("group", "rollout", "order", "keep", "states", "step_rewards", "records"):
        given = getattr(rows, name)
        if given is not None and len(given) != size:
            raise DataError(f"{name} has {len(given)} entries for {size} rows", code="ACC875")
    if rows.rollout is None:
        return [f"row {b}" for b in range(size)], [0] * size
    ids = [str(_scalar(r)) for r in rows.rollout]
    if rows.order is not None:
        return ids, [int(o) for o in rows.order]
    counts: dict[str, int] = {}
    order = []
    for name in ids:
        order.append(counts.get(name, 0))
        counts[name] = order[-1] + 1
    return ids, order


def _kept(rows: PaddedRows, mask: BoolArray) -> tuple[list[int], tuple[int, ...]]:
    keep = mask.any(axis=1) if rows.keep is None else np.asarray(rows.keep, bool)
    return np.flatnonzero(keep).tolist(), tuple(np.flatnonzero(~keep).tolist())


def _check_identities(rows: PaddedRows, kept: list[int], ids: list[str], order: list[int]) -> None:
    """Rows of one rollout are numbered 0, 1 … and belong to one group; ``kept`` is sorted by them."""
    previous = -1
    for b in kept:
        same = previous >= 0 and ids[previous] == ids[b]
        expected = order[previous] + 1 if same else 0
        if same and order[b] == order[previous]:
            raise DataError(
                f"rows {previous} and {b} are both row {order[b]} of rollout {ids[b]!r}",
                code="ACC873",
                hint="Give each row once, or each its own number within its rollout",
            )
        if order[b] != expected:
            raise DataError(
                f"row {expected} of rollout {ids[b]!r} is missing: row {b} is its row {order[b]}",
                code="ACC872",
                hint="Hand over every row of a rollout; half a rollout is none",
            )
        if same and rows.group[b] != rows.group[previous]:
            raise DataError(
                f"rows {previous} and {b} of rollout {ids[b]!r} have groups "
                f"{rows.group[previous]!r} and {rows.group[b]!r}",
                code="ACC873",
                hint="Rollout ids must be unique over all groups",
            )
        previous = b


class _Recorder:
    """Turns rows into native records."""

    def __init__(self, rows: PaddedRows, mask: BoolArray) -> None:
        if rows.row_rewards not in ("repeat", "sum", "last"):
            raise ParamError(f"row_rewards must be repeat, sum or last; got {rows.row_rewards!r}")
        self.rows = rows
        self.mask = mask
        self.tokens = _shaped("tokens", rows.tokens, mask)
        named = {"logprobs": rows.logprobs, "entropies": rows.entropies, "token_values": rows.values}
        named |= dict(rows.signals)
        self.signals = {n: _finite(n, v, mask) for n, v in named.items() if v is not None}
        self.rewards = _rewards(rows.rewards, mask)

    def records(self, kept: list[int], ids: list[str], order: list[int]) -> Iterator[Record]:
        """Yield one record a row; rollouts of several rows get their outcome first."""
        parts = {b: self._counts(b) for b in kept}
        paid = {b: self._paid(b, parts[b]) for b in kept}
        several = {ids[b] for b in kept if order[b]}
        outcome = self._outcomes(kept, ids, paid)
        dense = self._dense(paid, several)
        for b in kept:
            record = self._further(b) | {
                "id": ids[b],
                "group": _scalar(self.rows.group[b]),
                "reward": outcome[ids[b]],
                "steps": self._steps(b, parts[b]),
            }
            if dense:
                for step, reward in zip(record["steps"], paid[b], strict=True):
                    step["reward"] = float(reward) if np.isfinite(reward) else None
            if ids[b] in several:
                record["row"] = order[b]
            yield record

    def _outcomes(
        self, kept: list[int], ids: list[str], paid: Mapping[int, Floats]
    ) -> dict[str, float | None]:
        sums: dict[str, list[tuple[int, float]]] = {}
        for b in kept:
            sums.setdefault(ids[b], []).append((b, float(paid[b].sum())))
        return {name: _outcome(name, parts, self.rows.row_rewards) for name, parts in sums.items()}

    def _dense(self, paid: Mapping[int, Floats], several: set[str]) -> bool:
        """Whether rewards were paid at several steps, so that they say more than an outcome."""
        if self.rewards.ndim == 1 and not (several and self.rows.row_rewards == "sum"):
            return False
        if self.rows.step_rewards is not None or any("reward" in s for s in self._given_steps()):
            return False
        if several and self.rows.row_rewards != "sum":
            return False
        return bool(several) or any(np.any(p[:-1]) for p in paid.values())

    def _given_steps(self) -> Iterator[Mapping[str, Any]]:
        for record in self.rows.records or ():
            yield from (record or {}).get("steps") or ()

    def _further(self, b: int) -> Record:
        record = dict((self.rows.records[b] or {}) if self.rows.records is not None else {})
        for name in _NOT_THE_RECORDS:
            if record.get(name) is not None:
                raise DataError(
                    f"the record of row {b} has a {name!r} of its own: the trainer's is used",
                    code="ACC875",
                    hint=f"Leave {name!r} out of the records",
                )
        return record

    def _counts(self, b: int) -> Ints:
        """Return the number of policy tokens of each step of a row."""
        where = np.flatnonzero(self.mask[b])
        spans = None if self.rows.spans is None else self.rows.spans[b]
        given = self.rows.records[b] if self.rows.records is not None else None
        steps = (given or {}).get("steps")
        if spans is not None:
            counts = _span_counts(b, spans, self.mask[b])
        elif steps and any("tokens" in s or "n_tokens" in s for s in steps):
            start = int(self.mask[b].argmax()) if self.rows.prompt_in_rows else 0
            ids = None if self.tokens is None else self.tokens[b]
            check_row(layout_of(given or {}, f"the record of row {b}"), b, self.mask[b], ids, start)
            counts = np.array([_size(s) for s in steps], np.int64)
        else:
            starts = np.flatnonzero(np.diff(where, prepend=-2) > 1)
            counts = np.diff(np.append(starts, where.size))
            counts = counts if counts.size else np.zeros(1, np.int64)
        named = {"records": steps, "states": self.rows.states, "step_rewards": self.rows.step_rewards}
        for name, value in named.items():
            self._check_steps(b, name, value if name == "records" or value is None else value[b], counts)
        return counts

    def _check_steps(self, b: int, name: str, value: Sequence[Any] | None, counts: Ints) -> None:
        if value is not None and len(value) != counts.size:
            how = "the mask has" if self.rows.spans is None else "`spans` gives"
            raise DataError(
                f"row {b} has {len(value)} {name} for {counts.size} steps, as {how} them",
                code="ACC875",
                hint="Give `spans`, or `n_tokens` in the records, where turns touch without a token between",
            )

    def _paid(self, b: int, counts: Ints) -> Floats:
        """Return the reward of each step of a row."""
        paid = np.zeros(counts.size)
        if self.rewards.ndim == 1:
            paid[-1] = self.rewards[b]
            return paid
        where = np.flatnonzero(self.mask[b])
        step_of = np.repeat(np.arange(counts.size), counts)
        at = np.flatnonzero(self.rewards[b])
        begun = np.searchsorted(where, at, side="right") - 1
        steps = step_of[np.maximum(begun, 0)] if where.size else np.zeros(at.size, np.int64)
        np.add.at(paid, steps, self.rewards[b][at])
        return paid

    def _steps(self, b: int, counts: Ints) -> list[Record]:
        rows = self.rows
        given = ((rows.records[b] or {}).get("steps") if rows.records is not None else None) or [{}] * len(
            counts
        )
        where = np.split(np.flatnonzero(self.mask[b]), np.cumsum(counts)[:-1])
        steps = []
        for t, at in enumerate(where):
            step = dict(given[t])
            step.pop("n_tokens", None)
            if self.tokens is not None:
                step["tokens"] = self.tokens[b][at]
            elif "tokens" not in step:
                step["n_tokens"] = int(at.size)
            step |= {name: values[b][at] for name, values in self.signals.items()}
            if rows.states is not None:
                step["state"] = rows.states[b][t]
            if rows.step_rewards is not None:
                step["reward"] = float(rows.step_rewards[b][t])
            steps.append(step)
        return steps


def _size(step: Mapping[str, Any]) -> int:
    return len(step["tokens"]) if step.get("tokens") is not None else int(step.get("n_tokens") or 0)


def _span_counts(b: int, spans: Any, mask: BoolArray) -> Ints:
    """Return the policy tokens of each span; every policy token must lie in one, in order."""
    given = as_numpy(spans)
    where = np.flatnonzero(mask)
    if given.shape == mask.shape:
        step = given[where]
        back = np.flatnonzero(np.diff(step) < 0)
        if (step < 0).any() or back.size:
            at = int(where[np.flatnonzero(step < 0)[0] if (step < 0).any() else back[0] + 1])
            raise DataError(f"row {b} position {at}: policy token in no step, or out of order", code="ACC875")
        return np.bincount(step.astype(np.int64), minlength=1)
    bounds = given.reshape(-1, 2)
    owner = np.full(mask.size, -1)
    last = 0
    for t, (start, end) in enumerate(bounds.tolist()):
        if not last <= start <= end <= mask.size:
            raise DataError(
                f"row {b} step {t}: span {start}..{end} overlaps another or leaves the row",
                code="ACC875",
                hint="Give half-open ranges of positions, in order",
            )
        owner[start:end] = t
        last = end
    bare = where[owner[where] < 0]
    if bare.size:
        raise DataError(f"row {b} position {int(bare[0])}: policy token in no span", code="ACC875")
    return np.bincount(owner[where], minlength=max(1, len(bounds)))


def _outcome(name: str, parts: list[tuple[int, float]], how: RowRewards) -> float | None:
    sums = np.array([s for _, s in parts])
    if how == "repeat" and not np.array_equal(np.isnan(sums), np.isnan(sums[:1]).repeat(sums.size)):
        raise _disagreement(name, parts)
    if how == "repeat" and np.nanmax(np.append(np.abs(sums - sums[0]), 0.0)) > 1e-6 * max(1, abs(sums[0])):
        raise _disagreement(name, parts)
    value = {"repeat": sums[0], "sum": sums.sum(), "last": sums[-1]}[how]
    return float(value) if np.isfinite(value) else None


def _disagreement(name: str, parts: list[tuple[int, float]]) -> DataError:
    shown = ", ".join(f"row {b}: {s:.6g}" for b, s in parts[:4])
    return DataError(
        f"rows of rollout {name!r} disagree on its reward: {shown}",
        code="ACC107",
        hint="Say row_rewards='sum' if each row has a reward of its own, 'last' if the last one counts",
    )


def _rewards(value: Any, mask: BoolArray) -> Floats:
    found = as_numpy(value).astype(np.float64)
    if found.shape not in (mask.shape, mask.shape[:1]):
        raise DataError(
            f"rewards have shape {found.shape}, not {mask.shape[:1]} or {mask.shape}", code="ACC875"
        )
    if np.isinf(found).any():
        row = int(np.argwhere(np.isinf(found))[0][0])
        raise DataError(f"a reward of row {row} is infinite", code="ACC202")
    return found


def _shaped(name: str, value: Any, mask: BoolArray) -> Array | None:
    if value is None:
        return None
    found = as_numpy(value)
    if found.shape != mask.shape:
        raise DataError(
            f"{name} has shape {found.shape}, the mask {mask.shape}",
            code="ACC875",
            hint=f"Give {name} of the response positions, one column a position of the mask",
        )
    return found


def _finite(name: str, value: Any, mask: BoolArray) -> Array:
    found = _shaped(name, value, mask)
    assert found is not None
    bad = np.argwhere(mask & ~np.isfinite(found))
    if bad.size:
        row, position = bad[0].tolist()
        raise DataError(
            f"{name} row {row} position {position} is {found[row, position]}",
            code="ACC875",
            hint=f"Mend {name}, or leave it out and use a method that does not need it",
        )
    return found.astype(np.float32)


def _scalar(value: Any) -> Any:
    plain = value.item() if hasattr(value, "item") and getattr(value, "size", 1) == 1 else value
    return plain if isinstance(plain, _SCALARS) else str(plain)
