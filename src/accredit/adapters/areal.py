"""AReaL: advantages of the dict that ``PPOActor._compute_advantages(data)`` works on.

Source: AReaL 1.0.4 ``areal/trainer/ppo/actor.py``: input_ids, loss_mask, logprobs (bs, T), rewards
(bs,), values; masks and log-probabilities rolled by -1, so that index t predicts token t + 1; groups
are strides of ``group_size`` rows (read from source).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from accredit.adapters.arrays import as_numpy
from accredit.adapters.padded import PaddedCredit, PaddedRows, padded_credit
from accredit.errors import DataError, ParamError

__all__ = ["batch_credit"]


def batch_credit(
    data: Mapping[str, Any],
    method: str,
    *,
    group: Sequence[Hashable] | None = None,
    group_size: int | None = None,
    rollout: Sequence[Hashable] | None = None,
    rolled: bool = True,
    **options: Any,
) -> PaddedCredit:
    """Return the advantages of a batch; write ``.advantages`` into ``data["advantages"]``.

    Args:
        data: AReaL's dict of tensors.
        method: id or alias.
        group: id of each row's task; else ``group_size`` consecutive rows are one group.
        group_size: AReaL's own stride; only on request, as a missing row would shift all groups.
        rollout: id of each row's rollout where every call is a row (``individual`` export), whose
            rewards then add up; None = a row a rollout.
        rolled: masks and log-probabilities are rolled by -1 already.
        **options: of `accredit.assign`, and ``echo`` of `padded_credit`.

    Raises:
        DataError: if rows cannot be parted into groups of ``group_size``.
        ParamError: if neither groups nor their size are given.
    """
    size = len(data["loss_mask"])
    ids = as_numpy(data["input_ids"])
    rows = PaddedRows(
        rewards=data["rewards"],
        mask=data["loss_mask"],
        group=list(group) if group is not None else _strides(size, group_size),
        rollout=rollout,
        keep=[True] * size,
        tokens=np.roll(ids, -1, axis=1) if rolled else ids,
        logprobs=data.get("logprobs"),
        values=data.get("values"),
        row_rewards="repeat" if rollout is None else "sum",
        prompt_in_rows=True,
    )
    return padded_credit(rows, method, **options)


def _strides(size: int, group_size: int | None) -> list[Hashable]:
    if group_size is None:
        raise ParamError("AReaL rows have no group ids: give `group`, or `group_size` for its strides")
    if group_size < 1 or size % group_size:
        raise DataError(
            f"{size} rows are no groups of {group_size}: at least one row is missing",
            code="ACC872",
            hint="Give `group`, the id of each row's task",
        )
    return [f"rows {b // group_size * group_size}.." for b in range(size)]
