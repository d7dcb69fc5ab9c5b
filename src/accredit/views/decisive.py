"""Which steps to show first: large |credit|, and no step that only repeats another."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from accredit.typing import Floats, Ints

if TYPE_CHECKING:
    from accredit.data import Batch

__all__ = ["Decisive", "decisions", "decisive"]


class Decisive(NamedTuple):
    """A decisive step, and how many steps it stands for.

    Attributes:
        step: its index.
        times: steps of its group with the same state, action and credit, itself included.
    """

    step: int
    times: int


def decisive(credit: Floats, rollout_S: Ints, decision_S: Ints, keep: int = 10) -> list[Decisive]:
    """Return steps of largest |credit|, largest first, none with credit 0.

    Steps with one decision stand for each other: the first is told. So do steps of one rollout with
    one credit, for a method that spreads an outcome evenly would fill the list with them.

    Args:
        credit: ``[S]``.
        rollout_S: ``[S]``.
        decision_S: ``[S]`` from `decisions`.
        keep: how many at most.

    Example:
        >>> decisive(np.array([1.0, -3, -3, 2]), np.array([0, 0, 0, 1]), np.arange(4))
        [Decisive(step=1, times=1), Decisive(step=3, times=1), Decisive(step=0, times=1)]
    """
    times = np.bincount(decision_S, minlength=1)
    found: list[Decisive] = []
    seen: set[object] = set()
    order = np.argsort(-np.abs(credit), kind="stable")
    for s in order[credit[order] != 0].tolist():
        if len(found) == keep:
            break
        same: set[object] = {int(decision_S[s]), (int(rollout_S[s]), float(credit[s]))}
        if not same & seen:
            found.append(Decisive(s, int(times[decision_S[s]])))
        seen |= same
    return found


def decisions(batch: Batch, credit: Floats) -> Ints:
    """Return a code of (group, state, action, credit) of each step; where one is absent, its own code.

    Args:
        batch: the rollouts.
        credit: ``[S]`` in the batch's order.
    """
    columns = [batch.columns.get(name) for name in ("state_S", "action_S")]
    if any(c is None or c.words is None or not c.mask(batch.n_steps).all() for c in columns):
        return np.arange(batch.n_steps)
    group_S = np.repeat(batch.group_R, np.diff(batch.step_start_R1))
    value_S = np.unique(credit, return_inverse=True)[1]
    rows = np.stack([group_S, value_S, *(c.values for c in columns if c is not None)])
    return np.unique(rows, axis=1, return_inverse=True)[1].reshape(-1)
