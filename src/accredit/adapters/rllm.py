"""rLLM: trajectory groups in, ``Step.advantage`` out, a list with one number a response token.

Set ``algorithm.use_precomputed_advantage: true``; rLLM zeroes lists of a wrong length in silence, so
lengths and ids are checked here.

Source: rLLM 0.3.0.pre ``Step(prompt_ids, response_ids, logprobs, observation, action, reward,
advantage)``, ``Trajectory(uid, name, steps, reward)``, ``TrajectoryGroup(group_id, trajectories)``
(read from source, not on PyPI: tested on look-alikes with these names).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import accredit as ac
from accredit.adapters.nodes import check_objects, credit_of, step_advantages

__all__ = ["assign_groups", "group_records", "write_groups"]


def group_records(
    groups: Sequence[Any], state: Callable[[Any, int], Any] | None = None
) -> list[dict[str, Any]]:
    """Return the trajectories of groups as native records.

    A group's id is ``"task:role"``, so roles are compared with their like.

    Args:
        groups: ``TrajectoryGroup`` objects.
        state: gives the state key before step t, ``state(trajectory, t)``; None = the observation
            where it is a string or a number.
    """
    return [
        {
            "id": str(trajectory.uid),
            "group": group.group_id,
            "reward": None if trajectory.reward is None else float(trajectory.reward),
            "agent": trajectory.name,
            "steps": [_step(trajectory, t, state) for t in range(len(trajectory.steps))],
        }
        for group in groups
        for trajectory in group.trajectories
    ]


def _step(trajectory: Any, t: int, state: Callable[[Any, int], Any] | None) -> dict[str, Any]:
    step = trajectory.steps[t]
    found: dict[str, Any] = {
        "tokens": list(step.response_ids),
        "prompt_tokens": list(step.prompt_ids) if step.prompt_ids else None,
        "logprobs": list(step.logprobs) if step.logprobs else None,
        "reward": float(step.reward) if step.reward else None,
        "action": step.action if isinstance(step.action, str | int | float) else None,
    }
    if state is not None:
        found["state"] = state(trajectory, t)
    elif isinstance(step.observation, str | int | float):
        found["state"] = step.observation
    return {name: value for name, value in found.items() if value is not None}


def write_groups(credit: ac.Credit, groups: Sequence[Any]) -> None:
    """Set ``step.advantage`` of every step; nothing is written unless all trajectories fit.

    Raises:
        DataError: if a trajectory is missing, comes twice, is unknown, or holds other tokens.
    """
    trajectories = [t for group in groups for t in group.trajectories]
    check_objects(credit, [str(t.uid) for t in trajectories])
    found = [
        (t, step_advantages(credit, str(t.uid), [s.response_ids for s in t.steps])) for t in trajectories
    ]
    for trajectory, lists in found:
        for step, values in zip(trajectory.steps, lists, strict=True):
            step.advantage = values


def assign_groups(
    groups: Sequence[Any], method: str, *, state: Callable[[Any, int], Any] | None = None, **options: Any
) -> ac.Credit:
    """Return the credit of trajectory groups and write it into their steps.

    Args:
        groups: ``TrajectoryGroup`` objects.
        method: id or alias.
        state: see `group_records`.
        **options: of `accredit.assign`.

    Raises:
        DataError: if a trajectory cannot be used.
    """
    credit = credit_of(group_records(groups, state), method, **options)
    write_groups(credit, groups)
    return credit
