"""OPO: the score against the group's mean weighted by length.

Source: arXiv 2505.23585; verl 0.9.1 ``core_algos.compute_opo_outcome_advantage``.  Differences:
docs/methods/opo.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Member, Parts, Term
from accredit.data.parts import Explainer
from accredit.index import GroupStats, Index, group_members, segment_sum
from accredit.methods._outcome import ScoreParams, Scores, scores_of
from accredit.methods._registry import method
from accredit.typing import Floats

__all__ = ["opo"]


@dataclass(frozen=True, slots=True)
class Params(ScoreParams):
    """Parameters of `opo`."""


def _stats(index: Index, scores_R: Floats, scores: Scores) -> GroupStats:
    length = index.tokens_R.astype(np.float64)
    return GroupStats(scores_R, index.group_R, index.n_groups, scores.counted, length)


def _advantage(stats: GroupStats, singleton: str) -> Floats:
    """Return ``S_i - b_g``; 0 in a group without any token, and in a group of one unless raw."""
    assert stats.weights is not None
    length = segment_sum(stats.weights * stats.use, stats.ids, stats.n)
    found = np.where(stats.alone | (length[stats.ids] == 0), 0.0, stats.centred)
    return np.where(stats.alone, stats.values, found) if singleton == "raw" else found


@method(
    "opo",
    title="Score against the group's mean weighted by the number of policy tokens",
    family="outcome",
    params=Params,
    needs={"reward|rewards", "tokens|n_tokens"},
    yields="step",
    tags={"group", "broadcast", "shift_invariant", "scale_equivariant"},
    cites="arXiv:2505.23585",
    compat={"verl": {"singleton": "raw"}},
)
def opo(index: Index, params: Params) -> Parts:
    """Outcome advantage with a length-weighted baseline.

    ``A_i = S_i - b_g``, ``b_g = sum_i L_i S_i / sum_i L_i`` over the group, L_i the number of
    policy tokens of rollout i (the own sample included): the baseline of least variance where the
    squared length of a rollout's gradient grows with L_i.  With equal lengths it is Dr.GRPO.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``, reward units; ``sum_i L_i A_i = 0`` over a group; exactly 0 where all
        tie, and in a group without policy tokens.

    Source: arXiv 2505.23585; verl ``compute_opo_outcome_advantage``.

    Example:
        >>> import accredit as ac
        >>> records = [
        ...     {"id": str(i), "group": "g", "reward": r, "steps": [{"n_tokens": n}]}
        ...     for i, (r, n) in enumerate([(1, 10), (0.5, 10), (0, 20), (0, 40)])
        ... ]
        >>> ac.assign(records, "opo").steps.tolist()
        [0.8125, 0.3125, -0.1875, -0.1875]
    """
    scores = scores_of(index, params)
    stats = _stats(index, scores.total, scores)
    values = _advantage(stats, params.singleton)[index.rollout_S]
    shares = {k: _advantage(_stats(index, v, scores), params.singleton) for k, v in scores.addends.items()}
    return Parts(
        values,
        parts={k: v[index.rollout_S] for k, v in shares.items()} or {"episode": values},
        fallbacks={"singleton": int(stats.alone.sum()), **scores.fallbacks},
        explain=_explainer(index, stats, values),
        unused=scores.unused,
    )


def _explainer(index: Index, stats: GroupStats, values: Floats) -> Explainer:
    def explain(s: int) -> Explanation:
        r = int(index.rollout_S[s])
        score, mean = float(stats.values[r]), float(stats.mean[stats.ids[r]])
        text = f"score {score:.6g} - mean {mean:.6g} weighted by tokens"
        text += "" if stats.use[r] else " [not counted: exactly 0]"
        text += " [group of one]" if stats.alone[r] else ""
        members = tuple(_weighed(index, member) for member in group_members(index, stats, r))
        inputs = {"score": score, "baseline": mean, "tokens": float(index.tokens_R[r])}
        term = Term("episode", float(values[s]), text, inputs, members)
        return Explanation("opo", *index.place_of(s), term.value, (term,))

    return explain


def _weighed(index: Index, member: Member) -> Member:
    """Return the member with its weight in its note."""
    length = int(index.tokens_R[index.batch.position(member.rollout)])
    note = ", ".join(filter(None, (f"{length} tokens", member.note)))
    return Member(member.rollout, member.value, note=note)
