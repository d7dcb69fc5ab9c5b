"""EMPG: confident steps weigh more, and steps that lead to confident ones earn a bonus.

Source: arXiv 2509.09265, from a reading note; choices are listed in docs/methods/empg.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Parts
from accredit.index import Index, segment_sum, shifted
from accredit.methods._params import bounded, flag
from accredit.methods._registry import method
from accredit.methods._reweight import base_credit, counted_T, reweighted, signal_T, step_mean
from accredit.typing import BoolArray, Floats

__all__ = ["empg"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `empg`."""

    k: float = bounded(1.0, at_least=0, doc="how fast the factor falls with the step's entropy")
    k_future: float = bounded(1.0, at_least=0, doc="how fast the bonus falls with the next step's entropy")
    zeta: float = bounded(0.1, at_least=0, doc="largest bonus, reward units")
    centre: bool = flag(
        default=False, doc="subtract the mean over the batch's steps; a success may lose its sign"
    )


@method(
    "empg",
    title="Confident steps weigh more; steps before confident ones earn a bonus",
    family="tokens: entropy",
    params=Params,
    needs={"reward|rewards", "entropies"},
    yields="token",
    tags={"reweights", "cross_group", "attenuates_uncertain_successes", "attenuates_uncertain_failures"},
    cites="arXiv:2509.09265",
)
def empg(index: Index, params: Params, *, base: str | None = None) -> Parts:
    """Advantage times a factor that falls with the step's entropy, plus a bonus for clear futures.

    ``h_k`` = mean token entropy of the step, from 0 to 1 over the batch's steps;
    ``g_k = exp(-k h_k) / mean exp(-k h)``; ``A'_t = A_t g_k + zeta exp(-k' h_{k+1})``, without the
    bonus at the last step, before a step without tokens, and where A = 0.  With ``k=0, zeta=0`` it
    is the base.

    Args:
        index: of the batch; ``entropies`` at every policy token.
        params: see `Params`.
        base: method under it; None = ``grpo``.

    Returns:
        Token credit ``[T]``.  Extras: ``step_entropy`` (h), ``factor`` (g, mean 1 over the batch's
        steps with trained tokens), ``bonus`` ``[S]``.

    Raises:
        MissingSignal: a step with tokens has no entropies.

    Source: arXiv 2509.09265, reconstructed.
    """
    under = base_credit(index, base)
    counted = counted_T(index)
    height, spoken = _step_entropy(index, signal_T(index, "entropies"), counted)
    factor = np.exp(-params.k * height)
    factor = np.where(spoken, factor / (factor[spoken].mean() if spoken.any() else 1.0), 1.0)
    clear = np.where(spoken, params.zeta * np.exp(-params.k_future * height), 0.0)
    bonus = shifted(clear, index.batch.step_start_R1, np.zeros(len(index.batch)))
    at = index.step_T
    values = np.where(under.tokens != 0, under.tokens * factor[at] + bonus[at], 0.0)
    if params.centre and spoken.any():
        values -= step_mean(index, values)[spoken].mean()
    if not counted.all():
        values = np.where(counted, values, under.tokens)

    def text(s: int) -> str:
        return f"(g - 1) A + bonus, g = {factor[s]:.4g} at entropy {height[s]:.4g}, bonus {bonus[s]:.4g}"

    return reweighted(
        index,
        under,
        values,
        id="empg",
        name="confidence",
        text=text,
        inputs=lambda s: {"factor": float(factor[s]), "bonus": float(bonus[s])},
        extras={"step_entropy": height, "factor": factor, "bonus": bonus},
    )


def _step_entropy(index: Index, entropy: Floats, counted: BoolArray) -> tuple[Floats, BoolArray]:
    """Return each step's mean entropy, from 0 to 1 over the batch, and which have one ``[S]``."""
    n = index.batch.n_steps
    size = segment_sum(counted, index.step_T, n)
    mean = segment_sum(entropy * counted, index.step_T, n) / np.maximum(size, 1)
    spoken = size > 0
    if not spoken.any():
        return np.zeros(n), spoken
    low, high = mean[spoken].min(), mean[spoken].max()
    return np.where(spoken, (mean - low) / (high - low) if high > low else 0.0, 0.0), spoken
