"""Which steps are copies of a parent's: what `parent` and `fork_step` say."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from accredit.data import Batch, Column
from accredit.errors import DataError
from accredit.index.core import Index, first_seen
from accredit.typing import BoolArray, Ints

__all__ = ["Roots", "fork_parents", "fork_step_R", "owner_S", "root_R", "tree_R"]

Roots: TypeAlias = Literal["group", "links"]
_NONE = -1


def owner_S(index: Index) -> Ints:
    """Return the step that each step is a copy of ``[S]``; its own number where it is no copy.

    ``owner(i, t) = (i, t)`` if rollout i has no parent or t >= its fork step, else
    ``owner(parent_i, t)``: forks of forks come out right.

    Args:
        index: of the batch.

    Raises:
        DataError: if a parent is not there or is in another group, parents go in a circle, or a fork
            step lies beyond the parent's end.
    """
    parent_R = fork_parents(index)
    forked = np.flatnonzero(parent_R >= 0)
    owner = np.arange(index.batch.n_steps)
    if not forked.size:
        return owner
    fork_R = fork_step_R(index, parent_R)
    _refuse_odd_forks(index, parent_R, fork_R, forked)
    copied = (parent_R[index.rollout_S] >= 0) & (index.position_S < fork_R[index.rollout_S])
    start = index.batch.step_start_R1
    owner[copied] = start[parent_R[index.rollout_S[copied]]] + index.position_S[copied]
    for _ in range(max(parent_R.size, 1).bit_length()):
        owner = owner[owner]
    return owner


def fork_parents(index: Index) -> Ints:
    """Return the position of the rollout that each fork left ``[R]``; -1 where it is no fork.

    A branch of another kind (a sub-agent, a compaction) has a parent, but shares no steps with it.

    Args:
        index: of the batch.

    Raises:
        DataError: if a fork's parent is not there, or is in another group.
    """
    batch = index.batch
    found = np.full(len(batch), _NONE, np.int64)
    parent, fork = batch.columns.get("parent_R"), batch.columns.get("fork_step_R")
    if parent is None or fork is None:
        return found
    forks = parent.mask(len(batch)) & fork.mask(len(batch)) & _kind_is_fork(batch)
    for r in np.flatnonzero(forks).tolist():
        name = str(parent.item(r))
        above = batch.rollout_of.get(name, _NONE)
        if above < 0 or index.group_R[above] != index.group_R[r]:
            where = "is not in the batch" if above < 0 else "is in another group"
            raise DataError(
                f"rollout {batch.ids[r]!r} forks from {name!r}, which {where}",
                code="ACC501" if above < 0 else "ACC504",
                hint="Give the parent too, or drop `parent` and `fork_step`",
            )
        found[r] = above
    return found


def fork_step_R(index: Index, parent_R: Ints) -> Ints:
    """Return the first step of its own of each fork ``[R]``; -1 where it is no fork.

    Args:
        index: of the batch.
        parent_R: of `fork_parents`.
    """
    column = index.batch.columns.get("fork_step_R")
    if column is None:
        return np.full(parent_R.size, _NONE, np.int64)
    return np.where(parent_R >= 0, column.values, _NONE).astype(np.int64)


def tree_R(index: Index, roots: Roots = "links") -> Ints:
    """Return the tree of each rollout ``[R]``, dense, in order of first appearance.

    Rollouts of a group whose `tree` fields are equal are one tree.  Where no rollout of the batch has
    such a field, a tree is a group; with ``links`` it is a rollout that is no fork and all that forked
    from it, in groups where some rollout forked.

    Args:
        index: of the batch.
        roots: ``group`` or ``links``.

    Raises:
        DataError: if a fork's parent is not there, or is in another group.
    """
    group = index.group_R
    column = index.batch.columns.get("tree_R")
    if column is not None:
        label = np.where(column.mask(group.size), column.values.astype(np.int64) + 1, 0)
        return first_seen(group * (int(label.max(initial=0)) + 1) + label)
    if roots == "group":
        return group
    forked = np.bincount(group, fork_parents(index) >= 0, index.n_groups) > 0
    return first_seen(np.where(forked[group], index.n_groups + root_R(index), group))


def root_R(index: Index) -> Ints:
    """Return the position of the rollout that each goes back to, itself no fork ``[R]``.

    Args:
        index: of the batch.

    Raises:
        DataError: if a fork's parent is not there, or is in another group.
    """
    parent = fork_parents(index)
    top = np.where(parent < 0, np.arange(parent.size), parent)
    for _ in range(max(parent.size, 1).bit_length()):
        top = top[top]
    return top


def _kind_is_fork(batch: Batch) -> BoolArray:
    column: Column | None = batch.columns.get("branch_kind_R")
    if column is None:
        return np.ones(len(batch), bool)
    told = column.mask(len(batch))
    found: BoolArray = ~told | (column.decoded() == "fork").astype(bool)
    return found


def _refuse_odd_forks(index: Index, parent_R: Ints, fork_R: Ints, forked: Ints) -> None:
    room = np.minimum(index.steps_R[parent_R[forked]], index.steps_R[forked])
    bad = forked[(fork_R[forked] < 0) | (fork_R[forked] > room)]
    if bad.size:
        r = int(bad[0])
        raise DataError(
            f"rollout {index.batch.ids[r]!r} forks at step {int(fork_R[r])} of "
            f"{index.batch.ids[int(parent_R[r])]!r}, which has {int(index.steps_R[parent_R[r]])} steps",
            code="ACC503",
            hint="`fork_step` is the first step of its own; the steps before it are the parent's",
        )
    end = parent_R.size
    jump = np.append(np.where(parent_R < 0, end, parent_R), end)
    for _ in range(max(end, 1).bit_length()):
        jump = jump[jump]
    if (jump[:end] != end).any():
        r = int(np.flatnonzero(jump[:end] != end)[0])
        raise DataError(
            f"the parents of rollout {index.batch.ids[r]!r} go in a circle",
            code="ACC502",
            hint="A fork's parent began before it",
        )
