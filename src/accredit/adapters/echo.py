"""Are these the tokens that the policy sampled?  Recorded rollouts against a trainer's tensors.

A batch that was shifted, re-tokenised, masked differently, or that lost or doubled rows trains
without an error message: the advantages just land on the wrong tokens.  Every adapter calls this.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import accredit as ac
from accredit.adapters.arrays import as_mask, as_numpy
from accredit.errors import DataError
from accredit.typing import Array, BoolArray, Ints

__all__ = ["Layout", "check_echo", "check_ids", "check_row", "layout_of", "match_rows", "recorded_rows"]


class Layout(NamedTuple):
    """What one row must hold.

    Args:
        name: rollout (and row) in words.
        ids: expected token ids ``[n]``; -1 where the record does not know them.
        policy: which of them the policy sampled ``[n]``.
        whole: whether tokens between the policy's are known too, so that positions can be compared.
        step: 0-based step of each position ``[n]``.
    """

    name: str
    ids: Ints
    policy: BoolArray
    whole: bool
    step: Ints


def layout_of(record: Mapping[str, Any], name: str) -> Layout:
    """Return the layout that a native record prescribes for its row of responses.

    The first step's context is the prompt and no part of the response; the context of later steps
    lies between the answers.

    Args:
        record: with ``steps``.
        name: of the rollout, for messages.
    """
    ids: list[Array] = []
    policy: list[Array] = []
    steps: list[Array] = []
    whole = True
    for t, step in enumerate(record.get("steps") or ()):
        between = step.get("context_tokens")
        if t and between is None:
            whole = False
        elif t:
            ids.append(np.asarray(between, np.int64))
            policy.append(np.zeros(len(between), bool))
            steps.append(np.full(len(between), t))
        answer = _answer(step)
        ids.append(answer)
        policy.append(np.ones(answer.size, bool))
        steps.append(np.full(answer.size, t))
    return Layout(name, _joined(ids), _joined(policy).astype(bool), whole, _joined(steps))


def _answer(step: Mapping[str, Any]) -> Ints:
    if step.get("tokens") is not None:
        return np.asarray(step["tokens"], np.int64)
    return np.full(int(step.get("n_tokens") or 0), -1, np.int64)


def _joined(parts: list[Array]) -> Ints:
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)


def check_row(layout: Layout, row: int, mask: BoolArray, tokens: Ints | None, start: int = 0) -> None:
    """Check one row of a trainer's tensors against what the record prescribes.

    Args:
        layout: of the row.
        row: its number, for messages.
        mask: ``[length]``, True at policy tokens.
        tokens: ids ``[length]``; None = only the mask is compared.
        start: position at which the first answer begins.

    Raises:
        DataError: naming row, position, what was expected and what was found.
    """
    where = np.flatnonzero(mask)
    if layout.whole:
        _check_positions(layout, row, mask, start)
        place = start + np.arange(layout.ids.size)
    else:
        _check_count(layout, row, where)
        place = np.zeros(layout.ids.size, np.int64)
        place[layout.policy] = where
    if tokens is None:
        return
    known = (layout.ids >= 0) & (layout.policy | layout.whole)
    off = np.flatnonzero(known & (tokens[place] != layout.ids))
    if off.size:
        p = int(off[0])
        what = "token" if layout.policy[p] else "observation token"
        raise DataError(
            f"row {row} position {int(place[p])}: expected {what} {int(layout.ids[p])} of "
            f"{layout.name} step {int(layout.step[p])}, got {int(tokens[place[p]])}",
            code="ACC870",
            hint="Hand over the sampled ids as they are: no shift, no re-tokenised text",
        )


def _check_positions(layout: Layout, row: int, mask: BoolArray, start: int) -> None:
    end = start + layout.policy.size
    expected = np.zeros(max(mask.size, end), bool)
    expected[start:end] = layout.policy
    got = np.zeros_like(expected)
    got[: mask.size] = mask
    off = np.flatnonzero(expected != got)
    if off.size:
        raise _mask_error(layout, row, int(off[0]), expected=bool(expected[off[0]]))


def _check_count(layout: Layout, row: int, where: Ints) -> None:
    n = int(layout.policy.sum())
    if where.size != n:
        at = int(where[n]) if where.size > n else (int(where[-1]) + 1 if where.size else 0)
        raise _mask_error(layout, row, at, expected=where.size < n, counts=(n, int(where.size)))


def _mask_error(
    layout: Layout, row: int, position: int, *, expected: bool, counts: tuple[int, int] | None = None
) -> DataError:
    words = ("a policy token", "none") if expected else ("none", "a policy token")
    tail = f" ({counts[0]} policy tokens were recorded, the mask has {counts[1]})" if counts else ""
    return DataError(
        f"row {row} position {position}: expected {words[0]} of {layout.name}, the mask says "
        f"{words[1]}{tail}",
        code="ACC871",
        hint="The mask must be 1 exactly at the sampled tokens, in their order",
    )


def check_ids(expected: Any, got: Any, name: str) -> None:
    """Check one list of token ids against the recorded one (objects with token lists).

    Args:
        expected: recorded ids.
        got: ids that the trainer holds.
        name: of the place, for messages.

    Raises:
        DataError: naming the first position that differs.

    Example:
        >>> check_ids([5, 6], [5, 6], "rollout 'a' step 0")
    """
    left, right = as_numpy(expected).ravel(), as_numpy(got).ravel()
    shared = min(left.size, right.size)
    off = np.flatnonzero(left[:shared] != right[:shared])
    if not off.size and left.size == right.size:
        return
    at = int(off[0]) if off.size else shared
    shown = [str(int(side[at])) if at < side.size else "the end" for side in (left, right)]
    raise DataError(
        f"{name} position {at}: expected token {shown[0]}, got {shown[1]}",
        code="ACC870",
        hint="Hand over the sampled ids as they are: no shift, no re-tokenised text",
    )


def match_rows(
    recorded: Iterable[tuple[str, int]], got: Sequence[tuple[str, int]], *, whole: bool = True
) -> list[int]:
    """Return for each trainer row the number of its record.

    Args:
        recorded: rollout and row number of each record, in order.
        got: the same of each row of the trainer.
        whole: every record must have a row.

    Raises:
        DataError: for a row that comes twice, that no record knows, or a record without a row.
    """
    known = {key: i for i, key in enumerate(recorded)}
    seen: dict[tuple[str, int], int] = {}
    for row, key in enumerate(got):
        if key in seen:
            raise DataError(
                f"rows {seen[key]} and {row} are both row {key[1]} of rollout {key[0]!r}",
                code="ACC873",
                hint="Give each row once, or each its own number within its rollout",
            )
        if key not in known:
            raise DataError(
                f"row {row} is row {key[1]} of rollout {key[0]!r}, which was not recorded",
                code="ACC873",
                hint="Give the ids under which the rollouts were recorded",
            )
        seen[key] = row
    lost = [key for key in known if key not in seen] if whole else []
    if lost:
        raise DataError(
            f"row {lost[0][1]} of rollout {lost[0][0]!r} is missing ({len(lost)} rows in all)",
            code="ACC872",
            hint="Hand over every recorded row, or say whole=False for a part of them",
        )
    return [known[key] for key in got]


def check_echo(
    recorded: ac.Batch,
    *,
    mask: Any,
    tokens: Any = None,
    rollout: Sequence[Hashable],
    order: Sequence[int] | None = None,
    keep: Sequence[bool] | None = None,
    whole: bool = True,
    prompt_in_rows: bool = False,
) -> None:
    """Check that a trainer's padded rows are the rollouts that were recorded, token by token.

    Args:
        recorded: the rollouts as they were sampled.
        mask: ``[rows, length]``, 1 at policy tokens.
        tokens: response ids ``[rows, length]``; None = only masks are compared.
        rollout: rollout id of each row.
        order: number of each row within its rollout, from 0; None = all 0.
        keep: False marks rows of padding, which no record prescribes.
        whole: every recorded row must be there.
        prompt_in_rows: rows begin with the prompt, so answers begin at the mask's first one.

    Raises:
        DataError: ACC870 another token id, ACC871 another mask, ACC872 a row is missing, ACC873 a
            row comes twice or is unknown; with row, position, expected and got.

    Example:
        >>> batch = ac.Batch.from_records([{"id": "a", "group": "g", "steps": [{"tokens": [5, 6]}]}])
        >>> check_echo(batch, mask=[[1, 1, 0]], tokens=[[5, 6, 0]], rollout=["a"])
        >>> check_echo(batch, mask=[[1, 1, 0]], tokens=[[5, 7, 0]], rollout=["a"])
        Traceback (most recent call last):
        accredit.errors.DataError: ACC870: row 0 position 1: expected token 6 of rollout 'a' step 0, got 7...
    """
    seen = as_mask(mask)
    ids = None if tokens is None else as_numpy(tokens)
    kept = [b for b in range(len(seen)) if keep is None or keep[b]]
    layouts = list(_layouts(recorded))
    numbers = [0] * len(seen) if order is None else [int(o) for o in order]
    got = [(str(rollout[b]), numbers[b]) for b in kept]
    for b, i in zip(kept, match_rows((key for key, _ in layouts), got, whole=whole), strict=True):
        start = int(seen[b].argmax()) if prompt_in_rows else 0
        check_row(layouts[i][1], b, seen[b], None if ids is None else ids[b], start)


def _layouts(recorded: ac.Batch) -> Iterator[tuple[tuple[str, int], Layout]]:
    sizes = np.diff(recorded.token_start_S1).tolist()
    for name, number, first, record in recorded_rows(recorded):
        steps = [{"n_tokens": sizes[first + t]} | step for t, step in enumerate(record["steps"])]
        yield (name, number), layout_of({"steps": steps}, f"rollout {name!r}")


def recorded_rows(recorded: ac.Batch) -> Iterator[tuple[str, int, int, Mapping[str, Any]]]:
    """Yield rollout id, number within the rollout, first step and record of each recorded row."""
    numbers: dict[str, int] = {}
    first = 0
    for record in recorded.records():
        name = str(record["id"])
        number = numbers[name] = numbers.get(name, -1) + 1
        yield name, number, first, record
        first += len(record["steps"])
