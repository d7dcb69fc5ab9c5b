"""GRPO: every step of a rollout carries its group-relative outcome.

Source: arXiv 2402.03300 (GRPO), 2503.20783 (Dr.GRPO), 2503.19595 (pass@k); verl 0.9.1
``core_algos.compute_grpo_outcome_advantage``, TRL 1.16.0 ``grpo_trainer``.  Differences from
their code: docs/methods/grpo.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Parts
from accredit.index import GroupStats, Index, rollout_term
from accredit.methods._params import GroupParams, bounded, choice
from accredit.methods._registry import method
from accredit.typing import Floats

__all__ = ["grpo", "outcome_advantage"]


@dataclass(frozen=True, slots=True)
class Params(GroupParams):
    """Parameters of `grpo`."""

    scale: str = choice(
        "group", "batch", "none", doc="deviation of the group, of the batch, or none (Dr.GRPO)"
    )
    centre: str = choice("group", "batch", "none", doc="level of the mean that is subtracted")
    eps: float = bounded(1e-6, at_least=0, doc="added to the deviation")


def outcome_advantage(index: Index, scores_R: Floats, params: Params) -> tuple[Floats, GroupStats]:
    """Return the group-relative advantage of each rollout ``[R]`` and the statistics behind it.

    Args:
        index: of the batch.
        scores_R: score S_i of each rollout, reward units.
        params: scale, centre and the policies for odd groups.
    """
    counted = index.counted_R(params.truncated, params.incomplete)
    stats = GroupStats(scores_R, index.group_R, index.n_groups, counted)
    whole = GroupStats(scores_R, np.zeros(len(index.batch), np.int64), 1, counted)
    centred = {"group": stats.centred, "batch": whole.centred, "none": scores_R * stats.use}
    found = centred[params.centre]
    if params.scale == "group":
        found = _scaled(found, stats.std()[stats.ids], params.eps)
    elif params.scale == "batch":
        found = _scaled(found, whole.std()[whole.ids], params.eps)
    raw = scores_R / (1 + params.eps) if params.scale != "none" else scores_R
    alone = raw if params.singleton == "raw" else np.zeros_like(raw)
    return np.where(stats.alone, alone, found), stats


def _scaled(values: Floats, scale: Floats, eps: float) -> Floats:
    found: Floats = np.divide(values, scale + eps, out=np.zeros_like(values), where=scale > 0)
    return found


@method(
    "grpo",
    title="Group-relative outcome advantage, the same for every step",
    family="outcome",
    params=Params,
    needs={"reward"},
    yields="step",
    tags={"group", "broadcast", "conserves", "shift_invariant", "scale_invariant"},
    cites="arXiv:2402.03300",
    compat={
        "verl": {"eps": 1e-6, "singleton": "raw"},
        "trl": {"eps": 1e-4, "singleton": "zero"},
    },
    aliases={"dr-grpo": {"scale": "none"}},
)
def grpo(index: Index, params: Params) -> Parts:
    """Group-relative outcome advantage.

    ``A_i = (S_i - mean_g S) / (std_g S + eps)``, S_i the rollout's total return, std unbiased;
    every step (and policy token) of rollout i carries A_i.  With ``scale="none"`` it is Dr.GRPO,
    ``(n-1)/n`` times RLOO.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``; sums to 0 over the rollouts of a group; exactly 0 where all tie.

    Source: arXiv 2402.03300 Eq. 3; verl ``compute_grpo_outcome_advantage``.
    """
    scores = index.score_R
    advantage, stats = outcome_advantage(index, scores, params)
    values = advantage[index.rollout_S]

    def explain(s: int) -> Explanation:
        r = int(index.rollout_S[s])
        eps = None if params.scale == "none" else params.eps
        term = rollout_term(index, "episode", stats, r, eps=eps, scale_G=stats.std())
        return Explanation("grpo", index.batch.ids[r], int(index.position_S[s]), float(values[s]), (term,))

    return Parts(
        values,
        parts={"episode": values},
        fallbacks={"singleton": int(stats.alone.sum())},
        explain=explain,
    )
