"""Padded tensors and ids in, advantages in the same layout out: what most trainers want.

Source: the rules that hold in every trainer (docs/adapters.md): the mask's shape, float32, zeros off
the mask, finite, no autograd history; a rollout counts once however many rows it has; groups by id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import accredit as ac
from accredit.adapters.arrays import as_kind_of, as_mask
from accredit.adapters.echo import check_echo, recorded_rows
from accredit.adapters.rows import Laid, PaddedRows, lay_out
from accredit.errors import DataError
from accredit.typing import Array, BoolArray, Floats

__all__ = ["PaddedCredit", "PaddedRows", "pad_credit", "padded_credit"]


@dataclass(frozen=True, slots=True)
class PaddedCredit:
    """Advantages in a trainer's layout, and the credit behind them.

    Args:
        advantages: ``[B, L]`` float32, numpy or torch as the mask was; 0 off the mask.
        returns: ``[B, L]``, what a critic learns: the method's own token returns, else the
            advantages, as outcome estimators of trainers do.
        credit: of the rollouts.
        left_out: numbers of the rows that are padding: they get 0 and join no statistics.
    """

    advantages: Any
    returns: Any
    credit: ac.Credit
    left_out: tuple[int, ...]


def padded_credit(
    rows: PaddedRows, method: str, *, echo: ac.Batch | None = None, whole: bool = True, **options: Any
) -> PaddedCredit:
    """Return the advantages of a trainer's padded rows by any method of the catalogue.

    Rows of one rollout are joined: the rollout counts once in every statistic, and its credit is
    written to each row under the row's own mask.

    Args:
        rows: the batch.
        method: id, alias, or ``"id:name=value,…"``.
        echo: the rollouts as they were sampled, by the same rollout ids: token ids and masks are
            checked against them.
        whole: with ``echo``, every recorded row must be there.
        **options: of `accredit.assign`: parameters of the method, ``key``, ``spread`` …

    Returns:
        ``.advantages`` ``[B, L]`` float32 of the mask's kind, and what stands behind them.

    Raises:
        DataError: if rows do not fit together or are not the recorded ones.
        MissingSignal: if the method needs what the rows lack.

    Example:
        >>> rows = PaddedRows(rewards=[1.0, 0.0], mask=[[1, 1, 0], [1, 0, 0]], group=["g", "g"])
        >>> padded_credit(rows, "dr-grpo").advantages.tolist()
        [[0.5, 0.5, 0.0], [-0.5, 0.0, 0.0]]
    """
    laid = lay_out(rows)
    if echo is not None:
        check_echo(
            echo,
            mask=laid.mask,
            tokens=rows.tokens,
            rollout=laid.ids,
            order=laid.order,
            keep=[b not in laid.left_out for b in range(len(laid.mask))],
            whole=whole,
            prompt_in_rows=rows.prompt_in_rows,
        )
    credit = ac.assign(laid.batch, method, **options)
    advantages = _scattered(laid, credit.tokens)
    returns = _scattered(laid, _token_returns(credit))
    kind = rows.mask
    return PaddedCredit(as_kind_of(kind, advantages), as_kind_of(kind, returns), credit, laid.left_out)


def _scattered(laid: Laid, tokens: Floats) -> Array:
    found = np.zeros(laid.mask.size, np.float32)
    found[laid.place_T] = tokens
    return _checked(found.reshape(laid.mask.shape), laid.mask)


def _token_returns(credit: ac.Credit) -> Floats:
    returns = credit.extras.get("returns")
    if returns is not None and credit.per_token and returns.shape == credit.tokens.shape:
        return returns
    return credit.tokens


def _checked(found: Array, mask: BoolArray) -> Array:
    """What leaves an adapter has the mask's shape, is finite, and 0 off the mask."""
    bad = np.argwhere(~np.isfinite(found))
    if bad.size:
        row, position = bad[0].tolist()
        raise DataError(
            f"row {row} position {position}: the advantage does not fit into float32",
            hint="The rewards are too large; scale them down",
        )
    assert not found[~mask].any()
    return found


def pad_credit(
    credit: ac.Credit,
    *,
    mask: Any,
    tokens: Any = None,
    rollout: Any,
    order: Any = None,
    whole: bool = True,
    prompt_in_rows: bool = False,
) -> Any:
    """Return credit that was assigned elsewhere in the layout of a trainer's rows.

    For trainers whose hook sees one data-parallel rank: assign on all rollouts first, then lay out
    each rank's rows.

    Args:
        credit: of the recorded rollouts.
        mask: ``[B, L]``, 1 at policy tokens.
        tokens: ids ``[B, L]``, checked against the recorded ones; None = only masks are checked.
        rollout: rollout id of each row ``[B]``.
        order: number of each row within its rollout; None = all 0.
        whole: every recorded row must be there; False for a part of them.
        prompt_in_rows: rows begin with the prompt.

    Returns:
        ``[B, L]`` float32, of the mask's kind.

    Raises:
        DataError: if a row is not the recorded one.

    Example:
        >>> records = [{"id": i, "group": "g", "reward": r, "steps": [{"tokens": [7, 8]}]}
        ...            for i, r in (("a", 1), ("b", 0))]
        >>> credit = ac.assign(records, "dr-grpo")
        >>> pad_credit(credit, mask=[[1, 1, 0]], rollout=["b"], whole=False).tolist()
        [[-0.5, -0.5, 0.0]]
    """
    check_echo(
        credit.batch,
        mask=mask,
        tokens=tokens,
        rollout=rollout,
        order=order,
        whole=whole,
        prompt_in_rows=prompt_in_rows,
    )
    where = as_mask(mask)
    starts = _row_starts(credit)
    found = np.zeros(where.shape, np.float32)
    for b, name in enumerate(rollout):
        first, last = starts[str(name), 0 if order is None else int(order[b])]
        found[b, where[b]] = credit.tokens[first:last]
    return as_kind_of(mask, _checked(found, where))


def _row_starts(credit: ac.Credit) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the half-open token range of each recorded row, by rollout and number."""
    start = credit.batch.token_start_S1
    return {
        (name, number): (int(start[first]), int(start[first + len(record["steps"])]))
        for name, number, first, record in recorded_rows(credit.batch)
    }
