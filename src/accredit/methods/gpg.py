"""GPG: the centred score, scaled up by how few rollouts of the batch scored at all.

Source: verl 0.9.1 ``core_algos.compute_gpg_outcome_advantage`` (arXiv 2504.02546).  Differences:
docs/methods/gpg.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Parts, Term
from accredit.data.parts import Explainer
from accredit.index import GroupStats, Index, rollout_term
from accredit.methods._outcome import ScoreParams, scores_of
from accredit.methods._params import bounded
from accredit.methods._registry import method
from accredit.typing import Floats

__all__ = ["gpg"]


@dataclass(frozen=True, slots=True)
class Params(ScoreParams):
    """Parameters of `gpg`."""

    f_norm: float = bounded(1.0, above=0, doc="divides every credit")


def _advantage(stats: GroupStats, weight: float, singleton: str) -> Floats:
    found = weight * stats.centred
    return np.where(stats.alone, weight * stats.values, found) if singleton == "raw" else found


@method(
    "gpg",
    title="Centred outcome, scaled by batch size over the number of non-zero scores",
    family="outcome",
    params=Params,
    needs={"reward|rewards"},
    yields="step",
    tags={"group", "cross_group", "broadcast", "conserves", "scale_equivariant"},
    cites="arXiv:2504.02546",
    compat={"verl": {"singleton": "raw"}},
)
def gpg(index: Index, params: Params) -> Parts:
    """Group policy gradient advantage.

    ``A_i = alpha (S_i - mean_g S) / f_norm``, ``alpha = B / max(1, number of non-zero scores)``
    over the B rollouts of the batch that count.  It is ``alpha / f_norm`` times Dr.GRPO: fewer
    rollouts with a score, larger steps.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``; sums to 0 over the rollouts of a group; exactly 0 where all tie.
        Extras: ``alpha`` ``[1]``.

    Source: verl ``compute_gpg_outcome_advantage``.

    Example:
        >>> import accredit as ac
        >>> records = [
        ...     {"id": str(i), "group": "g", "reward": r, "steps": [{}]} for i, r in enumerate([1, 0, 0, 1])
        ... ]
        >>> ac.assign(records, "gpg").steps.tolist()
        [1.0, -1.0, -1.0, 1.0]
    """
    scores = scores_of(index, params)
    stats = GroupStats(scores.total, index.group_R, index.n_groups, scores.counted)
    scored = int(np.count_nonzero(scores.total[scores.counted]))
    alpha = int(scores.counted.sum()) / max(1, scored)
    weight = alpha / params.f_norm
    values = _advantage(stats, weight, params.singleton)[index.rollout_S]
    own = {k: GroupStats(v, stats.ids, stats.n, stats.counted) for k, v in scores.addends.items()}
    shares = {k: _advantage(v, weight, params.singleton)[index.rollout_S] for k, v in own.items()}
    return Parts(
        values,
        parts=shares or {"episode": values},
        fallbacks={"singleton": int(stats.alone.sum()), **scores.fallbacks},
        extras={"alpha": np.array([alpha])},
        explain=_explainer(index, stats, weight, values),
        unused=scores.unused,
    )


def _explainer(index: Index, stats: GroupStats, weight: float, values: Floats) -> Explainer:
    def explain(s: int) -> Explanation:
        r = int(index.rollout_S[s])
        term = rollout_term(index, "episode", stats, r, weight=weight)
        if stats.alone[r]:
            score = float(stats.values[r])
            text = (
                f"{weight:g} x score {score:.6g} of a group of one" if values[s] else "0 for a group of one"
            )
            term = Term("episode", float(values[s]), text, {"weight": weight, "score": score}, term.members)
        note = f"weight {weight:.6g} = batch size / number of non-zero scores / f_norm"
        return Explanation("gpg", *index.place_of(s), float(values[s]), (term,), (note,))

    return explain
