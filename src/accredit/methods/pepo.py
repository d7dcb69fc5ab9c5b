"""PEPO: successes are credited where a token is uncertain beside its neighbours.

Source: arXiv 2609.39402, Eq. 6-8 and App. C.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Finding, Parts
from accredit.index import Index
from accredit.methods._params import bounded, choice
from accredit.methods._populations import mean_one
from accredit.methods._proximal import proximal_entropy
from accredit.methods._registry import method
from accredit.methods._reweight import (
    BaseCredit,
    base_credit,
    counted_T,
    reweighted,
    rollout_T,
    signal_T,
    step_value,
)
from accredit.spread import population_T
from accredit.typing import BoolArray

__all__ = ["pepo", "proximal_entropy", "window_finding"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `pepo`."""

    window: int = bounded(101, at_least=1, doc="W: tokens of the window, the token itself included")
    temperature: float = bounded(1.0, above=0, doc="of the softmax over the window")
    window_scope: str = choice(
        "rollout", "step", doc="windows and weights over a rollout's tokens or a step's"
    )
    apply_to: str = choice(
        "success", "positive_advantage", "all", doc="which tokens are reweighted; the others keep the base"
    )
    success_threshold: float = bounded(1.0, doc="apply_to=success: an outcome at or above it")


@method(
    "pepo",
    title="Successes credited where a token is uncertain beside its neighbours",
    family="tokens: entropy",
    params=Params,
    needs={"reward", "entropies"},
    yields="token",
    tags={"reweights", "amplifies_uncertain_successes"},
    cites="arXiv:2609.39402",
)
def pepo(index: Index, params: Params, *, base: str | None = None) -> Parts:
    """Advantage of successful rollouts, moved to locally uncertain tokens.

    ``e_t = exp(H_t) / sum_{|k-t| <= W/2} exp(H_k)``, the rollout mirrored at its ends;
    ``c_t = T e_t / sum_k e_k``, T the rollout's policy tokens; ``A'_t = c_t A_t`` in successes,
    ``A_t`` in failures.  With ``window=1``, or equal entropies, it is the base.

    Args:
        index: of the batch; ``entropies`` of the sampling policy at every policy token.
        params: see `Params`.
        base: method under it; None = ``grpo``.

    Returns:
        Token credit ``[T]`` of the base's sign; a base that is constant in a rollout keeps its sum
        there.  Extras: ``proximal_entropy`` (e), ``weight`` (c, 1 where not applied) ``[T]``.

    Raises:
        MissingSignal: a step with tokens has no entropies.

    Source: arXiv 2609.39402, Eq. 6-8, App. C.2.
    """
    under = base_credit(index, base)
    by_step = params.window_scope == "step"
    start = index.batch.token_start_S1 if by_step else index.token_start_R1
    proximal = proximal_entropy(
        signal_T(index, "entropies"), params.window, temperature=params.temperature, start=start
    )
    ids, n = population_T(index, params.window_scope)
    weight = mean_one(proximal, ids, n, counted_T(index))
    weight[~_applied(index, under, params)] = 1.0

    def text(s: int) -> str:
        return (
            f"(c - 1) A, mean of the step's tokens; mean c {step_value(index, weight, s, 1.0):.4g} from "
            f"entropies against {2 * (params.window // 2)} neighbours"
        )

    return reweighted(
        index,
        under,
        under.tokens * weight,
        id="pepo",
        name="proximal entropy",
        text=text,
        inputs=lambda s: {"weight": step_value(index, weight, s, 1.0)},
        findings=(*window_finding(params.window), *_graded(index, params)),
        extras={"proximal_entropy": proximal, "weight": weight},
    )


def _applied(index: Index, under: BaseCredit, params: Params) -> BoolArray:
    if params.apply_to == "all":
        return np.ones(under.tokens.size, bool)
    if params.apply_to == "positive_advantage":
        return under.tokens > 0
    won: BoolArray = (index.scored_R & (index.outcome_R >= params.success_threshold))[rollout_T(index)]
    return won


def window_finding(width: int) -> tuple[Finding, ...]:
    """Return a finding for a window of an even number of tokens, which cannot lie around its token."""
    if width % 2:
        return ()
    text = f"window={width} is even: {width // 2} tokens on each side and the token itself are {width + 1}"
    return (Finding("ACC440", "info", text, hint=f"Say window={width + 1}"),)


def _graded(index: Index, params: Params) -> tuple[Finding, ...]:
    if params.apply_to != "success":
        return ()
    kinds = np.unique(index.outcome_R[index.scored_R]).size
    if kinds <= 2:
        return ()
    low = int((index.scored_R & (index.outcome_R < params.success_threshold)).sum())
    text = (
        f"the rewards have {kinds} values; {low} rollouts below {params.success_threshold:g} are failures "
        "and keep the base's credit"
    )
    hint = "Say apply_to='positive_advantage' for graded rewards"
    return (Finding("ACC441", "warning", text, hint=hint, count=low),)
