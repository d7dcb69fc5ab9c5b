"""Which groups deserve a look, which rollout is looked at, and which segments of it may be proposed."""

from __future__ import annotations

from typing import Any

import numpy as np

from accredit.errors import DataError
from accredit.index.core import Index
from accredit.index.segments import segment_sum
from accredit.typing import BoolArray, Ints

__all__ = ["eligible_R", "faulty_S", "proposals_of", "segment_fault", "targets"]


def eligible_R(
    index: Index,
    counted_R: BoolArray,
    success_at: float,
    min_success: int = 1,
    max_success: int | None = None,
) -> BoolArray:
    """Return the rollouts of groups with some successes, few of them, and a failure ``[R]``.

    ``min_success <= successes <= max_success``, of G counted rollouts; ``max_success`` is
    ``max(1, floor(3 G / 8))`` if it is None, and never more than G - 1.

    Args:
        index: of the batch.
        counted_R: rollouts that count ``[R]``.
        success_at: score from which on a rollout is a success.
        min_success: fewest.
        max_success: most.
    """
    size = segment_sum(counted_R, index.group_R, index.n_groups)
    good = segment_sum(counted_R & (index.score_R >= success_at), index.group_R, index.n_groups)
    most = np.maximum(1, np.floor(3 * size / 8)) if max_success is None else np.full(size.size, max_success)
    fit = (good >= min_success) & (good <= np.minimum(most, size - 1))
    found: BoolArray = fit[index.group_R] & counted_R
    return found


def targets(index: Index, eligible: BoolArray, success_at: float) -> Ints:
    """Return the rollout to look at in each eligible group: its shortest success, the first in a tie.

    Args:
        index: of the batch.
        eligible: counted rollouts of eligible groups ``[R]``.
        success_at: score from which on a rollout is a success.
    """
    good = np.flatnonzero(eligible & (index.score_R >= success_at))
    order = good[np.lexsort((good, index.steps_R[good], index.group_R[good]))]
    found: Ints = order[np.unique(index.group_R[order], return_index=True)[1]]
    return np.sort(found)


def faulty_S(index: Index) -> BoolArray:
    """Return the steps that the environment or their metadata call malformed or failed ``[S]``.

    ``tool`` is ``error``, or ``metadata`` says ``valid: false`` or has an ``error``.  What says nothing
    is fine.

    Args:
        index: of the batch.
    """
    found = np.zeros(index.batch.n_steps, bool)
    tool, metadata = index.batch.columns.get("tool_S"), index.batch.columns.get("metadata_S")
    if tool is not None and tool.words is not None:
        found |= tool.mask(found.size) & (tool.decoded() == "error")
    if metadata is not None:
        told = metadata.mask(found.size)
        for s in np.flatnonzero(told).tolist():
            found[s] |= _failed(metadata.item(s))
    return found


def _failed(metadata: Any) -> bool:
    return isinstance(metadata, dict) and (metadata.get("valid") is False or bool(metadata.get("error")))


def segment_fault(index: Index, faulty: BoolArray, r: int, start: Any, end: Any, max_length: int) -> str:
    """Return why steps ``start .. end`` of rollout r may not be proposed; "" if they may.

    ``0 <= start <= end <= T - 2``, at most ``max_length`` steps, none of them faulty.

    Args:
        index: of the batch.
        faulty: see `faulty_S`.
        r: the rollout.
        start: first step, 0-based.
        end: last step.
        max_length: steps.
    """
    for name, at in (("start", start), ("end", end)):
        if isinstance(at, bool) or not isinstance(at, int | np.integer):
            return f"{name} must be a step number, got {repr(at)[:40]}"
    last = int(index.steps_R[r]) - 2
    if not 0 <= start <= end:
        return f"0 <= start <= end must hold, got {start} and {end}"
    if end > last:
        return f"the last step that may be proposed is {last}, got {end}: its outcome is known"
    if end - start + 1 > max_length:
        return f"at most {max_length} steps may be proposed, got {end - start + 1}"
    first = int(index.batch.step_start_R1[r])
    wrong = np.flatnonzero(faulty[first + start : first + end + 1])
    return f"the action of step {start + int(wrong[0])} failed" if wrong.size else ""


def proposals_of(index: Index, r: int) -> list[dict[str, Any]]:
    """Return what `proposal` says of rollout r: none, one, or a list of them.

    Args:
        index: of a batch with the column.
        r: the rollout.

    Raises:
        DataError: if it is something else.
    """
    column = index.batch.column("proposal_R")
    if not column.given(r):
        return []
    told = column.item(r)
    found = told if isinstance(told, list) else [told]
    if not all(isinstance(one, dict) for one in found):
        raise DataError(
            f"rollout {index.batch.ids[r]!r} has the proposal {repr(told)[:60]}",
            hint='Give {"start": step, "end": step, "pre": [...], "post": [...]}, or a list of these',
        )
    return found
