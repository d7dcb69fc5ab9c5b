"""EAPO: uncertain tokens of successes earn more, uncertain tokens of failures are spared.

Source: arXiv 2609.33781; code wgcyeo/EAPO, ``normalize_token_entropies``, ``eapo_token_advantages``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accredit.data import Parts
from accredit.errors import ParamError
from accredit.index import Index, segment_extremes
from accredit.methods._params import bounded, choice
from accredit.methods._populations import Pools, mean_one
from accredit.methods._registry import get_method, method
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
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["eapo"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `eapo`."""

    kappa: float = bounded(
        math.log(4), at_least=0, doc="log of the largest ratio between two tokens of a rollout"
    )
    population: str = choice("batch", "group", doc="where the quantiles of entropy are taken")
    q_low: float = bounded(0.1, at_least=0, at_most=1, doc="quantile of entropy that counts as 0")
    q_high: float = bounded(0.9, at_least=0, at_most=1, doc="quantile of entropy that counts as 1")
    eps: float = bounded(1e-8, above=0, doc="added to the distance of the quantiles, nats")
    kappa_decay_steps: int = bounded(0, at_least=0, doc="optimiser steps until kappa is 0; 0 = it stays")
    optimiser_step: int = bounded(0, at_least=0, doc="steps done, for the decay of kappa")


@method(
    "eapo",
    title="Uncertain tokens earn more in successes and are spared in failures",
    family="tokens: entropy",
    params=Params,
    needs={"reward|rewards", "entropies"},
    yields="token",
    tags={"reweights", "cross_group", "amplifies_uncertain_successes", "attenuates_uncertain_failures"},
    cites="arXiv:2609.33781",
)
def eapo(index: Index, params: Params, *, base: str | None = None) -> Parts:
    """Advantage moved within a rollout by entropy, whose mean it keeps.

    ``h_t = clip((H_t - q10) / (q90 - q10 + eps), 0, 1)``, quantiles over the policy tokens of the
    batch; ``w_t = exp(kappa sign(A) h_t)`` over its mean in the rollout; ``A'_t = A w_t``.  With
    ``kappa=0`` it is the base.  Under a base that tells steps apart the mean is over the step.

    Where q10 = q90 every entropy above it has h = 1, and every other h = 0.

    Args:
        index: of the batch; ``entropies`` of the sampling policy at every policy token.
        params: see `Params`.
        base: method under it, the same number for all tokens of a step; None = ``grpo``.

    Returns:
        Token credit ``[T]`` of the base's sign and the base's mean in each rollout (step); the
        largest weight of a rollout is at most ``exp(kappa)`` times its smallest.  Extras:
        ``normalized_entropy`` (h), ``weight`` (w) ``[T]``.

    Raises:
        MissingSignal: a step with tokens has no entropies.
        ParamError: if ``q_low`` is not below ``q_high``, or the base tells tokens apart.

    Source: arXiv 2609.33781; wgcyeo/EAPO.
    """
    if params.q_low >= params.q_high:
        raise ParamError(f"q_low must be below q_high, got {params.q_low:g} and {params.q_high:g}")
    under = base_credit(index, base)
    if under.by_token:
        raise ParamError(
            f"base {under.name!r} tells the tokens of a step apart; eapo shares out one number",
            hint="Take a base with one number a rollout or step, such as grpo or gigpo",
        )
    counted = counted_T(index)
    height = _height(index, signal_T(index, "entropies"), counted, params)
    kappa = _kappa(params)
    ids, n = _shared(index, under)
    weight = mean_one(_exponential(kappa * np.sign(under.tokens) * height, ids, n), ids, n, counted)

    def inputs(s: int) -> dict[str, float]:
        return {"h": step_value(index, height, s), "weight": step_value(index, weight, s, 1.0)}

    def text(s: int) -> str:
        mean = inputs(s)
        return (
            f"(w - 1) A, w = exp({kappa:.4g} sign(A) h) over its mean; mean h {mean['h']:.4g}, "
            f"mean w {mean['weight']:.4g} of the step's tokens"
        )

    return reweighted(
        index,
        under,
        under.tokens * weight,
        id="eapo",
        name="entropy",
        text=text,
        inputs=inputs,
        extras={"normalized_entropy": height, "weight": weight},
    )


def _height(index: Index, entropy: Floats, counted: BoolArray, params: Params) -> Floats:
    """Return h ``[T]``; 0 on tokens that do not count."""
    ids, n = population_T(index, params.population)
    pools = Pools(entropy, ids, n, counted)
    low, high = pools.quantile(params.q_low), pools.quantile(params.q_high)
    found = entropy - low[ids]
    found /= (high - low + params.eps)[ids]
    np.clip(found, 0.0, 1.0, out=found)
    if not counted.all():
        found[~counted] = 0.0
    return found


def _exponential(power: Floats, ids: Ints, n: int) -> Floats:
    """Return exp of powers minus the largest of their row: a factor that the mean takes out again."""
    power -= segment_extremes(power, ids, n)[1][ids]
    return np.exp(power, out=power)


def _kappa(params: Params) -> float:
    if math.isinf(params.kappa):
        raise ParamError("kappa must be finite, got inf")
    if not params.kappa_decay_steps:
        return params.kappa
    return params.kappa * (1.0 - min(params.optimiser_step / params.kappa_decay_steps, 1.0))


def _shared(index: Index, under: BaseCredit) -> tuple[Ints, int]:
    """Return the rows whose mean is kept: rollouts, or steps where the base tells them apart."""
    if "broadcast" in get_method(under.name)[0].card.tags:
        return rollout_T(index), len(index.batch)
    return index.step_T, index.batch.n_steps
