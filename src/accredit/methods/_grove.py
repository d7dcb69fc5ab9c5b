"""The trees of a batch as the tree methods see them, and what they decide about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from accredit.data import Finding, Member
from accredit.index import Forks, GroupStats, Index, tree_R
from accredit.methods._params import choice, truncated_choice
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["Grove", "TreeParams", "grown"]


@dataclass(frozen=True, slots=True)
class TreeParams:
    """What every tree method decides about the trees themselves."""

    truncated: str = truncated_choice()
    merge: str = choice(
        "auto",
        "node",
        "links",
        "equal",
        doc="steps are shared by `node`, by `parent` and `fork_step`, or where state and action and all "
        "before them are equal; auto = the first of these that the rollouts have",
    )
    nodes: str = choice(
        "segment", "step", doc="a node is all that lies between two forks, or one step; `node` fields decide"
    )
    trees: str = choice(
        "group", "links", doc="without `tree` fields: one tree a task; or one a rollout that is no fork"
    )


@dataclass(frozen=True)
class Grove:
    """The trees of a batch and the outcomes of their leaves.

    Args:
        index: of the batch.
        forks: its trees; each has one root.
        outcome_R: score of each rollout ``[R]``, reward units.
        counted_R: rollouts that count ``[R]``; the others are in no mean and get 0.
    """

    index: Index
    forks: Forks
    outcome_R: Floats
    counted_R: BoolArray

    @property
    def tree_R(self) -> Ints:
        """Tree of each rollout ``[R]``; its root is the node of that number."""
        return self.forks.index.group_R

    @cached_property
    def in_tree(self) -> GroupStats:
        """The outcomes by tree."""
        return GroupStats(self.outcome_R, self.tree_R, self.forks.index.n_groups, self.counted_R)

    @cached_property
    def in_prompt(self) -> GroupStats:
        """The outcomes by task."""
        return GroupStats(self.outcome_R, self.index.group_R, self.index.n_groups, self.counted_R)

    @cached_property
    def prompt_N(self) -> Ints:
        """Task of each node ``[N]``."""
        found = np.zeros(self.forks.index.n_groups, np.int64)
        found[self.tree_R] = self.index.group_R
        return found[self.forks.group_N]

    @cached_property
    def leaves_N(self) -> Floats:
        """Number of counted rollouts through each node ``[N]``."""
        return self.forks.sum_below(self.counted_R.astype(np.float64))

    @cached_property
    def inner_N(self) -> BoolArray:
        """Nodes that are no roots ``[N]``."""
        found: BoolArray = self.forks.parent_N >= 0
        return found

    @cached_property
    def shared_N(self) -> BoolArray:
        """Nodes below a root that several counted rollouts pass ``[N]``."""
        return self.inner_N & (self.leaves_N > 1)

    @cached_property
    def informed_S(self) -> BoolArray:
        """Steps whose node, or the one above it, is shared ``[S]``."""
        near = self.shared_N | (self.inner_N & self.shared_N[self.forks.parent_N])
        return near[self.forks.node_S] & self.counted_R[self.index.rollout_S]

    @cached_property
    def fallbacks(self) -> Mapping[str, int]:
        """Number of trees of one leaf, and of trees that share no step below the root."""
        branched = np.zeros(self.forks.index.n_groups, bool)
        branched[self.forks.group_N[self.shared_N]] = True
        size = self.in_tree.size
        return {
            "single_leaf": int((size == 1).sum()),
            "unbranched": int(((size > 1) & ~branched).sum()),
        }

    def findings(self) -> tuple[Finding, ...]:
        """Return that no rollouts share a step below a root, where that is so."""
        if self.shared_N.any() or not (self.in_tree.size > 1).any():
            return ()
        message = f"no two rollouts share a step ({self.forks.merge}): all credit is that of outcomes"
        hint = "Give `node`, or `parent` and `fork_step`; or let merge='equal' join equal beginnings"
        return (Finding("ACC509", "warning", message, hint=hint),)

    def of_steps(self, credit_N: Floats) -> Floats:
        """Return each step's node's credit ``[S]``; 0 for rollouts that do not count."""
        return np.where(self.counted_R[self.index.rollout_S], self.forks.of_steps(credit_N), 0.0)

    def of_paths(self, credit_R: Floats) -> Floats:
        """Return its rollout's credit for each step ``[S]``; 0 for rollouts that do not count."""
        return np.where(self.counted_R, credit_R, 0.0)[self.index.rollout_S]

    def members(self, s: int) -> tuple[Member, ...]:
        """Return the leaves of step s's tree, and which of them lie below its node."""
        own = int(self.index.rollout_S[s])
        below = set(self.index.rollout_S[self.forks.node_S == self.forks.node_S[s]].tolist())
        same = np.flatnonzero(self.tree_R == self.tree_R[own]).tolist()
        return tuple(
            Member(self.index.batch.ids[r], float(self.outcome_R[r]), note=note)
            for r, note in (
                (
                    r,
                    "not counted"
                    if not self.counted_R[r]
                    else "this one"
                    if r == own
                    else "below the node"
                    if r in below
                    else "",
                )
                for r in same
            )
        )


def grown(index: Index, params: TreeParams) -> Grove:
    """Return the trees of a batch, as the parameters say.

    Args:
        index: of the batch.
        params: see `TreeParams`.

    Raises:
        DataError: if a fork goes back to a step or a rollout that is not there.
    """
    tree = tree_R(index, params.trees)  # type: ignore[arg-type]
    by_tree = index if np.array_equal(tree, index.group_R) else _ByTree(index, tree)
    named = params.merge == "node" or (params.merge == "auto" and index.batch.has("node_S"))
    segments = params.nodes == "segment" and not named
    forks = Forks(by_tree, params.merge, segments=segments)  # type: ignore[arg-type]
    return Grove(index, forks, index.score_R, index.counted_R(params.truncated))


class _ByTree(Index):
    """An index whose groups are trees."""

    def __init__(self, index: Index, tree: Ints) -> None:
        super().__init__(index.batch, index.key, "yes" if index.outcome_in_steps else "no")
        self.__dict__["group_R"] = tree
