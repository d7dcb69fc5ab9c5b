"""Objects with token lists: what the adapters of verifiers, Tinker, rLLM and ART share.

Each of them makes native records of its objects, and hands credit back as one list of numbers a step,
after the same checks as everywhere: every object once, every token id as it was sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import accredit as ac
from accredit.adapters.arrays import as_numpy
from accredit.adapters.echo import check_ids, match_rows
from accredit.errors import DataError

__all__ = ["check_objects", "credit_of", "flat", "masked_ids", "step_advantages"]


def check_objects(credit: ac.Credit, ids: Sequence[str], *, whole: bool = True) -> None:
    """Check that objects are the rollouts of a result: each there, none twice, none unknown.

    Args:
        credit: the result.
        ids: rollout id of each object.
        whole: every rollout must have an object.

    Raises:
        DataError: ACC872 or ACC873, naming the rollout.
    """
    match_rows(((name, 0) for name in credit.batch.ids), [(str(i), 0) for i in ids], whole=whole)


def step_advantages(
    credit: ac.Credit, rollout: str, held: Sequence[Any], *, counts: bool = False
) -> list[list[float]]:
    """Return one list of token advantages a step, for the token ids that a trainer holds.

    Args:
        credit: the result.
        rollout: its id.
        held: token ids of each step as the trainer holds them; with ``counts`` their numbers.
        counts: the trainer knows no ids.

    Raises:
        DataError: if steps, numbers of tokens or ids are not those that were credited.

    Example:
        >>> records = [{"id": i, "group": "g", "reward": r, "steps": [{"tokens": [7, 8]}]}
        ...            for i, r in (("a", 1), ("b", 0))]
        >>> step_advantages(ac.assign(records, "dr-grpo"), "a", [[7, 8]])
        [[0.5, 0.5]]
    """
    batch = credit.batch
    steps = batch.steps_of(batch.position(rollout))
    if len(held) != len(steps):
        raise DataError(
            f"rollout {rollout!r} has {len(held)} steps, {len(steps)} were credited",
            code="ACC872" if len(held) < len(steps) else "ACC873",
        )
    ids = batch.token_T if batch.has("token_T") else None
    found = []
    for t, s in enumerate(steps):
        first, last = (int(n) for n in batch.token_start_S1[s : s + 2])
        _check(rollout, t, last - first, None if ids is None else ids[first:last], held[t], counts=counts)
        found.append(_finite(credit.tokens[first:last]))
    return found


def _check(rollout: str, t: int, n: int, ids: Any, held: Any, *, counts: bool) -> None:
    name = f"rollout {rollout!r} step {t}"
    if counts or ids is None:
        got = int(held) if counts else len(held)
        if got != n:
            raise DataError(
                f"{name} has {got} policy tokens, {n} were credited",
                code="ACC871",
                hint="The mask must be 1 exactly at the sampled tokens",
            )
    else:
        check_ids(ids, held, name)


def _finite(values: Any) -> list[float]:
    assert np.isfinite(values).all()
    return [float(v) for v in values]


def flat(steps: Sequence[Sequence[float]]) -> list[float]:
    """Return the advantages of all steps, joined.

    Example:
        >>> flat([[1.0], [2.0, 3.0]])
        [1.0, 2.0, 3.0]
    """
    return [value for step in steps for value in step]


def credit_of(records: Sequence[Any], method: str, **options: Any) -> ac.Credit:
    """Return `accredit.assign` on records, refusing records that cannot be used.

    Raises:
        DataError: naming the first such record: a trainer must not train on a part in silence.
    """
    batch = ac.Batch.from_records(records)
    if batch.excluded:
        lost = batch.excluded[0]
        raise DataError(f"rollout {lost.id!r} cannot be used: {lost.reason}", code="ACC875")
    return ac.assign(batch, method, **options)


def masked_ids(ids: Any, mask: Any, name: str) -> list[int]:
    """Return the ids where the mask is not 0.

    Args:
        ids: token ids.
        mask: as long.
        name: of the place, for messages.

    Raises:
        DataError: if their lengths differ.
    """
    left, right = as_numpy(ids).ravel(), as_numpy(mask).ravel()
    if left.size != right.size:
        raise DataError(f"{name} has {left.size} token ids and a mask of {right.size}", code="ACC871")
    return [int(i) for i in left[right != 0]]
