"""slime: credit where all samples are together, carried to the ranks that train on them.

``--custom-advantage-function-path`` runs on each data-parallel rank with that rank's samples, so no
group statistic is possible there.  Call `sample_advantages` from your
``--custom-convert-samples-to-train-data-path`` function, where samples are complete, put the lists
under a carried per-token key, and name `from_carrier` as the advantage function.

Source: slime 0.3.1 ``Sample`` (group_index, index, rollout_id, tokens, response_length, reward,
loss_mask, rollout_log_probs, status, metadata) and ``rollout_data`` (read from source).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import accredit as ac
from accredit.adapters.arrays import as_numpy
from accredit.adapters.padded import PaddedRows, padded_credit
from accredit.errors import DataError

__all__ = ["CARRIER", "from_carrier", "sample_advantages"]

CARRIER = "teacher_log_probs"  # a per-token key that slime hands through to the ranks


def sample_advantages(
    samples: Sequence[Any], method: str, *, reward_key: str | None = None, **options: Any
) -> tuple[list[Any], ac.Credit]:
    """Return one float32 array a sample, as long as its response, and the credit.

    Samples that share ``rollout_id`` are rows of one rollout and count once.

    Args:
        samples: of whole groups.
        method: id or alias.
        reward_key: of the reward where ``Sample.reward`` is a dict.
        **options: of `accredit.assign`; ``metadata["accredit"]`` of a sample is its record.

    Raises:
        DataError: if a sample's tokens, mask or log-probabilities are shorter than its response.
    """
    width = max((int(s.response_length) for s in samples), default=0)
    mask = np.zeros((len(samples), width), np.int64)
    tokens = np.zeros_like(mask)
    logprobs = np.zeros(mask.shape)
    for b, sample in enumerate(samples):
        n = int(sample.response_length)
        mask[b, :n] = _own(sample, "loss_mask", n, b) if sample.loss_mask is not None else 1
        tokens[b, :n] = as_numpy(sample.tokens)[-n:] if n else 0
        if sample.rollout_log_probs is not None:
            logprobs[b, :n] = _own(sample, "rollout_log_probs", n, b)
    rewards = [s.reward[reward_key] if reward_key else s.reward for s in samples]
    records = [(s.metadata or {}).get("accredit") for s in samples]
    ids = [getattr(s, "rollout_id", None) for s in samples]
    rows = PaddedRows(
        rewards=[float("nan") if r is None else float(r) for r in rewards],
        mask=mask,
        group=[s.group_index for s in samples],
        rollout=None if any(i is None for i in ids) else ids,
        keep=[True] * len(samples),
        tokens=tokens,
        records=records if any(records) else None,
        logprobs=logprobs if all(s.rollout_log_probs is not None for s in samples) else None,
    )
    found = padded_credit(rows, method, **options)
    lists = [row[: int(s.response_length)] for row, s in zip(found.advantages, samples, strict=True)]
    return lists, found.credit


def _own(sample: Any, field: str, n: int, b: int) -> Any:
    found = as_numpy(getattr(sample, field))
    if found.size != n:
        raise DataError(f"sample {b} has {found.size} {field} for a response of {n} tokens", code="ACC871")
    return found


def from_carrier(args: Any, rollout_data: Any) -> None:
    """Set ``rollout_data["advantages"]`` and ``["returns"]`` to the carried numbers.

    For ``--custom-advantage-function-path accredit.adapters.slime.from_carrier``.

    Args:
        args: slime's arguments.
        rollout_data: of this rank.

    Raises:
        DataError: if a carried list is not as long as its response.
    """
    held = rollout_data[CARRIER]
    for i, (values, length) in enumerate(zip(held, rollout_data["response_lengths"], strict=True)):
        if len(values) != int(length):
            raise DataError(
                f"sample {rollout_data['sample_indices'][i]} carries {len(values)} numbers for "
                f"{int(length)} response tokens",
                code="ACC871",
                hint="Context parallel slices need their part of the list",
            )
    rollout_data["advantages"] = list(held)
    rollout_data["returns"] = list(held)
