"""Trees of rollouts that share beginnings: nodes, leaves, means below a node.

A node is a state reached by some steps; several rollouts that share their beginning share its
nodes.  Every rollout ends in a node, its leaf.  Each group has one root, the prompt.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from accredit.data import Batch
from accredit.errors import DataError, ParamError
from accredit.index.core import Index, first_seen
from accredit.index.fork_links import owner_S
from accredit.index.groups import FLAT
from accredit.index.segments import last_of_row, segment_sum
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["Forks", "Merge"]

Merge: TypeAlias = Literal["auto", "node", "links", "equal"]
_NONE = -1


class Forks:
    """The trees of a batch, one a group.

    Nodes 0 .. G-1 are the roots of the groups; the others are numbered in order of first appearance.
    Two steps are one node if they were taken at the same place of the tree:

    * ``node``: their `node` fields are equal, and their groups.
    * ``links``: `parent` and `fork_step` say that they are the same step (see `owner_S`).
    * ``equal``: state and action are equal, and so are all those before them.

    Args:
        index: of the batch.
        merge: what tells that steps are shared; ``auto`` = ``node`` where steps have such a field,
            else ``links`` where some rollout has a parent, else ``equal``.
        segments: join a node to the one above it while the same rollouts pass through both; then a
            node is all that lies between two forks.

    Raises:
        DataError: if a fork goes back to a step or a rollout that is not there.

    Example:
        >>> records = [
        ...     {"id": "a", "group": "g", "reward": 1, "steps": [{"action": "x"}, {"action": "y"}]},
        ...     {"id": "b", "group": "g", "reward": 0, "parent": "a", "fork_step": 1,
        ...      "steps": [{"action": "x"}, {"action": "z"}]},
        ... ]
        >>> forks = Forks(Index(Batch.from_records(records)))
        >>> forks.node_S.tolist(), forks.parent_N.tolist(), forks.leaves_N.tolist()
        ([1, 2, 1, 3], [-1, 0, 1, 1], [2, 2, 1, 1])
    """

    def __init__(self, index: Index, merge: Merge = "auto", *, segments: bool = False) -> None:
        if merge not in ("auto", "node", "links", "equal"):
            raise ParamError(f"merge must be one of auto, node, links, equal; got {merge!r}")
        self.index = index
        self.merge = _chosen(index.batch, merge)
        label_S = _LABELS[self.merge](index)
        n_groups = index.n_groups
        self.node_S: Ints = n_groups + first_seen(label_S)
        self.n_nodes = int(self.node_S.max(initial=n_groups - 1)) + 1
        self.parent_N = self._parents()
        if segments:
            self._join()

    def _parents(self) -> Ints:
        index = self.index
        above_S = np.empty(index.batch.n_steps, np.int64)
        above_S[1:] = self.node_S[:-1]
        first = index.position_S == 0
        above_S[first] = index.group_S[first]
        parent = np.full(self.n_nodes, _NONE, np.int64)
        parent[self.node_S] = above_S
        odd = parent[self.node_S] != above_S
        if odd.any():
            raise DataError(
                f"{index.where(int(np.flatnonzero(odd)[0]))} stands below another step than its like in "
                "another rollout",
                code="ACC503",
                hint="A node of the tree has one parent: check `node`, `parent` and `fork_step`",
            )
        return parent

    def _join(self) -> None:
        """Replace each run of nodes that the same rollouts pass by its first node."""
        whole = self.leaves_N
        above = self.parent_N
        inner = above >= self.index.n_groups
        joins = inner & (whole == whole[above])
        head = np.where(joins, above, np.arange(self.n_nodes))
        for _ in range(max(self.n_nodes, 1).bit_length()):
            head = head[head]
        G = self.index.n_groups
        kept = np.unique(head)  # the roots come first
        number = np.full(self.n_nodes, _NONE, np.int64)
        number[kept] = np.arange(kept.size)
        self.node_S = number[head[self.node_S]]
        parent = np.where(above[kept] >= 0, number[head[above[kept]]], _NONE)
        parent[:G] = _NONE
        self.parent_N, self.n_nodes = parent, int(kept.size)
        for name in ("leaf_R", "enters_S", "leaves_N", "depth_N", "tokens_N", "group_N", "levels"):
            self.__dict__.pop(name, None)

    # -- the shape --------------------------------------------------------------------------------

    @cached_property
    def leaf_R(self) -> Ints:
        """Node in which each rollout ends ``[R]``; the root where it has no step."""
        found = self.index.group_R.copy()
        rows, last = last_of_row(self.index.batch.step_start_R1)
        found[rows] = self.node_S[last]
        return found

    @cached_property
    def enters_S(self) -> BoolArray:
        """Steps that are the first of their rollout in their node ``[S]``."""
        found = np.ones(self.node_S.size, bool)
        found[1:] = self.node_S[1:] != self.node_S[:-1]
        found |= self.index.position_S == 0
        return found

    @cached_property
    def leaves_N(self) -> Ints:
        """Number of rollouts that pass through each node ``[N]``, all counted."""
        return self.sum_below(np.ones(len(self.index.batch))).astype(np.int64)

    @cached_property
    def depth_N(self) -> Ints:
        """Number of nodes above each node ``[N]``; 0 for roots."""
        found = np.zeros(self.n_nodes, np.int64)
        jump = np.where(self.parent_N < 0, np.arange(self.n_nodes), self.parent_N)
        step = (self.parent_N >= 0).astype(np.int64)
        found += step
        for _ in range(max(self.n_nodes, 1).bit_length()):
            found = found + found[jump]
            jump = jump[jump]
        return found

    @cached_property
    def group_N(self) -> Ints:
        """Group of each node ``[N]``."""
        found = np.arange(self.n_nodes)
        found[self.node_S] = self.index.group_S
        return found

    @cached_property
    def tokens_N(self) -> Floats:
        """Policy tokens of each node ``[N]``, those of one copy; 0 for roots.

        Copies of a shared node have the same tokens; the mean is taken over them.
        """
        index = self.index
        total = segment_sum(index.tokens_S, self.node_S, self.n_nodes)
        copies = np.maximum(segment_sum(self.enters_S, self.node_S, self.n_nodes), 1)
        return total / copies

    @cached_property
    def levels(self) -> tuple[Ints, ...]:
        """The nodes of each depth, roots first."""
        order = np.argsort(self.depth_N, kind="stable")
        cuts = np.cumsum(np.bincount(self.depth_N))[:-1]
        return tuple(np.split(order, cuts))

    # -- sums and means -----------------------------------------------------------------------------

    def sum_below(self, values_R: Floats) -> Floats:
        """Return the sum over the rollouts that pass through each node ``[N]``.

        Args:
            values_R: ``[R]``.
        """
        index = self.index
        entered = np.flatnonzero(self.enters_S)
        found = segment_sum(values_R[index.rollout_S[entered]], self.node_S[entered], self.n_nodes)
        found[: index.n_groups] += segment_sum(values_R, index.group_R, index.n_groups)
        return found

    def leaf_mean(self, values_R: Floats, counted_R: BoolArray) -> tuple[Floats, BoolArray]:
        """Return the mean over the counted rollouts below each node ``[N]``, and which nodes have one.

        Args:
            values_R: ``[R]``.
            counted_R: rollouts that count ``[R]``.
        """
        n = self.sum_below(counted_R.astype(np.float64))
        total = self.sum_below(np.where(counted_R, values_R, 0.0))
        return total / np.maximum(n, 1), n > 0

    def child_mean(
        self, values_R: Floats, counted_R: BoolArray, weights_N: Floats | None = None
    ) -> tuple[Floats, BoolArray]:
        """Return the mean of the children's values ``[N]``, bottom up, and which nodes have one.

        A counted rollout that ends in a node is one child of it, of the node's own weight.

        Args:
            values_R: ``[R]``.
            counted_R: rollouts that count ``[R]``.
            weights_N: positive weight of each node among its siblings; None = equal.
        """
        weight = np.ones(self.n_nodes) if weights_N is None else weights_N
        ended = self.leaf_R[counted_R]
        size = np.bincount(ended, weight[ended], self.n_nodes)
        total = np.bincount(ended, weight[ended] * values_R[counted_R], self.n_nodes)
        for nodes in self.levels[:0:-1]:
            up = nodes[size[nodes] > 0]
            above = self.parent_N[up]
            np.add.at(total, above, weight[up] * total[up] / size[up])
            np.add.at(size, above, weight[up])
        return np.divide(total, size, out=np.zeros(self.n_nodes), where=size > 0), size > 0

    def less_parent(self, values_N: Floats) -> Floats:
        """Return each node's value minus its parent's ``[N]``; exactly 0 for roots and where only
        rounding tells them apart, so that a later scale cannot make something of it.
        """
        above = values_N[self.parent_N]
        apart = values_N - above
        size = np.maximum(np.abs(values_N), np.abs(above))
        real = (self.parent_N >= 0) & (np.abs(apart) > FLAT * np.maximum(1.0, size))
        return np.where(real, apart, 0.0)

    def of_steps(self, values_N: Floats) -> Floats:
        """Return each step's node's value ``[S]``: every copy of a shared step carries it."""
        found: Floats = values_N[self.node_S]
        return found


def _chosen(batch: Batch, merge: Merge) -> Merge:
    if merge != "auto":
        return merge
    if batch.has("node_S"):
        return "node"
    return "links" if batch.has("parent_R") else "equal"


# -- what makes two steps one ---------------------------------------------------------------------


def _by_node(index: Index) -> Ints:
    column = index.batch.column("node_S")
    lacks = ~column.mask(index.batch.n_steps)
    if lacks.any():
        raise DataError(
            f"{index.where(int(np.flatnonzero(lacks)[0]))} has no `node`, which other steps have",
            code="ACC503",
            hint="Give `node` in every step, or drop it everywhere",
        )
    return _paired(index.group_S, np.unique(column.values, return_inverse=True)[1])


def _by_links(index: Index) -> Ints:
    return owner_S(index)


def _by_equal_paths(index: Index) -> Ints:
    """Return a label of the path of (state, action) that leads through each step ``[S]``."""
    batch = index.batch
    here = np.zeros(batch.n_steps, np.int64)
    if index.key is not None or batch.has("state_S"):
        here = index.state_S.astype(np.int64)
    action = batch.columns.get("action_S")
    if action is not None:
        there = action.mask(batch.n_steps)
        here = _paired(here, np.where(there, action.values.astype(np.int64) + 1, 0))
    else:
        here = _paired(here, np.arange(here.size))  # what was done is unknown: nothing is shared
    label = np.empty(batch.n_steps, np.int64)
    taken = 0
    for t in range(int(index.steps_R.max(initial=0))):
        steps = batch.step_start_R1[:-1][index.steps_R > t] + t
        above = index.group_S[steps] if t == 0 else label[steps - 1]
        label[steps] = taken + _paired(above, here[steps])
        taken = int(label[steps].max()) + 1
    return label


def _paired(a: Ints, b: Ints) -> Ints:
    """Return a dense code of each pair of codes."""
    wide = a.astype(np.int64) * (int(b.max(initial=0)) + 1) + b
    found: Ints = np.unique(wide, return_inverse=True)[1].reshape(-1)
    return found


_LABELS = {"node": _by_node, "links": _by_links, "equal": _by_equal_paths}
