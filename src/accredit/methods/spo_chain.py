"""SPO-chain: tokens between two cut points carry the change of value between them.

Source: arXiv 2505.23564; AIFrameResearch/SPO @ b9fc6a2 ``src/treetune/episode_generators/
math_episode_generator_with_mc_advantages.py``.  Differences: docs/methods/spo-chain.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from accredit.data import Column, Explanation, Parts, Term
from accredit.data.values import is_number
from accredit.errors import DataError
from accredit.index import Index, row_any
from accredit.methods._params import bounded, truncated_choice
from accredit.methods._registry import method
from accredit.methods._reweight import signal_T, step_mean
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["spo_chain"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `spo-chain`."""

    prob_mask: float = bounded(
        0.9, at_least=0, at_most=1, doc="tokens sampled with more than this probability get 0; 1 = none do"
    )
    truncated: str = truncated_choice()


@dataclass(frozen=True, slots=True)
class _Cuts:
    """Cut points of the batch in order; of two at one place the later one.

    Args:
        at_M: policy token that comes next ``[M]``.
        rollout_M: whose it is.
        value_M: V there.
        unknown: how many have no value.
    """

    at_M: Ints
    rollout_M: Ints
    value_M: Floats
    unknown: int


@method(
    "spo-chain",
    title="Change of value between two cut points, on the tokens between them",
    family="forks",
    params=Params,
    needs={"reward", "cutpoints", "cutpoint_values", "logprobs"},
    yields="token",
    tags=set(),
    cites="arXiv:2505.23564",
)
def spo_chain(index: Index, params: Params) -> Parts:
    """Segment advantage along one rollout.

    ``A_k = V_{i+1} - V_i`` for the tokens k after cut point i and up to the next one, and ``R - V_m``
    after the last: V at a cut point is the mean outcome of continuations from there.  Tokens before
    the first known value have 0, as have tokens that were sampled with probability above
    ``prob_mask``: they decided nothing.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Token credit ``[T]``, reward units.  ``steps``: the mean over the step's tokens.  ``parts``:
        ``segment``.  Extras ``[T]``: ``unmasked``, the credit without the mask.

    Raises:
        DataError: for cut points that do not ascend, lie outside their step, or have not one value each.
        MissingSignal: if a step with tokens has no log-probabilities.

    Source: arXiv 2505.23564; ``_compute_token_advantages``.

    Example:
        >>> import accredit as ac
        >>> step = {"logprobs": [-0.5, -0.7, -0.01, -1.0]}
        >>> step |= {"cutpoints": [-1, 1], "cutpoint_values": [0.25, 0.5]}
        >>> record = {"id": "a", "group": "g", "reward": 1, "steps": [step]}
        >>> ac.assign([record], "spo-chain").tokens.tolist()
        [0.25, 0.25, 0.0, 0.5]
    """
    counted = index.counted_R(params.truncated)
    cuts = _cuts(index)
    plain, known = _advantages(index, cuts, counted)
    values = np.where(np.exp(signal_T(index, "logprobs")) > params.prob_mask, 0.0, plain)
    steps = step_mean(index, values)
    informed = row_any(known, index.batch.token_start_S1)

    def explain(s: int) -> Explanation:
        inside = values[index.batch.token_start_S1[s] : index.batch.token_start_S1[s + 1]]
        text = f"mean of V after - V before over {inside.size} tokens, {int((inside == 0).sum())} of them 0"
        term = Term("segment", float(steps[s]), text)
        return Explanation("spo-chain", *index.place_of(s), float(steps[s]), (term,))

    return Parts(
        values,
        parts={"segment": values},
        steps=steps,
        informed_S=informed,
        fallbacks={"no_value": cuts.unknown},
        extras={"unmasked": plain},
        explain=explain,
    )


def _advantages(index: Index, cuts: _Cuts, counted: BoolArray) -> tuple[Floats, BoolArray]:
    """Return each token's segment's advantage ``[T]``, and which tokens have a value before them."""
    n = index.batch.n_tokens
    after = np.append(cuts.rollout_M[1:], -1) == cuts.rollout_M
    ends = np.where(after, np.append(cuts.value_M[1:], 0.0), index.score_R[cuts.rollout_M])
    stop_M = np.minimum(np.append(cuts.at_M[1:], n), index.token_start_R1[cuts.rollout_M + 1])
    # Tokens that no cut point of their rollout precedes, and those of each cut point, by turns.
    size = np.diff(np.stack([cuts.at_M, stop_M], axis=1).ravel(), prepend=0, append=n)
    known, found = np.zeros(size.size, bool), np.zeros(size.size)
    known[1::2] = counted[cuts.rollout_M]
    found[1::2] = np.where(known[1::2], ends - cuts.value_M, 0.0)
    return np.repeat(found, size), np.repeat(known, size)


def _cuts(index: Index) -> _Cuts:
    batch = index.batch
    points, values = batch.column("cutpoints_S"), batch.column("cutpoint_values_S")
    at: list[int] = []
    step: list[int] = []
    value: list[float | None] = []
    for s in np.flatnonzero(points.mask(batch.n_steps)).tolist():
        own, told = _listed(points, s), _listed(values, s)
        size = int(index.tokens_S[s])
        if not _fit(own, told, size):
            raise DataError(
                f"step {int(index.position_S[s])} of rollout {batch.ids[int(index.rollout_S[s])]!r} has "
                f"cut points {own[:8]} of {size} tokens, with values {told[:8]}",
                hint="Cut points ascend from -1 (before the first token) and have one value each",
            )
        at += [int(batch.token_start_S1[s]) + int(c) + 1 for c in own]
        step += [s] * len(own)
        value += told
    known = np.array([v is not None for v in value], bool)
    numbers = np.array([0.0 if v is None else v for v in value], np.float64)
    row = index.rollout_S[np.array(step, np.int64)]
    places, row, numbers = np.array(at, np.int64)[known], row[known], numbers[known]
    last = np.append((places[1:] != places[:-1]) | (row[1:] != row[:-1]), True)[: row.size]
    return _Cuts(places[last], row[last], numbers[last], int((~known).sum()))


def _listed(column: Column, s: int) -> list[Any]:
    return list(column.values[s]) if column.given(s) else []


def _fit(points: list[Any], values: list[Any], size: int) -> bool:
    """Return whether a step of so many tokens can have these cut points and values."""
    told = [v for v in values if v is not None]
    if len(points) != len(values) or not all(map(is_number, [*points, *told])):
        return False
    inside = all(-1 <= c < size and c == int(c) for c in points)
    return inside and all(a < b for a, b in pairwise(points))
