"""AEPO: the advantage of a token grows with its entropy among all tokens of the batch.

Source: arXiv 2510.14545 (entropy-aware advantage), from notes; guesses: docs/methods/aepo.md.
Where to fork: `accredit.planners.entropy_forks`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Finding, Parts
from accredit.index import GroupStats, Index
from accredit.methods._params import bounded
from accredit.methods._registry import method
from accredit.methods._reweight import base_credit, counted_T, reweighted, signal_T, step_value

__all__ = ["aepo"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `aepo`."""

    weight: float = bounded(0.2, at_least=0, doc="a: share of the advantage that a deviation of entropy adds")


@method(
    "aepo",
    title="Outcome of branched rollouts, more for tokens of high entropy",
    family="forks",
    params=Params,
    needs={"reward|rewards", "entropies"},
    yields="token",
    tags={
        "reweights",
        "cross_group",
        "amplifies_uncertain_successes",
        "amplifies_uncertain_failures",
    },
    cites="arXiv:2510.14545",
)
def aepo(index: Index, params: Params, *, base: str | None = None) -> Parts:
    """Entropy-aware advantage.

    ``A_t <- A_t (1 + a z_t)``, ``z_t = (H_t - mean H) / std H`` over the trained tokens of the batch,
    std unbiased, taken as 1 where it is 0.  With ``weight=0`` it is the base.  There is no floor: a
    token with ``z < -1/a`` changes sign, which is counted and told.

    Args:
        index: of the batch; ``entropies`` at every policy token.
        params: see `Params`.
        base: method under it; None = ``arpo``.

    Returns:
        Token credit ``[T]``.  Extras: ``factor`` ``[T]``, of mean 1 over the trained tokens.

    Raises:
        MissingSignal: a step with tokens has no entropies.

    Source: arXiv 2510.14545.
    """
    under = base_credit(index, base or "arpo")
    entropy, counted = signal_T(index, "entropies"), counted_T(index)
    stats = GroupStats(entropy, np.zeros(entropy.size, np.int64), 1, counted)
    std = float(stats.std()[0]) or 1.0
    factor = 1.0 + params.weight * stats.centred / std
    flips = int(((factor < 0) & (under.tokens != 0)).sum())

    def text(s: int) -> str:
        return (
            f"{params.weight:g} x (H - {stats.mean[0]:.4g}) / {std:.4g} of the advantage, "
            f"mean of the step's tokens; mean entropy {step_value(index, entropy, s):.4g} nats"
        )

    return reweighted(
        index,
        under,
        under.tokens * factor,
        id="aepo",
        name="entropy",
        text=text,
        inputs=lambda s: {"entropy": step_value(index, entropy, s)},
        fallbacks={"sign_flip": flips},
        findings=_findings(flips, int(counted.sum())),
        extras={"factor": factor},
    )


def _findings(flips: int, n: int) -> tuple[Finding, ...]:
    if not flips:
        return ()
    message = f"{flips} of {n} tokens have so low an entropy that their advantage changes sign"
    return (Finding("ACC510", "warning", message, hint="Lower `weight`"),)
