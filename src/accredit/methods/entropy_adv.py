"""Entropy-augmented advantage: a bonus for uncertain tokens, whatever the outcome.

Source: arXiv 2506.14758; the default constants are from memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Parts
from accredit.index import Index
from accredit.methods._params import bounded
from accredit.methods._registry import method
from accredit.methods._reweight import base_credit, reweighted, signal_T, step_value

__all__ = ["entropy_adv"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `entropy_adv`."""

    alpha: float = bounded(0.4, at_least=0, doc="reward units a nat of entropy")
    kappa: float = bounded(2.0, above=0, doc="the bonus is at most |A| / kappa; above 1 it flips no sign")


@method(
    "entropy-adv",
    title="Advantage plus a bounded bonus for the token's entropy",
    family="tokens: entropy",
    params=Params,
    needs={"reward|rewards", "entropies"},
    yields="token",
    tags={"reweights", "amplifies_uncertain_successes", "attenuates_uncertain_failures"},
    cites="arXiv:2506.14758",
    compat={"ppo": {"alpha": 0.1}},
)
def entropy_adv(index: Index, params: Params, *, base: str | None = None) -> Parts:
    """Advantage plus ``min(alpha H_t, |A_t| / kappa)``, in successes and failures alike.

    The bonus is positive for both signs: uncertain tokens of failures are blamed less.  Where A is
    0 there is none.  With ``alpha=0`` it is the base.

    Args:
        index: of the batch; ``entropies`` at every policy token.
        params: see `Params`.
        base: method under it; None = ``grpo``.

    Returns:
        Token credit ``[T]``; with ``kappa`` above 1 of the base's sign.  Extras: ``bonus`` ``[T]``.

    Raises:
        MissingSignal: a step with tokens has no entropies.

    Source: arXiv 2506.14758.
    """
    under = base_credit(index, base)
    entropy = signal_T(index, "entropies")
    bonus = np.minimum(params.alpha * entropy, np.abs(under.tokens) / params.kappa)

    def text(s: int) -> str:
        return (
            f"min({params.alpha:g} H, |A| / {params.kappa:g}), mean of the step's tokens; mean entropy "
            f"{step_value(index, entropy, s):.4g} nats"
        )

    return reweighted(
        index,
        under,
        under.tokens + bonus,
        id="entropy-adv",
        name="entropy bonus",
        text=text,
        inputs=lambda s: {"entropy": step_value(index, entropy, s)},
        extras={"bonus": bonus},
    )
