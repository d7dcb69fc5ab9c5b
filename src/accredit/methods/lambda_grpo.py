"""Lambda-GRPO: long or short rollouts of a group weigh more.

Source: arXiv 2510.06870; grpo-composer ``GroupLearnableAggregation`` (a third party's form of it).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Parts
from accredit.index import GroupStats, Index, segment_sum
from accredit.methods._params import bounded
from accredit.methods._registry import method
from accredit.methods._reweight import base_credit, reweighted, rollout_T
from accredit.typing import Floats

__all__ = ["lambda_grpo"]

_LEAST = 1e-6  # of h


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `lambda_grpo`."""

    lam: float = bounded(0.0, doc="lambda: below 0 favours short rollouts, above 0 long ones, 0 none")
    r: float = bounded(1 / 9, at_least=0, doc="slope of h on the standardised length")


@method(
    "lambda-grpo",
    title="Advantage weighed by the rollout's length against its group",
    family="tokens: length",
    params=Params,
    needs={"reward|rewards"},
    yields="token",
    tags={"reweights"},
    cites="arXiv:2510.06870",
)
def lambda_grpo(index: Index, params: Params, *, base: str | None = None) -> Parts:
    """Advantage times the rollout's share of its group by length.

    ``z_i = (T_i - mean T) / std T`` (population) over the group, ``h_i = max(1 + r z_i, 1e-6)``,
    ``f_i = G softmax_i(h_i^lambda)``, ``A'_t = A_t f_i``.  With ``lam=0`` it is the base.  Lambda is
    learnt in the paper; here it is a number.

    Args:
        index: of the batch.
        params: see `Params`.
        base: method under it; None = ``grpo``.

    Returns:
        Token credit ``[T]``.  Extras: ``factor`` ``[R]``, which sums to the size of each group; 1
        for an unscored or rejected rollout.

    Source: arXiv 2510.06870; Wodlfvllf/grpo-composer.
    """
    under = base_credit(index, base)
    factor = _factor(index, params)
    rollout_S = index.rollout_S

    def text(s: int) -> str:
        r = int(rollout_S[s])
        return f"(f - 1) A, f = {factor[r]:.4g} for {int(index.tokens_R[r])} tokens, lambda {params.lam:g}"

    return reweighted(
        index,
        under,
        under.tokens * factor[rollout_T(index)],
        id="lambda-grpo",
        name="length",
        text=text,
        inputs=lambda s: {"factor": float(factor[rollout_S[s]])},
        extras={"factor": factor},
    )


def _factor(index: Index, params: Params) -> Floats:
    """Return f ``[R]``."""
    ids, n = index.group_R, index.n_groups
    counted = index.scored_R if index.batch.has("reward_R") else np.ones(len(index.batch), bool)
    lengths = GroupStats(index.tokens_R.astype(np.float64), ids, n, counted)
    z = lengths.centred / np.maximum(lengths.std(ddof=0), 1e-8)[ids]
    height = np.maximum(1.0 + params.r * z, _LEAST)
    power = np.exp(np.clip(params.lam * np.log(height), -700.0, 700.0))
    top = np.full(n, -np.inf)
    np.maximum.at(top, ids[counted], power[counted])
    share = np.exp(np.where(counted, power - top[ids], -np.inf))
    total = segment_sum(share, ids, n)
    found: Floats = np.where(counted, share / np.maximum(total, 1e-300)[ids] * lengths.size[ids], 1.0)
    return found
