"""Entropy-top ("80/20", forking tokens): only the most uncertain tokens keep their advantage.

Source: arXiv 2506.01939; Shenzhi-Wang/Beyond-the-80-20-Rule-RLVR ``get_global_entropy_top_mask``;
TRL ``GRPOTrainer.get_high_entropy_mask`` (``compat="trl"``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Finding, Parts
from accredit.index import Index
from accredit.methods._params import bounded, choice
from accredit.methods._populations import Pools
from accredit.methods._registry import method
from accredit.methods._reweight import (
    base_credit,
    counted_T,
    reweighted,
    signal_T,
    step_value,
)
from accredit.methods.pepo import proximal_entropy, window_finding
from accredit.spread import population_T
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["entropy_top"]

_MANY = 1.5  # times the share asked for: more is told


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `entropy_top`."""

    ratio: float = bounded(0.2, above=0, at_most=1, doc="rho: share of tokens that keep their advantage")
    threshold: str = choice(
        "kth", "quantile", doc="the k-th largest entropy, k = rho n rounded up; or TRL's (1 - rho) quantile"
    )
    population: str = choice("batch", "group", "rollout", doc="among which tokens the share is taken")
    normalise: str = choice("kept", "all", doc="loss_weight: mean over the kept tokens, or over all")
    rank_by: str = choice("entropy", "proximal", doc="entropy, or pepo's proximal entropy")
    window: int = bounded(101, at_least=1, doc="rank_by=proximal: tokens of the window")


@method(
    "entropy-top",
    title="Only the most uncertain tokens keep their advantage (80/20)",
    family="tokens: entropy",
    params=Params,
    needs={"reward|rewards", "entropies"},
    yields="token",
    tags={"reweights", "cross_group", "amplifies_uncertain_successes", "amplifies_uncertain_failures"},
    cites="arXiv:2506.01939",
    compat={"trl": {"threshold": "quantile", "normalise": "all"}},
)
def entropy_top(index: Index, params: Params, *, base: str | None = None) -> Parts:
    """Advantage of the tokens whose entropy is among the top share; 0 for the others.

    ``A'_t = A_t [H_t >= threshold]``, the threshold being the k-th largest entropy of the batch,
    ``k = max(1, int(rho n + 0.9999))``; ties at it are all kept.  With ``ratio=1`` it is the base.

    How the kept tokens are averaged differs by a factor of about ``1/rho`` between the authors
    (over the kept) and TRL (over all): ``loss_weight`` holds each token's weight in the loss.

    Args:
        index: of the batch; ``entropies`` at every policy token.
        params: see `Params`.
        base: method under it; None = ``grpo``.

    Returns:
        Token credit ``[T]``: the base's, or 0.  Extras: ``mask`` (1 = kept), ``loss_weight`` ``[T]``,
        ``threshold``, ``kept_share`` (one a population).

    Raises:
        MissingSignal: a step with tokens has no entropies.

    Source: arXiv 2506.01939; authors' ``get_global_entropy_top_mask``; TRL ``top_entropy_quantile``.
    """
    under = base_credit(index, base)
    counted = counted_T(index)
    rank = _ranked_by(index, params)
    ids, n = population_T(index, params.population)
    pools = Pools(rank, ids, n, counted)
    threshold = _threshold(pools, params)
    kept = (rank >= threshold[ids]) & counted
    size = np.maximum(pools.size, 1)
    kept_share = np.bincount(ids, kept, n) / size
    values = np.where(kept | ~counted, under.tokens, 0.0)
    mask = kept.astype(np.float64)

    def text(s: int) -> str:
        limit = f", at least {threshold[0]:.4g}" if n == 1 else ""
        share = step_value(index, mask, s)
        return f"{share:.0%} of the step's tokens are among the top {params.ratio:g} by entropy{limit}"

    odd = window_finding(params.window) if params.rank_by == "proximal" else ()
    return reweighted(
        index,
        under,
        values,
        id="entropy-top",
        name="entropy mask",
        text=text,
        inputs=lambda s: {"kept": step_value(index, mask, s)},
        findings=(*odd, *_too_many(kept, counted, params)),
        extras={
            "mask": mask,
            "loss_weight": _loss_weight(kept, counted, params),
            "threshold": threshold,
            "kept_share": kept_share,
        },
    )


def _ranked_by(index: Index, params: Params) -> Floats:
    entropy = signal_T(index, "entropies")
    if params.rank_by == "entropy":
        return entropy
    return proximal_entropy(entropy, params.window, start=index.token_start_R1)


def _threshold(pools: Pools, params: Params) -> Floats:
    if params.threshold == "quantile":
        return pools.quantile(1.0 - params.ratio)
    return pools.largest(_asked(pools.size, params.ratio))


def _asked(size: Ints, ratio: float) -> Ints:
    """Return the authors' k: a ceiling that can miss where rho n has a fraction below 1e-4."""
    return np.maximum((ratio * size + 0.9999).astype(np.int64), 1)


def _loss_weight(kept: BoolArray, counted: BoolArray, params: Params) -> Floats:
    among = kept if params.normalise == "kept" else counted
    return kept / max(1.0, float(among.sum()))


def _too_many(kept: BoolArray, counted: BoolArray, params: Params) -> tuple[Finding, ...]:
    n, m = int(counted.sum()), int(kept.sum())
    if m <= _MANY * params.ratio * n:
        return ()
    text = f"{m} of {n} tokens are kept ({m / n:.0%}) where {params.ratio:.0%} were asked for: many tie"
    hint = "Entropies of exactly 0 tie: give them in float32, or take a smaller ratio"
    return (Finding("ACC442", "warning", text, hint=hint, count=m),)
