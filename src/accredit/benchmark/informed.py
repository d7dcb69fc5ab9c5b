"""Judges, revisers and entropies that know a world's table: the best that a model in their place could do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accredit.index import Index
from accredit.oracle import Table
from accredit.planners.entropy_forks import Entropy
from accredit.planners.ibpo import Draft, Reviser
from accredit.planners.prover import Case, Judge
from accredit.typing import Floats

__all__ = ["best_segments", "largest_loss", "rise_of_entropy"]


def best_segments(value_S: Floats) -> Judge:
    """Return the judge that proposes the segment across which the value rises most.

    Args:
        value_S: V of the state before each step ``[S]``, of the batch that the planner has.
    """

    def judge(case: Case) -> Mapping[str, Any] | None:
        batch = case.index.batch
        steps = batch.steps_of(batch.position(case.target))
        own = value_S[list(steps)]
        spans = [
            (start, end)
            for start in range(own.size - 1)
            for end in range(start, min(start + case.max_length, own.size - 1))
        ]
        ranked = sorted(spans, key=lambda span: own[span[0]] - own[span[1] + 1])
        if case.turn >= len(ranked):
            return None
        start, end = ranked[case.turn]
        return {"start": start, "end": end}

    return judge


def largest_loss(
    advantage_S: Floats, nodes: Sequence[tuple[str, int]], tables: Mapping[str, Table]
) -> Reviser:
    """Return the reviser that takes back the worst action of a failure and does the best one instead.

    Args:
        advantage_S: of the action taken ``[S]``, of the batch that the planner has.
        nodes: group and node before each step ``[S]``.
        tables: by group.
    """

    def reviser(draft: Draft) -> Mapping[str, Any] | None:
        batch = draft.index.batch
        steps = batch.steps_of(batch.position(draft.rollout))
        if not steps:
            return None
        t = int(np.argmin(advantage_S[list(steps)]))
        group, node = nodes[steps[t]]
        table = tables[group]
        q = np.where(table.task.allowed_NA[node], table.tables.Q[t, node], -np.inf)
        return {"step": t, "actions": [table.task.actions[int(q.argmax())]]}

    return reviser


def rise_of_entropy(tables: Mapping[str, Table]) -> Entropy:
    """Return the entropy of the policy's choice before each step, over that of an even choice.

    Args:
        tables: by group; the rollouts carry every action.
    """
    of_node = {group: _entropies(table) for group, table in tables.items()}

    def entropy(index: Index) -> Floats:
        batch = index.batch
        actions = [str(a) for a in batch.column("action_S").decoded()]
        found = np.zeros(batch.n_steps)
        for r in range(len(batch)):
            group, steps = str(batch.group_names[int(batch.group_R[r])]), batch.steps_of(r)
            at, _ = tables[group].walk([actions[s] for s in steps], [None] * len(steps))
            found[steps.start : steps.stop] = of_node[group][at]
        return found

    return entropy


def _entropies(table: Table) -> Floats:
    """Return the entropy of the choice in each node, in units of that of an even choice ``[N]``."""
    log = np.log(np.maximum(table.policy.probs_NA, 1e-300))
    even = np.log(np.maximum(table.task.allowed_NA.sum(1), 2))
    found: Floats = -(table.policy.probs_NA * log).sum(1) / even
    return found
