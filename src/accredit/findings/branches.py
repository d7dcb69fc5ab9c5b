"""Checks of branches: parents, forks and what they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from accredit.data import Finding
from accredit.findings.scene import Check, Scene, named
from accredit.typing import BoolArray, Ints, Scalar

__all__ = ["BRANCH_KINDS", "CHECKS", "circular", "parent_positions"]

BRANCH_KINDS = frozenset({"fork", "subagent", "compaction", "verifier", "retry", "main"})
_NONE, _MISSING = -1, -2


def parent_positions(scene: Scene) -> Ints:
    """Return the position of each rollout's parent ``[R]``; -1 = it has none, -2 = not in the batch.

    Args:
        scene: the batch.
    """
    found = np.full(len(scene.batch), _NONE, np.int64)
    column = scene.batch.columns.get("parent_R")
    if column is None:
        return found
    known: Mapping[str, int] = scene.batch.rollout_of
    words: tuple[Scalar, ...] = column.words or ()
    position = np.array([known.get(str(w), _MISSING) for w in words] or [_MISSING], np.int64)
    there = column.mask(len(scene.batch))
    found[there] = position[column.values[there]]
    return found


def _links(scene: Scene) -> Iterator[Finding]:
    if not scene.batch.has("parent_R"):
        return
    parent_R = parent_positions(scene)
    yield from scene.rollouts("ACC501", parent_R == _MISSING, "{n} with a parent that is not there")
    yield from scene.rollouts("ACC502", circular(parent_R), "{n} whose parents go in a circle")
    has = parent_R >= 0
    apart = has & (scene.index.group_R != scene.index.group_R[parent_R])
    yield from scene.rollouts("ACC504", apart, "{n} with a parent in another group")


def circular(parent_R: Ints) -> BoolArray:
    """Return rollouts from which following parents never ends ``[R]``, by pointer doubling: O(R log R).

    Args:
        parent_R: position of each rollout's parent; negative = none.

    Example:
        >>> circular(np.array([-1, 0, 3, 2])).tolist()
        [False, False, True, True]
    """
    end = parent_R.size
    jump = np.append(np.where(parent_R < 0, end, parent_R), end)
    for _ in range(max(end, 1).bit_length()):
        jump = jump[jump]
    found: BoolArray = jump[:end] != end
    return found


def _forks(scene: Scene) -> Iterator[Finding]:
    column = scene.batch.columns.get("fork_step_R")
    forked = scene.present("fork_step_R")
    branch = scene.present("parent_R")
    yield from scene.rollouts("ACC506", branch & ~forked, "{n} with a parent and no fork step")
    if column is None:
        return
    yield from scene.rollouts("ACC507", forked & ~branch, "{n} with a fork step and no parent")
    parent_R = parent_positions(scene)
    both = forked & (parent_R >= 0)
    step_R = column.values
    steps_R = scene.index.steps_R
    room_R = np.where(_is_fork(scene), np.minimum(steps_R[parent_R], steps_R), steps_R[parent_R])
    bad = forked & ((step_R < 0) | (step_R != np.floor(step_R))) | (both & (step_R > room_R))
    yield from scene.rollouts(
        "ACC503", bad, f"{{n}} with a fork step that cannot be{_worst(scene, bad, room_R)}"
    )
    yield from _shared(scene, parent_R, both & ~bad & _is_fork(scene))


def _worst(scene: Scene, bad: BoolArray, room_R: Ints) -> str:
    if not bad.any():
        return ""
    r = int(np.argmax(bad))
    step = float(scene.batch.column("fork_step_R").values[r])
    return f": rollout {named(scene.batch.ids[r])} forks at step {step:g}, allowed 0 to {int(room_R[r])}"


def _is_fork(scene: Scene) -> BoolArray:
    """Return branches that are forks: said so, or of no kind but with a fork step ``[R]``."""
    column = scene.batch.columns.get("branch_kind_R")
    forked = scene.present("fork_step_R")
    if column is None:
        return forked
    there = column.mask(len(scene.batch))
    return np.where(there, column.decoded() == "fork", forked).astype(bool)


def _shared(scene: Scene, parent_R: Ints, judged_R: BoolArray) -> Iterator[Finding]:
    action = scene.batch.columns.get("action_S")
    if action is None or not judged_R.any():
        return
    start_R1, index = scene.batch.step_start_R1, scene.index
    shared_R = np.where(judged_R, scene.batch.column("fork_step_R").values, 0).astype(np.int64)
    copied_S = index.position_S < shared_R[index.rollout_S]
    own = np.flatnonzero(copied_S)
    other = start_R1[parent_R[index.rollout_S[own]]] + index.position_S[own]
    differs = action.values[own] != action.values[other]
    mask = np.zeros(len(scene.batch), bool)
    mask[index.rollout_S[own[differs]]] = True
    yield from scene.rollouts("ACC508", mask, "{n} with other actions than their parent before the fork step")


def _kinds(scene: Scene) -> Iterator[Finding]:
    column = scene.batch.columns.get("branch_kind_R")
    if column is None:
        return
    strange = [i for i, word in enumerate(column.words or ()) if word not in BRANCH_KINDS]
    mask = np.isin(column.values, strange) & column.mask(len(scene.batch))
    shown = ", ".join(named((column.words or ())[i]) for i in strange[:3])
    yield from scene.rollouts("ACC505", mask, f"{{n}} with an unknown branch kind ({shown})")


CHECKS: tuple[Check, ...] = (_links, _forks, _kinds)
