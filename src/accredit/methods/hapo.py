"""HAPO: magnitude moves towards uncertain tokens, in successes and failures; and its four quadrants.

Source: arXiv 2604.11056 v1 (there called EAPO, which is another method here), Eq. 6-7, App. B.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from accredit.data import Batch, Parts
from accredit.errors import MissingSignal, ParamError
from accredit.index import GroupStats, Index
from accredit.methods._params import bounded, choice, make_params, some_of
from accredit.methods._populations import Pools
from accredit.methods._registry import method
from accredit.methods._reweight import (
    base_credit,
    counted_T,
    reweighted,
    signal_T,
    step_value,
)
from accredit.spread import population_T
from accredit.typing import Array, BoolArray, Floats

__all__ = ["QUADRANTS", "Quadrants", "hapo", "quadrants"]

QUADRANTS = ("PHR", "PLR", "NHR", "NLR")


@dataclass(frozen=True, slots=True)
class ThresholdParams:
    """Which entropies count as high, for the four quadrants."""

    tau: str = choice("group_mean", "median", doc="entropies at or above it are high, in each group")
    percentile: float | None = bounded(
        None, at_least=0, at_most=100, doc="in place of tau: high is above this percentile of the group"
    )
    threshold: float | None = bounded(None, doc="in place of tau: high is at or above it, nats")
    proxy: str = choice("none", "surprisal", doc="surprisal = -logprob stands for an entropy that is absent")


@dataclass(frozen=True, slots=True)
class Params(ThresholdParams):
    """Parameters of `hapo`."""

    alpha: float = bounded(0.2, at_least=0, at_most=1, doc="strength of the entropy term")
    phi: float = bounded(2.0, above=0, at_most=np.inf, doc="the term is at most |A| / phi; above alpha")
    population: str = choice("group", "batch", "rollout", doc="where entropies are standardised")
    eps: float = bounded(1e-8, at_least=0, doc="added to the deviation of the entropies")
    keep: tuple[str, ...] | None = some_of(*QUADRANTS, doc="quadrants that keep their advantage; None = all")
    ablate: tuple[str, ...] | None = some_of(*QUADRANTS, doc="quadrants without the entropy term")


@method(
    "hapo",
    title="Advantage grows with the token's entropy against its group, in successes and failures",
    family="tokens: entropy",
    params=Params,
    needs={"reward|rewards", "entropies|logprobs"},
    yields="token",
    tags={"reweights", "amplifies_uncertain_successes", "amplifies_uncertain_failures"},
    cites="arXiv:2604.11056",
)
def hapo(index: Index, params: Params, *, base: str | None = None) -> Parts:
    """Advantage plus the standardised entropy, bounded by a share of the advantage.

    ``z_t = (H_t - mean H) / (std H + eps)`` over the group's policy tokens, population std;
    ``C_t = clip(z_t, -|A_t|/phi, |A_t|/phi)``; ``A'_t = A_t + alpha sign(A_t) C_t``, so that
    ``A'_t / A_t`` lies within ``1 -/+ alpha/phi``.  With ``alpha=0`` or ``phi=inf`` it is the base.

    Four Quadrant Decomposition: P or N by the sign of A, H or L by entropy against ``tau``; tokens
    with A = 0 are in none.  ``ablate`` leaves A as it is in some quadrants, ``keep`` sets the
    others to 0 afterwards.

    Args:
        index: of the batch; ``entropies`` of the sampling policy at every policy token.
        params: see `Params`.
        base: method under it; None = ``grpo``.

    Returns:
        Token credit ``[T]`` of the base's sign.  Extras: ``z``, ``quadrant`` (0 = none, 1..4 = PHR,
        PLR, NHR, NLR) ``[T]``, ``tau`` ``[G]`` (nats).

    Raises:
        MissingSignal: a step with tokens has no entropies; nothing stands in for them unasked.
        ParamError: if phi is not above alpha, or two thresholds are given.

    Source: arXiv 2604.11056 v1, Eq. 6-7 and App. B.1.
    """
    if params.phi <= params.alpha:
        raise ParamError(f"phi must be above alpha, else signs flip; got {params.phi:g} and {params.alpha:g}")
    under = base_credit(index, base)
    entropy, counted = _entropy(index, params), counted_T(index)
    ids, n = population_T(index, params.population)
    stats = GroupStats(entropy, ids, n, counted)
    z = _standardised(stats, params.eps)
    of_groups = (
        stats if params.population == "group" else GroupStats(entropy, *population_T(index, "group"), counted)
    )
    tau_G, high = _high(of_groups, params)
    label = _labels(under.tokens, high)
    values = np.abs(under.tokens)  # one array serves as bound, then as result: each is 80 MB for 10 M tokens
    values /= params.phi
    score = np.minimum(z, values)
    np.maximum(score, np.negative(values, out=values), out=score)
    if params.ablate:
        score[_among(label, params.ablate)] = 0.0
    np.sign(under.tokens, out=values)
    values *= params.alpha
    values *= score
    values += under.tokens
    if params.keep is not None:
        values[~_among(label, params.keep)] = 0.0

    def inputs(s: int) -> dict[str, float]:
        return {"z": step_value(index, z, s), "score": step_value(index, score, s)}

    def text(s: int) -> str:
        mean = inputs(s)
        return (
            f"{params.alpha:g} sign(A) clip(z, -|A|/{params.phi:g}, |A|/{params.phi:g}), mean of the step's "
            f"tokens; mean z {mean['z']:.4g}, mean of the clipped z {mean['score']:.4g}"
        )

    return reweighted(
        index,
        under,
        values,
        id="hapo",
        name="entropy",
        text=text,
        inputs=inputs,
        extras={"z": z, "quadrant": label, "tau": tau_G},
    )


@dataclass(frozen=True, slots=True)
class Quadrants:
    """The four quadrants of some rollouts' tokens.

    Args:
        label_T: quadrant of each policy token, 0 = none (A = 0, or not trained), 1..4 in the order
            of `QUADRANTS`.
        counts: tokens of each quadrant.
        advantage: share of each in sum |A|; all 0 where it is 0.
        gradient: share in sum |A| (1 - exp(logprob)), the size of the gradient by the sampled
            token's logit; None where there are no logprobs.
        tau_G: threshold of each group, nats.
    """

    label_T: Array
    counts: Mapping[str, int]
    advantage: Mapping[str, float]
    gradient: Mapping[str, float] | None
    tau_G: Floats


def quadrants(
    rollouts: Batch | Iterable[Mapping[str, Any]], *, base: str | None = None, **thresholds: Any
) -> Quadrants:
    """Return the Four Quadrant Decomposition of rollouts: polarity of A by height of entropy.

    Args:
        rollouts: a Batch or records, with ``entropies``.
        base: method that gives A; None = ``grpo``.
        **thresholds: ``tau``, ``percentile``, ``threshold`` or ``proxy``, as in `hapo`.

    Returns:
        Labels, counts and shares over the trained tokens.

    Raises:
        MissingSignal: a step with tokens has no entropies.
        ParamError: for an unknown threshold, or two of them.

    Source: arXiv 2604.11056 v1, App. B.1.

    Example:
        >>> found = quadrants([
        ...     {"id": "a", "group": "g", "reward": 1, "steps": [{"entropies": [0.0, 0.5, 2.0]}]},
        ...     {"id": "b", "group": "g", "reward": 0, "steps": [{"entropies": [0.1, 0.4, 3.0]}]},
        ... ])
        >>> found.counts
        {'PHR': 1, 'PLR': 2, 'NHR': 1, 'NLR': 2}
    """
    params = make_params(ThresholdParams, thresholds, "quadrants")
    index = Index(rollouts if isinstance(rollouts, Batch) else Batch.from_records(rollouts))
    advantage, counted = base_credit(index, base).tokens, counted_T(index)
    tau_G, high = _high(GroupStats(_entropy(index, params), *population_T(index, "group"), counted), params)
    label = np.where(counted, _labels(advantage, high), 0)
    size = np.abs(advantage)
    surprised = None
    if index.batch.has("logprob_T"):
        surprised = _shares(label, size * -np.expm1(signal_T(index, "logprobs")))
    counts = np.bincount(label, minlength=5)[1:].tolist()
    return Quadrants(label, dict(zip(QUADRANTS, counts, strict=True)), _shares(label, size), surprised, tau_G)


def _shares(label: Array, mass: Floats) -> dict[str, float]:
    by = np.bincount(label, mass, 5)[1:]
    return dict(zip(QUADRANTS, (by / (by.sum() or 1.0)).tolist(), strict=True))


def _entropy(index: Index, params: ThresholdParams) -> Floats:
    if params.proxy == "surprisal":
        return -signal_T(index, "logprobs")
    if not index.batch.has("entropy_T"):
        raise MissingSignal(
            "hapo needs entropies, which these rollouts lack",
            code="ACC401",
            hint="Give entropies; proxy='surprisal' takes -logprob instead, with which training can collapse",
        )
    return signal_T(index, "entropies")


def _high(stats: GroupStats, params: ThresholdParams) -> tuple[Floats, BoolArray]:
    """Return the threshold of each group ``[G]``, and which tokens' entropy is high ``[T]``.

    ``stats`` are of the entropies by group.
    """
    if params.percentile is not None and params.threshold is not None:
        raise ParamError("percentile and threshold exclude each other")
    entropy, ids = stats.values, stats.ids
    counted = np.ones(ids.size, bool) if stats.counted is None else stats.counted
    pools = Pools(entropy, ids, stats.n, counted)
    if params.percentile is not None:
        tau = pools.quantile(params.percentile / 100)
        return tau, entropy > tau[ids]
    if params.threshold is not None:
        tau = np.full(stats.n, params.threshold)
    elif params.tau == "median":
        tau = pools.quantile(0.5)
    else:
        tau = _mean(stats)
    return tau, entropy >= tau[ids]


def _mean(stats: GroupStats) -> Floats:
    """Return the mean of each group ``[G]``; of equal values not above them, as a rounded mean may be."""
    if not stats.flat.any():
        return stats.mean
    inside = stats.use > 0
    top = np.full(stats.n, -np.inf)
    np.maximum.at(top, stats.ids[inside], stats.values[inside])
    return np.where(stats.size > 0, np.minimum(stats.mean, top), 0.0)


def _standardised(stats: GroupStats, eps: float) -> Floats:
    scale = stats.std(ddof=0) + eps
    return stats.centred * np.divide(1.0, scale, out=np.zeros(stats.n), where=scale > 0)[stats.ids]


def _labels(advantage: Floats, high: BoolArray) -> Array:
    """Return 1..4 for PHR, PLR, NHR, NLR and 0 where the advantage is 0 ``[T]``."""
    found = (~high).astype(np.int8)
    found += 1
    found += 2 * (advantage < 0).astype(np.int8)
    found *= advantage != 0
    return found


def _among(label: Array, names: tuple[str, ...]) -> BoolArray:
    chosen = np.zeros(5, bool)
    chosen[[1 + QUADRANTS.index(name) for name in names]] = True
    return chosen[label]
