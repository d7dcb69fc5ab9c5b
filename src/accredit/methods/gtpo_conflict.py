"""GTPO, the trajectory-based one: tokens that right and wrong completions share at their ends.

Source: arXiv 2508.03772; winstonsmith1897/GTPO ``build_conflict_mask``.  Not the entropy-weighted
method of the same name (`gtpo`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from accredit.data import Finding, Parts
from accredit.index import Index, segment_sum
from accredit.methods._params import bounded, choice, flag
from accredit.methods._registry import method
from accredit.methods._reweight import (
    base_credit,
    column_T,
    counted_T,
    reweighted,
    rollout_T,
    signal_T,
    step_value,
)
from accredit.typing import Array, BoolArray, Floats, Ints

__all__ = ["gtpo_conflict"]

Place: TypeAlias = Callable[[Ints, int], Ints]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `gtpo_conflict`."""

    w_pos: float = bounded(2.0, at_least=0, doc="weight of a conflict token of a positive completion")
    w_neg: float = bounded(0.0, at_least=0, doc="weight of a conflict token of a negative completion")
    suffix: str = choice(
        "aligned", "unflipped", doc="conflict, n_conflict: where the suffix run lies, or as the code puts it"
    )
    divide: bool = flag(default=False, doc="divide a completion by its number of conflict tokens")
    entropy_terms: bool = flag(default=False, doc="subtract mean entropy, drop uncertain completions")
    entropy_weight: float = bounded(0.1, at_least=0, doc="entropy_terms: reward units a nat")
    entropy_limit: float = bounded(0.7, at_least=0, doc="entropy_terms: mean entropy above it gives 0, nats")


@method(
    "gtpo-conflict",
    title="Tokens that right and wrong completions share at the ends count double, or not at all",
    family="tokens: shared tokens",
    params=Params,
    needs={"reward|rewards", "tokens"},
    yields="token",
    tags={"reweights"},
    cites="arXiv:2508.03772",
    compat={"code": {"suffix": "unflipped"}},
)
def gtpo_conflict(index: Index, params: Params, *, base: str | None = None) -> Parts:
    """Advantage times a weight of the tokens that completions of both signs share at their ends.

    A token is in conflict where at its position (of the rollout's policy tokens) a positive and a
    negative completion of the group have the same id; each completion's forward run ends at its
    first token that is not.  The backward run is the same, counted from the end.  Weight in a run:
    ``w_pos`` in positive, ``w_neg`` in negative completions, 1 elsewhere; both runs multiply.  With
    ``w_pos = w_neg = 1`` it is the base.

    A completion is positive or negative by the mean of its tokens under the base; at 0 it keeps
    weight 1 and is nobody's partner.

    Args:
        index: of the batch; ``tokens`` are policy token ids.
        params: see `Params`.
        base: method under it; None = ``grpo``.

    Returns:
        Token credit ``[T]``.  Extras: ``weight``, ``conflict`` (1 = in a run) ``[T]``,
        ``n_conflict`` ``[R]`` (at least 1).

    Raises:
        MissingSignal: a step with tokens has no ids, or with ``entropy_terms`` no entropies.

    Source: arXiv 2508.03772; winstonsmith1897/GTPO.
    """
    under = base_credit(index, base)
    sign_R = _signs(index, under.tokens)
    ids = column_T(index, "tokens")
    first, size = index.token_start_R1[:-1], index.tokens_R
    forward = _runs(index, ids, sign_R, lambda rows, t: first[rows] + t)
    backward = _runs(index, ids, sign_R, lambda rows, t: first[rows] + size[rows] - 1 - t)
    row = rollout_T(index)
    place = np.arange(row.size) - first[row]
    at_start, at_end = place < forward[row], size[row] - 1 - place < backward[row]
    factor = np.where(sign_R > 0, params.w_pos, params.w_neg)[row]
    weight = np.where(at_start, factor, 1.0) * np.where(at_end, factor, 1.0)
    shown = at_end if params.suffix == "aligned" else place < backward[row]
    conflict = at_start | shown
    number = np.maximum(segment_sum(conflict, row, len(index.batch)), 1.0)
    values = _with_entropy(index, under.tokens, params) * weight
    if params.divide:
        values = values / number[row]

    def text(s: int) -> str:
        r = int(index.rollout_S[s])
        return (
            f"mean weight {step_value(index, weight, s, 1.0):.4g} of the step's tokens; the rollout shares "
            f"{forward[r]} tokens at its start and {backward[r]} at its end with others of the other sign"
        )

    return reweighted(
        index,
        under,
        values,
        id="gtpo-conflict",
        name="conflict",
        text=text,
        inputs=lambda s: {"weight": step_value(index, weight, s, 1.0)},
        findings=_overlaps(at_start & at_end),
        extras={"weight": weight, "conflict": conflict.astype(np.float64), "n_conflict": number},
    )


def _signs(index: Index, advantage: Floats) -> Array:
    """Return the sign of each rollout's mean advantage ``[R]``; 0 where nothing of it is trained."""
    n = len(index.batch)
    row = rollout_T(index)
    found = np.sign(segment_sum(advantage, row, n))
    return np.where(segment_sum(counted_T(index), row, n) > 0, found, 0.0)


def _runs(index: Index, ids: Array, sign_R: Array, place: Place) -> Ints:
    """Return how many tokens of each rollout, from one end, are in conflict without a gap ``[R]``.

    Position after position, over the groups in which a run still goes on.
    """
    found = np.zeros(len(index.batch), np.int64)
    rows = np.flatnonzero(sign_R != 0)  # candidates as partners, those with ended runs too
    going = np.ones(rows.size, bool)
    t = 0
    while rows.size:
        there = index.tokens_R[rows] > t
        rows, going = rows[there], going[there]
        going &= _shared(index.group_R[rows], ids[place(rows, t)], sign_R[rows] > 0)
        found[rows[going]] += 1
        alive = np.zeros(index.n_groups, bool)
        alive[index.group_R[rows[going]]] = True
        kept = alive[index.group_R[rows]]
        rows, going = rows[kept], going[kept]
        t += 1
    return found


def _shared(group: Ints, ids: Array, positive: BoolArray) -> BoolArray:
    """Return which ids occur in their group in a positive and in a negative completion."""
    if not ids.size:
        return np.zeros(0, bool)
    order = np.lexsort((ids, group))
    new = (np.diff(ids[order]) != 0) | (np.diff(group[order]) != 0)
    code = np.empty(ids.size, np.int64)
    code[order] = np.concatenate([[0], np.cumsum(new)])
    right = np.bincount(code, positive)
    both = (right > 0) & (right < np.bincount(code))
    found: BoolArray = both[code]
    return found


def _with_entropy(index: Index, advantage: Floats, params: Params) -> Floats:
    """Return the advantage less a share of the completion's mean entropy, 0 where that is large."""
    if not params.entropy_terms:
        return advantage
    row, counted, n = rollout_T(index), counted_T(index), len(index.batch)
    size = np.maximum(segment_sum(counted, row, n), 1)
    mean = (segment_sum(signal_T(index, "entropies") * counted, row, n) / size)[row]
    moved = np.where(mean > params.entropy_limit, 0.0, advantage - params.entropy_weight * mean)
    return np.where(counted, moved, advantage)


def _overlaps(both: BoolArray) -> tuple[Finding, ...]:
    n = int(both.sum())
    if not n:
        return ()
    text = f"{n} tokens lie in the run from the beginning and in that from the end: their weight is squared"
    return (Finding("ACC444", "info", text, hint="Only short completions do this", count=n),)
