"""The state graph of each task group: states as nodes, executed actions as edges.

One module for the whole family of step-credit methods (gigpo, hgpo, crbc, graft, graph-hca,
relace, gaca …): the groups of a batch are built and solved together, in flat arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from scipy import sparse

from accredit.errors import ParamError
from accredit.index.core import Index, first_seen
from accredit.index.groups import GroupStats
from accredit.index.solve import reachable, solve_blocks, sweep
from accredit.index.states import final_state_codes
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["Boundary", "StateGraph", "Terminals"]

Terminals: TypeAlias = Literal["virtual", "state", "open"]
Boundary: TypeAlias = Literal["success", "reward"]


@dataclass(frozen=True)
class StateGraph:
    """States of all groups as nodes ``N``, steps of counted rollouts as edges ``E``.

    Args:
        index: of the batch.
        step_E: the step that each edge is.
        src_E: node that it leaves.
        dst_E: node that it enters.
        action_E: dense code of (node, action).
        group_N: group of each node.
        pinned_N: nodes with a fixed value: ends of rollouts.
        pin_N: that value; 0 where not pinned.
        end_R: value of each rollout's own end (success or outcome).

    Example:
        >>> from accredit.data import Batch
        >>> batch = Batch.from_records([
        ...     {"id": "a", "group": "g", "reward": 1, "steps": [{"state": "A"}, {"state": "B"}]},
        ...     {"id": "b", "group": "g", "reward": 0, "steps": [{"state": "A"}, {"state": "C"}]}])
        >>> graph = StateGraph.of(Index(batch))
        >>> graph.at_steps(graph.solve(0.5)).tolist()
        [0.125, 0.5, 0.125, 0.0]
    """

    index: Index
    step_E: Ints
    src_E: Ints
    dst_E: Ints
    action_E: Ints
    group_N: Ints
    pinned_N: BoolArray
    pin_N: Floats
    end_R: Floats

    @classmethod
    def of(
        cls,
        index: Index,
        *,
        counted_R: BoolArray | None = None,
        terminals: Terminals = "virtual",
        boundary: Boundary = "success",
        success_above: float = 0.0,
        pin: Literal["mean", "any"] = "mean",
        open_truncated: bool = False,
    ) -> StateGraph:
        """Return the graph of a batch.

        Args:
            index: of the batch; must have states.
            counted_R: rollouts that give edges ``[R]``; default: scored, not rejected.
            terminals: ``virtual`` = the last edge enters a node that stands for the outcome;
                ``state`` = it enters the observed final state, which is pinned even if other
                rollouts go on from it; ``open`` = as ``state``, but a truncated rollout does not
                pin a state that some step of the group leaves.  Rollouts without ``final_state``
                are ``virtual`` in all three.
            boundary: ``success`` = ends are worth 1 or 0; ``reward`` = their outcome.
            success_above: an outcome above it is a success.
            pin: a state where rollouts end differently is worth their ``mean``, or the best of
                them (``any``).
            open_truncated: with ``virtual``, a truncated rollout's last edge enters its final
                state, unpinned, where some step of the group leaves that state.
        """
        if terminals not in ("virtual", "state", "open"):
            raise ParamError(f"terminals must be one of virtual, state, open; got {terminals!r}")
        counted = index.scored_R if counted_R is None else counted_R
        outcome = index.outcome_R
        value_R = outcome if boundary == "reward" else (outcome > success_above).astype(np.float64)
        build = _Build(index, counted, value_R)
        return build.graph(terminals, open_truncated, pin)

    @property
    def n(self) -> int:
        """Number of nodes N."""
        return self.pin_N.size

    @cached_property
    def degree_N(self) -> Ints:
        """Number of edges that leave each node ``[N]``."""
        return np.bincount(self.src_E, minlength=self.n)

    @cached_property
    def node_S(self) -> Ints:
        """Node of each step ``[S]``; -1 for steps of rollouts that are not counted."""
        found = np.full(self.index.batch.n_steps, -1, np.int64)
        found[self.step_E] = self.src_E
        return found

    def edge_of(self, s: int) -> int:
        """Return the edge that step s of a counted rollout is."""
        return int(np.searchsorted(self.step_E, s))

    @cached_property
    def state_of_action(self) -> Ints:
        """Node of each (node, action) code ``[A]``."""
        found = np.zeros(int(self.action_E.max(initial=-1)) + 1, np.int64)
        found[self.action_E] = self.src_E
        return found

    @cached_property
    def actions_N(self) -> Ints:
        """Number of distinct actions taken at each node ``[N]``."""
        return np.bincount(self.state_of_action, minlength=self.n)

    def edge_weights(self, uniform_actions: bool = False) -> Floats:
        """Return each edge's share of its node ``[E]``; the shares of a node sum to 1.

        Args:
            uniform_actions: distinct actions weigh the same (their repeats share); default: every
                recorded edge weighs the same.
        """
        if not uniform_actions:
            return 1.0 / self.degree_N[self.src_E]
        times = np.bincount(self.action_E)
        return 1.0 / (times[self.action_E] * self.actions_N[self.src_E])

    # -- values -------------------------------------------------------------------------------

    def solve(
        self,
        discount: float,
        *,
        aggregator: Literal["mean", "max", "power"] = "mean",
        power: float = 1.0,
        depth: int | None = None,
        step_rewards: bool = False,
        uniform_actions: bool = False,
    ) -> Floats:
        """Return the value of each node ``[N]``: pinned ones as they are, others backed up.

        ``V(s) = mean over the edges that leave s of (r + discount V(s'))``; nodes that reach no
        pinned node have 0.

        Args:
            discount: in (0, 1]; the fixed point is unique below 1.
            aggregator: ``mean``; ``max`` over edges; ``power`` = ``(mean V^w)^(1/w)``.
            power: w of the power mean.
            depth: None = the fixed point; K = K backups of the visit means (`visit_values`).
            step_rewards: add the mean recorded step reward of the node.
            uniform_actions: see `edge_weights`.
        """
        if aggregator != "mean":
            w = np.inf if aggregator == "max" else power
            return sweep(self.src_E, self.dst_E, self.pinned_N, self.pin_N, discount, w)
        weight = self.edge_weights(uniform_actions)
        if depth is not None:
            values = self.visit_values(discount)
            for _ in range(depth):
                values = self._backup(values, discount, weight, step_rewards)
            return values
        return self._fixed_point(discount, weight, step_rewards)

    def _free(self) -> BoolArray:
        return ~self.pinned_N & (self.degree_N > 0)

    def _paid(self, step_rewards: bool) -> Floats:
        if not step_rewards:
            return np.zeros(self.step_E.size)
        return self.index.paid_S[self.step_E]

    def _backup(self, values: Floats, discount: float, weight: Floats, step_rewards: bool) -> Floats:
        gain = weight * (self._paid(step_rewards) + discount * values[self.dst_E])
        return np.where(self._free(), np.bincount(self.src_E, gain, self.n), self.pin_N)

    def _fixed_point(self, discount: float, weight: Floats, step_rewards: bool) -> Floats:
        ends = self.pinned_N
        free = self._free() & reachable(self.src_E, self.dst_E, ends)
        inner = free[self.src_E]
        to_free = inner & free[self.dst_E]
        gain = self._paid(step_rewards) + discount * np.where(ends[self.dst_E], self.pin_N[self.dst_E], 0.0)
        constant = np.bincount(self.src_E[inner], (weight * gain)[inner], self.n)
        nodes = np.flatnonzero(free)
        place = np.full(self.n, -1, np.int64)
        place[nodes] = np.arange(nodes.size)
        values = self.pin_N.copy()
        if nodes.size:
            at = (place[self.src_E[to_free]], place[self.dst_E[to_free]])
            links = sparse.csr_array((weight[to_free], at), shape=(nodes.size, nodes.size))
            blocks = first_seen(self.group_N[nodes])
            values[nodes] = solve_blocks(links, constant[nodes].astype(np.float64), discount, blocks)
        return values

    def visit_values(self, discount: float) -> Floats:
        """Return the mean discounted end value over the visits of each node ``[N]``.

        A visit at step t of T brings ``discount^(T - t + 1)`` times the end value of its rollout
        (the last step brings one discount).  Pinned nodes keep their value.
        """
        total = np.bincount(self.src_E, self._brought(discount), self.n)
        return np.where(self._free(), total / np.maximum(self.degree_N, 1), self.pin_N)

    def visit_q(self, discount: float) -> Floats:
        """Return the mean of what the visits of each edge's (state, action) bring ``[E]``."""
        total = np.bincount(self.action_E, self._brought(discount))
        found: Floats = (total / np.maximum(np.bincount(self.action_E), 1))[self.action_E]
        return found

    def _brought(self, discount: float) -> Floats:
        index = self.index
        rollout = index.rollout_S[self.step_E]
        left = index.steps_R[rollout] - index.position_S[self.step_E]
        found: Floats = discount ** left.astype(np.float64) * self.end_R[rollout]
        return found

    def q(self, values: Floats, discount: float, *, step_rewards: bool = False) -> Floats:
        """Return Q of each edge's (state, action) ``[E]``: mean of ``r + discount V(s')``."""
        gain = self._paid(step_rewards) + discount * values[self.dst_E]
        times = np.bincount(self.action_E)
        total = np.bincount(self.action_E, gain)
        found: Floats = (total / np.maximum(times, 1))[self.action_E]
        return found

    def td(self, values: Floats, discount: float) -> Floats:
        """Return the one-step difference of each edge ``[E]``: ``discount V(s') - V(s)``."""
        found: Floats = discount * values[self.dst_E] - values[self.src_E]
        return found

    # -- normalising and placing ----------------------------------------------------------------

    def state_stats(self, credit_E: Floats) -> GroupStats:
        """Return the statistics of edge credits over the edges that leave one state."""
        return GroupStats(credit_E, self.src_E, self.n)

    def at_steps(self, values_N: Floats) -> Floats:
        """Return node values at each step's node ``[S]``; 0 where not counted."""
        found: Floats = np.where(self.node_S >= 0, values_N[self.node_S], 0.0)
        return found

    def to_steps(self, values_E: Floats) -> Floats:
        """Return edge values at their steps ``[S]``; 0 where not counted."""
        found = np.zeros(self.index.batch.n_steps)
        found[self.step_E] = values_E
        return found

    def coverage(self, depth: int | None = None) -> Ints:
        """Return the number of distinct rollouts whose outcome feeds each node's value ``[N]``.

        Args:
            depth: number of backups of the visit means; None = until nothing changes; 0 = the
                rollouts that visit the node.
        """
        rollout_E = self.index.rollout_S[self.step_E]
        visits = (np.ones(rollout_E.size), (self.src_E, rollout_E))
        reach = (sparse.csr_array(visits, shape=(self.n, len(self.index.batch))) > 0).astype(np.float64)
        ways = (np.ones(self.src_E.size), (self.src_E, self.dst_E))
        links = sparse.csr_array(ways, shape=(self.n, self.n))
        before, rounds = -1, 0
        while reach.nnz != before and (depth is None or rounds < depth):
            before, rounds = reach.nnz, rounds + 1
            reach = ((reach + links @ reach) > 0).astype(np.float64)
        found: Ints = np.diff(reach.indptr).astype(np.int64)
        return found


class _Build:
    """Numbers the nodes and decides where each rollout's last edge goes."""

    def __init__(self, index: Index, counted_R: BoolArray, value_R: Floats) -> None:
        self.index = index
        self.counted = counted_R
        self.value_R = value_R
        codes_S, self.final_R, n_codes = final_state_codes(index.batch, index.key)
        classes = first_seen(np.unique(value_R, return_inverse=True)[1])
        width = n_codes + int(classes.max(initial=0)) + 1
        self.step_E = np.flatnonzero(counted_R[index.rollout_S])
        self.state_key_E = index.group_S[self.step_E] * width + codes_S[self.step_E]
        self.final_key_R = index.group_R * width + self.final_R
        self.virtual_key_R = index.group_R * width + n_codes + classes
        self.width = width

    def graph(self, terminals: str, open_truncated: bool, pin: str) -> StateGraph:
        """Return the graph (see `StateGraph.of`)."""
        index = self.index
        ended = self.counted & (index.steps_R > 0)
        has_final = ended & (self.final_R >= 0)
        goes_on = np.isin(self.final_key_R, self.state_key_E)
        cut_off = has_final & index.has_status("truncated") & goes_on
        if terminals == "virtual":
            to_state = cut_off if open_truncated else np.zeros_like(ended)
            unpinned = to_state
        else:
            to_state = has_final
            unpinned = cut_off if terminals == "open" else np.zeros_like(ended)
        target_R = np.where(to_state, self.final_key_R, self.virtual_key_R)
        rows = np.flatnonzero(ended)
        nodes, inverse = np.unique(np.concatenate([self.state_key_E, target_R[rows]]), return_inverse=True)
        src = inverse[: self.step_E.size]
        last_R = np.full(len(index.batch), -1, np.int64)
        last_R[rows] = inverse[self.step_E.size :]
        pinning = rows[~unpinned[rows]]
        pinned, pins = self._pins(nodes.size, last_R[pinning], self.value_R[pinning], pin)
        return StateGraph(
            index,
            self.step_E,
            src,
            self._targets(src, last_R),
            self._actions(src),
            nodes // self.width,
            pinned,
            pins,
            self.value_R,
        )

    def _targets(self, src: Ints, last_R: Ints) -> Ints:
        index = self.index
        found = np.append(src[1:], -1)
        position = index.position_S[self.step_E]
        rollout = index.rollout_S[self.step_E]
        last = position == index.steps_R[rollout] - 1
        found[last] = last_R[rollout[last]]
        return found

    def _actions(self, src: Ints) -> Ints:
        column = self.index.batch.columns.get("action_S")
        if column is None:
            return first_seen(src)
        values = column.values[self.step_E].astype(np.int64)
        size = self.index.batch.n_steps
        values = np.where(column.mask(size)[self.step_E], values, -1) + 1
        return first_seen(src * (int(values.max(initial=0)) + 1) + values)

    @staticmethod
    def _pins(n: int, nodes: Ints, values: Floats, pin: str) -> tuple[BoolArray, Floats]:
        times = np.bincount(nodes, minlength=n)
        if pin == "mean":
            return times > 0, np.bincount(nodes, values, n) / np.maximum(times, 1)
        best = np.full(n, -np.inf)
        np.maximum.at(best, nodes, values)
        return times > 0, np.where(times > 0, best, 0.0)
