"""NeMo-RL: an object with ``compute_advantage``, for ``_create_advantage_estimator``.

Source: NeMo-RL 0.6.0 ``nemo_rl/algorithms/advantage_estimator.py``:
``compute_advantage(prompt_ids, rewards, mask, repeated_batch=…, logprobs_policy=…)`` -> (B, S), equal
rows of prompt_ids are one group, ``repeated_batch["message_log"]`` holds per row messages with role,
token_ids, generation_logprobs (read from source).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from accredit.adapters.arrays import as_numpy
from accredit.adapters.padded import PaddedRows, padded_credit

__all__ = ["Estimator"]


class Estimator:
    """An advantage estimator of NeMo-RL.

    Args:
        method: id or alias.
        state: gives the state key before the answer of message i, ``state(message_log, i)``; None =
            no states.
        **options: of `accredit.assign`.
    """

    def __init__(
        self, method: str, *, state: Callable[[Any, int], Any] | None = None, **options: Any
    ) -> None:
        self.method = method
        self.options = options
        self._state = state

    def compute_advantage(
        self,
        prompt_ids: Any,
        rewards: Any,
        mask: Any,
        repeated_batch: Mapping[str, Any] | None = None,
        logprobs_policy: Any = None,
        **_: Any,
    ) -> Any:
        """Return advantages ``[B, S]``.

        Args:
            prompt_ids: ``[B, P]``; rows that are equal are one group.
            rewards: ``[B]``.
            mask: ``[B, S]``, 1 at tokens that are trained.
            repeated_batch: its ``message_log`` gives steps, checked against the mask.
            logprobs_policy: ``[B, S]``.
        """
        group = np.unique(as_numpy(prompt_ids), axis=0, return_inverse=True)[1]
        logs = None if repeated_batch is None else repeated_batch.get("message_log")
        rows = PaddedRows(
            rewards=rewards,
            mask=mask,
            group=[f"prompt {g}" for g in np.ravel(group).tolist()],
            keep=[True] * len(mask),
            records=None if logs is None else [self._record(log) for log in logs],
            logprobs=logprobs_policy,
            prompt_in_rows=True,
        )
        return padded_credit(rows, self.method, **self.options).advantages

    def _record(self, log: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        steps = []
        between: list[int] = []
        for i, message in enumerate(log):
            ids = as_numpy(message["token_ids"]).tolist()
            if message["role"] != "assistant":
                between += ids
                continue
            step: dict[str, Any] = {"tokens": ids, "context_tokens": between}
            if self._state is not None:
                step["state"] = self._state(log, i)
            steps.append(step)
            between = []
        return {"steps": steps}
