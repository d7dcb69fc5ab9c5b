"""Tinker cookbook: trajectory groups in, ``Datum.loss_fn_inputs["advantages"]`` out, a number a token.

Source: tinker-cookbook 0.5.8 ``rl.types`` (Transition, Trajectory, TrajectoryGroup) and
``rl.data_processing.assemble_training_data`` (one or more Datums a trajectory; ``target_tokens``,
``logprobs``, ``advantages`` and ``mask`` are shifted left by one and equally long).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import accredit as ac
from accredit.adapters.echo import check_ids, match_rows
from accredit.adapters.nodes import credit_of, flat, masked_ids, step_advantages
from accredit.errors import DataError

__all__ = ["assign_datums", "trajectory_records", "write_datums"]

_MASKED = "parse_error_masked"  # tinker_cookbook.rl.types.PARSE_ERROR_MASKED_METRIC_KEY


def trajectory_records(
    groups: Sequence[Any], state: Callable[[Any, int], Any] | None = None
) -> list[dict[str, Any]]:
    """Return the trajectories of groups as native records, ids ``"group/trajectory"``.

    Rewards of transitions are step rewards; the group's final reward is paid at the last one, so
    that they add up to the total (``TrajectoryGroup.get_total_rewards``).

    Args:
        groups: ``TrajectoryGroup`` objects.
        state: gives the state key before transition t, ``state(trajectory, t)``; None = no states.
    """
    return [
        _record(f"{g}/{i}", f"group {g}", trajectory, float(final), state)
        for g, group in enumerate(groups)
        for i, (trajectory, final) in enumerate(zip(group.trajectories_G, group.final_rewards_G, strict=True))
    ]


def _record(
    name: str, group: str, trajectory: Any, final: float, state: Callable[[Any, int], Any] | None
) -> dict[str, Any]:
    transitions = trajectory.transitions
    paid = [float(t.reward) for t in transitions]
    if paid:
        paid[-1] += final
    steps = []
    for t, transition in enumerate(transitions):
        step: dict[str, Any] = {"tokens": list(transition.ac.tokens)}
        if any(paid[:-1]):
            step["reward"] = paid[t]
        if transition.ac.maybe_logprobs is not None:
            step["logprobs"] = list(transition.ac.maybe_logprobs)
        prompt = _ids(transition.ob)
        if prompt is not None:
            step["prompt_tokens"] = prompt
        if _is_masked(transition):
            step["trainable"] = False
        if state is not None:
            step["state"] = state(trajectory, t)
        steps.append(step)
    return {"id": name, "group": group, "reward": sum(paid) if paid else final, "steps": steps}


def _ids(observation: Any) -> list[int] | None:
    """Return the ids of an observation of text only; an image has none."""
    found: list[int] = []
    for chunk in observation.chunks:
        if not hasattr(chunk, "tokens"):
            return None
        found += chunk.tokens
    return found


def _is_masked(transition: Any) -> bool:
    return float(transition.metrics.get(_MASKED, 0.0)) >= 1.0


def write_datums(
    credit: ac.Credit, groups: Sequence[Any], datums: Sequence[Any], metadata: Sequence[Mapping[str, int]]
) -> None:
    """Overwrite ``loss_fn_inputs["advantages"]`` of datums; nothing is written unless all fit.

    Args:
        credit: of ``trajectory_records(groups)``.
        groups: the trajectory groups.
        datums: of ``assemble_training_data``, in its order.
        metadata: its second result: ``group_idx`` and ``traj_idx`` of each datum.

    Raises:
        DataError: if a trajectory has no datum, or tokens at a datum's mask are not its actions.
    """
    if len(datums) != len(metadata):
        raise DataError(f"{len(datums)} datums have {len(metadata)} entries of metadata", code="ACC875")
    parts: dict[str, list[int]] = {}
    for d, entry in enumerate(metadata):
        parts.setdefault(f"{entry['group_idx']}/{entry['traj_idx']}", []).append(d)
    known = [(n, 0) for n in credit.batch.ids if credit.batch.steps_of(credit.batch.position(n))]
    match_rows(known, [(n, 0) for n in parts])
    found: dict[int, Any] = {}
    for name, own in parts.items():
        found |= _laid(credit, groups, name, {d: datums[d].loss_fn_inputs for d in own})
    for d, values in found.items():
        inputs = datums[d].loss_fn_inputs
        inputs["advantages"] = type(inputs["advantages"]).from_numpy(values)


def _laid(
    credit: ac.Credit, groups: Sequence[Any], name: str, inputs: Mapping[int, Mapping[str, Any]]
) -> dict[int, Any]:
    g, _, i = name.partition("/")
    transitions = groups[int(g)].trajectories_G[int(i)].transitions
    steps = step_advantages(credit, name, [t.ac.tokens for t in transitions])
    trained = [t for t, transition in enumerate(transitions) if not _is_masked(transition)]
    values = flat([steps[t] for t in trained])
    ids = [i for t in trained for i in transitions[t].ac.tokens]
    masks = {d: np.asarray(own["mask"].data) for d, own in inputs.items()}
    got = [
        i
        for d, own in inputs.items()
        for i in masked_ids(own["target_tokens"].data, masks[d], f"datum {d} of trajectory {name}")
    ]
    check_ids(ids, got, f"the datums of trajectory {name}")
    found: dict[int, Any] = {}
    at = 0
    for d, mask in masks.items():
        where = np.flatnonzero(mask)
        found[d] = np.zeros(mask.size, np.float32)
        found[d][where] = values[at : at + where.size]
        at += where.size
    return found


def assign_datums(
    groups: Sequence[Any],
    datums: Sequence[Any],
    metadata: Sequence[Mapping[str, int]],
    method: str,
    *,
    state: Callable[[Any, int], Any] | None = None,
    **options: Any,
) -> ac.Credit:
    """Return the credit of trajectory groups and write it into their datums.

    Call it between ``assemble_training_data`` and the training step.

    Args:
        groups: the trajectory groups.
        datums: of ``assemble_training_data``.
        metadata: its second result.
        method: id or alias.
        state: see `trajectory_records`.
        **options: of `accredit.assign`.

    Raises:
        DataError: if datums are not those of the groups.
    """
    credit = credit_of(trajectory_records(groups, state), method, **options)
    write_datums(credit, groups, datums, metadata)
    return credit
