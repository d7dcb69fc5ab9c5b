"""ROLL: credit of agentic batches, for a patch of ``agentic_compute_advantage``.

Source: ROLL 0.3.0 ``roll/pipeline/agentic/utils.py``: non_tensor_batch traj_group_id, traj_id,
state_hash, step, step_scores, episode_scores; batch input_ids and response_mask (both read
``[:, 1:]``), old_log_probs (read from source).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from accredit.adapters.arrays import as_numpy
from accredit.adapters.padded import PaddedCredit, PaddedRows, padded_credit

__all__ = ["batch_credit"]


def batch_credit(data: Any, method: str, **options: Any) -> PaddedCredit:
    """Return the advantages of a batch in the width of ``response_mask[:, 1:]``.

    With ``state_hash`` a row is a step: rows of one ``traj_id`` are one rollout, in order of
    ``step``, with the step's score as its reward and the episode's score as the outcome.

    Args:
        data: ROLL's DataProto.
        method: id or alias.
        **options: of `accredit.assign`, and ``echo`` of `padded_credit`.
    """
    held = data.non_tensor_batch
    mask = data.batch["response_mask"][:, 1:]
    size, length = as_numpy(mask).shape
    stepwise = "state_hash" in held
    keys = set(data.batch.keys())
    rows = PaddedRows(
        rewards=[float(s) for s in held["episode_scores"]],
        mask=mask,
        group=list(held["traj_group_id"]),
        rollout=list(held["traj_id"]),
        order=_ranks(held["traj_id"], held["step"]) if stepwise else None,
        keep=[True] * size,
        spans=[[(0, length)]] * size if stepwise else None,
        states=[[str(s)] for s in held["state_hash"]] if stepwise else None,
        step_rewards=[[float(s)] for s in held["step_scores"]] if stepwise else None,
        tokens=data.batch["input_ids"][:, 1:] if "input_ids" in keys else None,
        logprobs=data.batch["old_log_probs"] if "old_log_probs" in keys else None,
        row_rewards="repeat",
        prompt_in_rows=True,
    )
    return padded_credit(rows, method, **options)


def _ranks(rollouts: Any, steps: Any) -> list[int]:
    """Return the step numbers counted from each rollout's first: ROLL counts from 0 or from 1."""
    first: dict[Any, int] = {}
    for rollout, step in zip(rollouts, steps, strict=True):
        first[rollout] = min(first.get(rollout, int(step)), int(step))
    return [int(np.int64(s)) - first[r] for r, s in zip(rollouts, steps, strict=True)]
