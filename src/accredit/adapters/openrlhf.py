"""OpenRLHF: advantages into the experiences of ``RemoteExperienceMaker``.

Subclass it, override ``compute_advantages_and_returns(self, experiences)`` and call
`assign_experiences`.  Estimators gae, reinforce and reinforce_baseline are whitened by OpenRLHF
afterwards: choose group_norm or rloo in its own flag, which are not.

Source: OpenRLHF 0.11 ``openrlhf/trainer/ppo_utils/experience_maker.py``: ``Experience`` with
sequences (B, T), action_mask (B, A) of their last A columns, action_log_probs, values, rewards (B,),
prompts, index, advantages, returns (read from source).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

import accredit as ac
from accredit.adapters.arrays import as_kind_of, as_mask, as_numpy
from accredit.adapters.padded import PaddedRows, padded_credit
from accredit.typing import Array

__all__ = ["assign_experiences"]


def assign_experiences(
    experiences: Sequence[Any], method: str, *, rollout: Sequence[Hashable] | None = None, **options: Any
) -> ac.Credit:
    """Set ``advantages`` and ``returns`` of every experience, and return the credit.

    Groups are rows of equal prompts, over all experiences: never blocks of
    ``n_samples_per_prompt`` rows, which a missing rollout would shift.

    Args:
        experiences: of one rollout batch.
        method: id or alias.
        rollout: id of each row's rollout, over all experiences; None = a row a rollout.
        **options: of `accredit.assign`, and ``echo`` of `padded_credit`.
    """
    masks = [as_mask(e.action_mask, "action_mask") for e in experiences]
    width = max(m.shape[1] for m in masks)
    rows = PaddedRows(
        rewards=np.concatenate([as_numpy(e.rewards).astype(np.float64) for e in experiences]),
        mask=np.concatenate([_wide(m, width) for m in masks]),
        group=[prompt for e in experiences for prompt in e.prompts],
        rollout=rollout,
        keep=[True] * sum(len(m) for m in masks),
        tokens=_signal(experiences, "sequences", width),
        logprobs=_signal(experiences, "action_log_probs", width),
        values=_signal(experiences, "values", width),
        prompt_in_rows=True,
    )
    found = padded_credit(rows, method, **options)
    at = 0
    for experience, mask in zip(experiences, masks, strict=True):
        own = slice(at, at + len(mask)), slice(0, mask.shape[1])
        experience.advantages = as_kind_of(experience.action_mask, found.advantages[own])
        experience.returns = as_kind_of(experience.action_mask, found.returns[own])
        at += len(mask)
    return found.credit


def _wide(values: Array, width: int) -> Array:
    return np.pad(values, ((0, 0), (0, width - values.shape[1])))


def _signal(experiences: Sequence[Any], field: str, width: int) -> Array | None:
    held = [getattr(e, field, None) for e in experiences]
    if any(value is None for value in held):
        return None
    sizes = [as_numpy(e.action_mask).shape[1] for e in experiences]
    # Actions are the last columns of the sequences, whatever the prompt before them.
    own = [as_numpy(value)[:, -size:] for value, size in zip(held, sizes, strict=True)]
    return np.concatenate([_wide(value, width) for value in own])
