"""torchrl: the key ``"advantage"`` of a TensorDict, as its LLM objectives read it.

Source: torchrl 0.14.1 ``torchrl.objectives.llm.GRPOLoss`` (advantage (…, T, 1)), ``MCAdvantage``
(prompt_key "query", rewards_key ("next", "reward")).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

from accredit.adapters.arrays import as_numpy
from accredit.adapters.padded import PaddedCredit, PaddedRows, padded_credit

__all__ = ["write_advantage"]

Key: TypeAlias = str | tuple[str, ...]


def write_advantage(
    data: Any,
    method: str,
    *,
    mask: Key = "mask",
    reward: Key = ("next", "reward"),
    group: Sequence[Hashable] | Key = "query",
    rollout: Sequence[Hashable] | None = None,
    tokens: Key | None = None,
    logprobs: Key | None = None,
    values: Key | None = None,
    states: Sequence[Sequence[Any]] | None = None,
    **options: Any,
) -> PaddedCredit:
    """Set ``data["advantage"]``, float32 ``[B, T, 1]``, and return the credit behind it.

    Args:
        data: a TensorDict of ``B`` rows.
        method: id or alias.
        mask: key of the assistant mask ``[B, T]``.
        reward: key of the reward ``[B]``, ``[B, 1]``, ``[B, T]`` or ``[B, T, 1]``.
        group: key of the prompts, or the ids themselves.
        rollout: id of each row's rollout; None = a row a rollout.
        tokens: key of the response ids.
        logprobs: key of their log-probabilities.
        values: key of a critic's values.
        states: of each row, one state key a step.
        **options: of `accredit.assign`, and ``echo`` of `padded_credit`.
    """
    where = data.get(mask)
    ids = group if isinstance(group, list) else list(data[group])
    rows = PaddedRows(
        rewards=_flat(data.get(reward), where),
        mask=where,
        group=ids,
        rollout=rollout,
        keep=[True] * len(where),
        tokens=None if tokens is None else _flat(data.get(tokens), where),
        logprobs=None if logprobs is None else _flat(data.get(logprobs), where),
        values=None if values is None else _flat(data.get(values), where),
        states=states,
    )
    found = padded_credit(rows, method, **options)
    data.set("advantage", found.advantages.unsqueeze(-1))
    return found


def _flat(value: Any, mask: Any) -> Any:
    """Return values without the last axis of one that torchrl keeps."""
    found = as_numpy(value)
    shape = tuple(mask.shape)
    return found.reshape(shape[: found.ndim - 1]) if found.ndim > 1 and found.shape[-1] == 1 else found
