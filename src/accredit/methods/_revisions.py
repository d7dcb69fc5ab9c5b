"""Revisions of failed rollouts: how many succeed, and what the smallest of these changed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from accredit.data.values import is_number
from accredit.errors import DataError
from accredit.index import Index
from accredit.index.alignment import Alignment, aligned
from accredit.typing import BoolArray, Ints

__all__ = ["Correction", "Unit", "corrections"]


class Unit(Enum):
    """What is compared."""

    TOKEN = "tokens"
    STEP = "actions"


@dataclass(frozen=True, slots=True)
class Correction:
    """What came of a failed rollout's revisions.

    Args:
        share: of them that succeed, in [0, 1]; without revisions the likeness to a success.
        alignment: of the rollout with the successful one of fewest edits; None = not known.
        unit: of the alignment.
    """

    share: float
    alignment: Alignment | None
    unit: Unit


def corrections(
    index: Index,
    wrong: Ints,
    right: BoolArray,
    mode: str,
    align: str,
    success_at: float,
    left_out: Counter[str],
) -> Iterator[tuple[int, Correction]]:
    """Yield the correction of each failed rollout that has one.

    Args:
        index: of the batch.
        wrong: the failed rollouts.
        right: rollouts that succeeded ``[R]``.
        mode: ``revision`` or ``implicit``.
        align: ``token``, ``step`` or ``auto``.
        success_at: reward from which on a revision succeeds.
        left_out: counts the others, by reason.

    Raises:
        DataError: for a revision that is none.
    """
    texts = _Texts(index, align)
    for r in wrong.tolist():
        if mode == "implicit":
            found = _nearest(index, texts, r, right, left_out)
        else:
            found = _revised(index, texts, r, success_at, left_out)
        if found is not None:
            yield r, found


class _Texts:
    """Rollouts as sequences of tokens or of actions.

    Args:
        index: of the batch.
        align: ``token``, ``step`` or ``auto``.
    """

    def __init__(self, index: Index, align: str) -> None:
        self._index = index
        self.units = {"token": [Unit.TOKEN], "step": [Unit.STEP]}.get(align, [Unit.TOKEN, Unit.STEP])

    def of(self, r: int, unit: Unit) -> list[Hashable] | None:
        """Return the sequence of a rollout; None where a part of it is not recorded."""
        index = self._index
        column = index.batch.columns.get("token_T" if unit is Unit.TOKEN else "action_S")
        steps = slice(*index.batch.step_start_R1[r : r + 2].tolist())
        if column is None or not column.given(steps):
            return None
        if unit is Unit.TOKEN:
            found: list[Hashable] = column.values[slice(*index.token_start_R1[r : r + 2])].tolist()
            return found or None
        return [str(column.item(s)) for s in range(steps.start, steps.stop)]


def _nearest(
    index: Index, texts: _Texts, r: int, right: BoolArray, left_out: Counter[str]
) -> Correction | None:
    """Return the likeness of rollout r to the nearest success of its group, the first in a tie."""
    best: Correction | None = None
    for unit in texts.units:
        own = texts.of(r, unit)
        for i in np.flatnonzero(right & (index.group_R == index.group_R[r])).tolist():
            other = texts.of(i, unit)
            if own is None or other is None:
                continue
            found = aligned(own, other)
            if best is None or found.similarity > best.share:
                best = Correction(found.similarity, found, unit)
        if best is not None:
            return best
    left_out["no_reference"] += 1
    return None


def _revised(
    index: Index, texts: _Texts, r: int, success_at: float, left_out: Counter[str]
) -> Correction | None:
    """Return what the verified revisions of rollout r say; None where there is none."""
    told = _listed(index, r)
    if not told:
        left_out["no_revision"] += 1
        return None
    saved, verified = [], 0
    for one in told:
        reward = _reward(index, r, one)
        if reward is None:
            continue
        verified += 1
        alignment, unit = _compared(index, texts, r, one)
        same = alignment is not None and alignment.distance == 0
        if reward >= success_at and not same:
            saved.append(Correction(0.0, alignment, unit))
    if not verified:
        left_out["unverified"] += 1
        return None
    if not saved:
        return Correction(0.0, None, Unit.STEP)
    best = min(saved, key=lambda c: math.inf if c.alignment is None else c.alignment.distance)
    return Correction(len(saved) / verified, best.alignment, best.unit)


def _compared(index: Index, texts: _Texts, r: int, one: dict[str, Any]) -> tuple[Alignment | None, Unit]:
    for unit in texts.units:
        own = texts.of(r, unit)
        if one.get(unit.value) is not None and own is not None:
            return aligned(own, _sequence(index, r, one[unit.value], unit)), unit
    return None, Unit.STEP


def _sequence(index: Index, r: int, told: Any, unit: Unit) -> list[Hashable]:
    """Return the tokens (flat, or by step) or actions of a revision."""
    if not isinstance(told, Sequence) or isinstance(told, str):
        raise _odd(index, r, told)
    if unit is Unit.STEP:
        return [str(action) for action in told]
    flat = [x for part in told for x in (part if isinstance(part, list | tuple) else [part])]
    if not all(isinstance(x, int) and not isinstance(x, bool) for x in flat):
        raise _odd(index, r, told)
    return flat


def _listed(index: Index, r: int) -> list[dict[str, Any]]:
    column = index.batch.column("revision_R")
    if not column.given(r):
        return []
    told = column.item(r)
    found = told if isinstance(told, list) else [told]
    if not all(isinstance(one, dict) for one in found):
        raise _odd(index, r, told)
    return found


def _reward(index: Index, r: int, one: dict[str, Any]) -> float | None:
    """Return the reward of a revision: 0 where it was cut off, None where it was not verified."""
    told = one.get("reward")
    if one.get("truncated"):
        return 0.0
    if told is None:
        return None
    if not is_number(told):
        raise _odd(index, r, one)
    return float(told)


def _odd(index: Index, r: int, got: Any) -> DataError:
    return DataError(
        f"rollout {index.batch.ids[r]!r} has the revision {repr(got)[:60]}",
        code="ACC110",
        hint='Give {"reward": number or null, "tokens": [...]} (or "actions"), or a list of such',
    )
