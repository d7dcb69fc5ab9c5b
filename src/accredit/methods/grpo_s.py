"""GRPO-S: outcomes shaped by the rollout's mean entropy among successes and among failures.

Source: arXiv 2508.04349, the sequence form beside gtpo; constants and scope are our choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Parts, Term
from accredit.index import GroupStats, Index, group_members, segment_sum
from accredit.methods._params import bounded
from accredit.methods._registry import method
from accredit.methods._reweight import rollout_T, signal_T
from accredit.methods.gtpo import sides, whitening
from accredit.typing import BoolArray, Floats

__all__ = ["grpo_s"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `grpo_s`."""

    beta_1: float = bounded(1.0, at_least=0, doc="weight of the outcome")
    beta_2: float = bounded(0.1, at_least=0, doc="weight of the entropy share")
    reward_threshold: float = bounded(0.5, doc="an outcome at or above it is a success")
    eps: float = bounded(1e-8, above=0, doc="added to mean entropies, to their sums and to the variance")


@method(
    "grpo-s",
    title="Outcome shaped by the rollout's share of entropy among its group's successes or failures",
    family="tokens: entropy",
    params=Params,
    needs={"reward", "entropies"},
    yields="step",
    tags={"group", "broadcast", "conserves"},
    cites="arXiv:2508.04349",
)
def grpo_s(index: Index, params: Params) -> Parts:
    """Entropy-shaped outcomes, standardised over the group.

    With ``Hbar_i`` the rollout's mean token entropy: success ``r~ = b1 r + b2 n+ Hbar / sum+ Hbar``,
    failure ``r~ = -b1 - b2 n- (1/Hbar) / sum- 1/Hbar``, sums over the group's ``n+`` successes and
    ``n-`` failures; then ``(r~ - mean) / sqrt(var + eps)`` over the group, population variance.

    Args:
        index: of the batch; ``entropies`` at every policy token.
        params: see `Params`.

    Returns:
        Step credit ``[S]``, one number a rollout, which sums to 0 over the group; 0 for a rollout
        without tokens (fallback ``no_tokens``), which joins no statistics.  Extras: ``shaped``,
        ``mean_entropy`` ``[R]``.

    Raises:
        MissingSignal: a step with tokens has no entropies.

    Source: arXiv 2508.04349.
    """
    entropy = segment_sum(signal_T(index, "entropies"), rollout_T(index), len(index.batch))
    entropy /= np.maximum(index.tokens_R, 1)
    spoke = index.tokens_R > 0
    counted = index.scored_R & spoke
    won = index.outcome_R >= params.reward_threshold
    outcome = np.where(won, params.beta_1 * index.outcome_R, -params.beta_1)
    extra = np.where(won, 1.0, -1.0) * params.beta_2 * _share(index, entropy, won, counted, params.eps)
    stats = GroupStats(outcome + extra, index.group_R, index.n_groups, counted)
    scale = whitening(stats, params.eps)[index.group_R]
    parts_R = {
        name: GroupStats(part, index.group_R, index.n_groups, counted).centred * scale
        for name, part in (("outcome", outcome), ("entropy", extra))
    }
    parts = {name: part[index.rollout_S] for name, part in parts_R.items()}
    values = parts["outcome"] + parts["entropy"]

    def explain(s: int) -> Explanation:
        r = int(index.rollout_S[s])
        members = group_members(index, stats, r)
        text = f"its part of {stats.values[r]:.6g} against the group; mean entropy {entropy[r]:.4g} nats"
        terms = tuple(Term(name, float(part[r]), text, {}, members) for name, part in parts_R.items())
        return Explanation("grpo-s", *index.place_of(s), float(values[s]), terms)

    return Parts(
        values,
        parts=parts,
        informed_S=parts["entropy"] != 0,
        fallbacks={"no_tokens": int((index.scored_R & ~spoke).sum())},
        extras={"shaped": np.where(counted, stats.values, 0.0), "mean_entropy": entropy},
        explain=explain,
    )


def _share(index: Index, entropy: Floats, won: BoolArray, counted: BoolArray, eps: float) -> Floats:
    """Return the rollout's share on its side times the rollouts there ``[R]``."""
    ids, n = sides(index, won)
    mass = np.where(won, entropy, 1.0 / (entropy + eps)) * counted
    total = segment_sum(mass, ids, n)
    total[1::2] += eps  # sides of successes
    many = segment_sum(counted, ids, n)
    share: Floats = mass * np.divide(many, total, out=np.zeros(n), where=total > 0)[ids]
    return share
