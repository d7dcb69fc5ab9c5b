"""RLOO: the score against the mean of the other rollouts of the group.

Source: arXiv 2402.14740; verl 0.9.1 ``core_algos.compute_rloo_outcome_advantage``, TRL 1.16.0
``rloo_trainer``.  Differences from their code: docs/methods/rloo.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Parts, Term
from accredit.data.parts import Explainer
from accredit.index import GroupStats, Index, group_members
from accredit.methods._outcome import ScoreParams, scores_of
from accredit.methods._params import bounded, flag
from accredit.methods._registry import method
from accredit.typing import BoolArray, Floats

__all__ = ["rloo"]


@dataclass(frozen=True, slots=True)
class Params(ScoreParams):
    """Parameters of `rloo`."""

    normalise: bool = flag(default=False, doc="divide by the deviation of the credit over the batch (TRL)")
    eps: float = bounded(1e-4, at_least=0, doc="added to that deviation")


@dataclass(frozen=True, slots=True)
class _Batchwise:
    """Mean and deviation of the credit over the batch; None in ``scale`` = not normalised."""

    mean: float = 0.0
    scale: float | None = None

    def of(self, values: Floats, among: BoolArray) -> Floats:
        """Return values normalised where they belong to the statistics, 0 elsewhere."""
        if self.scale is None:
            return values
        return np.where(among, (values - self.mean) / self.scale, 0.0) if self.scale > 0 else 0.0 * values


def _leave_one_out(stats: GroupStats, singleton: str) -> Floats:
    """Return the score minus the mean of the others ``[R]``; a group of one as ``singleton`` says."""
    return np.where(stats.alone, stats.values, stats.less_others) if singleton == "raw" else stats.less_others


def _batchwise(values: Floats, stats: GroupStats, params: Params) -> tuple[_Batchwise, BoolArray]:
    """Return the normalisation over the batch, and the rollouts that belong to it.

    Groups sum to 0, so that the mean is 0 unless groups of one keep their raw scores.
    """
    raw = params.singleton == "raw"
    among = (stats.use > 0) & (raw | ~stats.alone)
    if not params.normalise:
        return _Batchwise(), among
    whole = GroupStats(values, np.zeros(values.size, np.int64), 1, among)
    mean = float(whole.mean[0]) if raw and stats.alone.any() else 0.0
    return _Batchwise(mean, float(whole.std()[0]) + params.eps), among


@method(
    "rloo",
    title="Score against the mean of the group's other rollouts",
    family="outcome",
    params=Params,
    needs={"reward|rewards"},
    yields="step",
    tags={"group", "broadcast", "conserves", "shift_invariant", "scale_equivariant"},
    cites="arXiv:2402.14740",
    compat={
        "verl": {"singleton": "raw"},
        "verl-vectorized": {"singleton": "zero"},
        "trl": {"singleton": "zero", "eps": 1e-4},
    },
)
def rloo(index: Index, params: Params) -> Parts:
    """Outcome advantage with a leave-one-out baseline.

    ``A_i = S_i - (1/(n-1)) sum_{j != i} S_j = n/(n-1) (S_i - mean_g S)``: the baseline does not
    contain the own score, so that the policy gradient is unbiased for every n >= 2.  It is
    ``n/(n-1)`` times Dr.GRPO.  With ``normalise`` the credit is then centred and divided by
    ``std + eps`` over the rollouts of the batch.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``, reward units; sums to 0 over the rollouts of a group; exactly 0 where
        all tie.  ``parts``: ``episode``, or one addend a reward.

    Source: arXiv 2402.14740; verl ``compute_rloo_outcome_advantage``; TRL ``rloo_trainer``.

    Example:
        >>> import accredit as ac
        >>> records = [
        ...     {"id": str(i), "group": "g", "reward": r, "steps": [{}]} for i, r in enumerate([1, 0.5, 0, 0])
        ... ]
        >>> ac.assign(records, "rloo").steps.round(4).tolist()
        [0.8333, 0.1667, -0.5, -0.5]
    """
    scores = scores_of(index, params)
    stats = GroupStats(scores.total, index.group_R, index.n_groups, scores.counted)
    plain = _leave_one_out(stats, params.singleton)
    batchwise, among = _batchwise(plain, stats, params)
    values = batchwise.of(plain, among)[index.rollout_S]
    parts = {"episode": values}
    if scores.addends and batchwise.mean == 0.0:
        own = {k: GroupStats(v, stats.ids, stats.n, stats.counted) for k, v in scores.addends.items()}
        shares = {k: _leave_one_out(v, params.singleton) for k, v in own.items()}
        parts = {k: batchwise.of(v, among)[index.rollout_S] for k, v in shares.items()}
    return Parts(
        values,
        parts=parts,
        fallbacks={"singleton": int(stats.alone.sum()), **scores.fallbacks},
        explain=_explainer(index, stats, params, batchwise, values),
        unused=scores.unused,
    )


def _explainer(
    index: Index, stats: GroupStats, params: Params, batchwise: _Batchwise, values: Floats
) -> Explainer:
    def explain(s: int) -> Explanation:
        r = int(index.rollout_S[s])
        others = int(stats.size[stats.ids[r]] - stats.use[r])
        score, baseline = float(stats.values[r]), float(stats.leave_one_out[r])
        inputs = {"score": score, "baseline": baseline, "others": float(others)}
        text = f"(score {score:.6g} - mean {baseline:.6g} of the {others} others)"
        if not stats.use[r]:
            text += " [not counted: exactly 0]"
        elif stats.alone[r]:
            text = f"score {score:.6g} of a group of one, singleton={params.singleton}"
        if batchwise.scale is not None:
            inputs |= {"batch_mean": batchwise.mean, "batch_scale": batchwise.scale}
            text = f"({text} - batch mean {batchwise.mean:.6g}) / (std + eps = {batchwise.scale:.6g})"
        members = group_members(index, stats, r)
        term = Term("episode", float(values[s]), text, inputs, members)
        return Explanation("rloo", *index.place_of(s), term.value, (term,))

    return explain
