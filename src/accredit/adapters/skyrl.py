"""SkyRL: an estimator for its registry, and credit for step-wise trajectories.

Source: SkyRL 0.3/0.4 ``skyrl.backends.skyrl_train.utils.ppo_utils.register_advantage_estimator``
(token_level_rewards, response_mask, index, values; keywords; returns advantages and returns), and
``RayPPOTrainer.compute_advantages_and_returns`` with ``data["sequences"]`` (responses in the
last columns), ``data["response_mask"]``, ``data.metadata["uids"]``,
``data.metadata["is_last_step"]`` (read from source).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from accredit.adapters.arrays import as_numpy
from accredit.adapters.padded import PaddedCredit, PaddedRows, padded_credit
from accredit.errors import DataError

__all__ = ["estimator", "stepwise_credit"]


def estimator(method: str, **options: Any) -> Callable[..., tuple[Any, Any]]:
    """Return a function for ``register_advantage_estimator("accredit/<id>")``.

    Register it before Ray's workers start, in the process that starts them.

    Args:
        method: id or alias.
        **options: of `accredit.assign`.
    """

    def compute(
        *, token_level_rewards: Any, response_mask: Any, index: Any, values: Any = None, **_: Any
    ) -> tuple[Any, Any]:
        rows = PaddedRows(
            rewards=token_level_rewards,
            mask=response_mask,
            group=list(index),
            keep=[True] * len(response_mask),
            values=values,
        )
        found = padded_credit(rows, method, **options)
        return found.advantages, found.returns

    return compute


def stepwise_credit(
    data: Any,
    method: str,
    *,
    states: Sequence[Any] | None = None,
    rollout: Sequence[Hashable] | None = None,
    **options: Any,
) -> PaddedCredit:
    """Return credit of step-wise batches, where each row is a step: what a registry cannot do.

    SkyRL broadcasts one number a trajectory there; call this from an override of
    ``compute_advantages_and_returns`` and write ``.advantages`` and ``.returns`` into ``data``.

    Args:
        data: the training batch; rows of a trajectory follow each other and end at is_last_step.
        method: id or alias.
        states: state key of each row.
        rollout: id of each row's trajectory; None = counted by is_last_step.
        **options: of `accredit.assign`, and ``echo`` of `padded_credit`.

    Raises:
        DataError: if the last row ends no trajectory.
    """
    last = as_numpy(data.metadata["is_last_step"]).astype(bool)
    if last.size and not last[-1]:
        raise DataError("the last row ends no trajectory: is_last_step is False there", code="ACC872")
    number = np.cumsum(last) - last
    keys = set(data.keys())
    width = as_numpy(data["response_mask"]).shape[1]
    rows = PaddedRows(
        rewards=data["rewards"],
        mask=data["response_mask"],
        group=list(data.metadata["uids"]),
        rollout=[f"trajectory {n}" for n in number.tolist()] if rollout is None else rollout,
        keep=[True] * last.size,
        values=data["values"] if "values" in keys else None,
        tokens=data["sequences"][:, -width:] if "sequences" in keys else None,
        spans=[[(0, width)]] * last.size,
        states=None if states is None else [[s] for s in states],
        row_rewards="sum",
    )
    return padded_credit(rows, method, **options)
