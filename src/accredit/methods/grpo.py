"""GRPO: every step of a rollout carries its group-relative outcome.

Source: arXiv 2402.03300 (GRPO), 2503.20783 (Dr.GRPO), 2503.19595 (pass@k); verl 0.9.1
``core_algos.compute_grpo_outcome_advantage`` and ``compute_grpo_passk_outcome_advantage``, TRL
1.16.0 ``grpo_trainer``.  Differences from their code: docs/methods/grpo.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Parts, Term
from accredit.data.parts import Explainer
from accredit.errors import ParamError
from accredit.index import GroupStats, Index, group_members, rollout_term
from accredit.index.groups import FLAT
from accredit.methods._outcome import Component, ScoreParams, Scores, components, scores_of, summed
from accredit.methods._params import bounded, choice
from accredit.methods._registry import method
from accredit.typing import BoolArray, Floats

__all__ = ["grpo", "outcome_advantage"]


@dataclass(frozen=True, slots=True)
class Params(ScoreParams):
    """Parameters of `grpo`."""

    variant: str = choice(
        "mean", "passk", doc="score against the mean; or the single best one against the second (pass@k)"
    )
    scale: str = choice(
        "group", "batch", "none", doc="deviation of the group, of the batch, or none (Dr.GRPO)"
    )
    centre: str = choice("group", "batch", "none", doc="level of the mean that is subtracted")
    eps: float = bounded(1e-6, at_least=0, doc="added to the deviation")
    combine: str = choice(
        "outcome",
        "sum_then_normalize",
        "normalize_then_sum",
        doc="the score: reward plus step rewards; or several rewards, weighted before or after scaling",
    )


@dataclass(frozen=True, slots=True)
class _Level:
    """Where means and deviations of scores are taken.

    Args:
        group: statistics of the scores by group.
        whole: statistics over the batch.
        scale: deviation that divides each rollout's score ``[R]``; None = none.
        eps: added to it.
    """

    group: GroupStats
    whole: GroupStats
    scale: Floats | None
    eps: float

    def of(self, values: Floats) -> _Level:
        """Return the same levels and scale for other values: an addend of the scores."""
        group = GroupStats(values, self.group.ids, self.group.n, self.group.counted)
        whole = GroupStats(values, self.whole.ids, 1, self.whole.counted)
        return _Level(group, whole, self.scale, self.eps)

    def scaled(self, values: Floats) -> Floats:
        """Return values over ``scale + eps``; 0 where the scores do not spread."""
        if self.scale is None:
            return values
        out = np.zeros_like(values)
        found: Floats = np.divide(values, self.scale + self.eps, out=out, where=self.scale > 0)
        return found

    def raw(self) -> Floats:
        """Return what a group of one gets under ``singleton="raw"``: its score, std taken as 1."""
        return self.group.values if self.scale is None else self.group.values / (1 + self.eps)


def _level(index: Index, scores_R: Floats, params: Params, counted: BoolArray) -> _Level:
    group = GroupStats(scores_R, index.group_R, index.n_groups, counted)
    whole = GroupStats(scores_R, np.zeros(len(index.batch), np.int64), 1, counted)
    scale = {"group": group, "batch": whole}.get(params.scale)
    return _Level(group, whole, None if scale is None else scale.std()[scale.ids], params.eps)


def outcome_advantage(
    index: Index, scores_R: Floats, params: Params, counted: BoolArray | None = None
) -> tuple[Floats, GroupStats]:
    """Return the group-relative advantage of each rollout ``[R]`` and the statistics behind it.

    Args:
        index: of the batch.
        scores_R: score S_i of each rollout, reward units.
        params: scale, centre and the policies for odd groups.
        counted: rollouts that join the statistics ``[R]``; None = as ``params`` says.
    """
    if counted is None:
        counted = index.counted_R(params.truncated, params.incomplete)
    level = _level(index, scores_R, params, counted)
    return _advantage(level, params), level.group


def _advantage(level: _Level, params: Params) -> Floats:
    if params.variant == "passk":
        found = level.scaled(_best_minus_second(level.group))
    elif params.centre == "none":
        found = level.scaled(level.group.values * level.group.use)
    else:
        found = level.scaled(level.group.centred if params.centre == "group" else level.whole.centred)
    return np.where(level.group.alone, level.raw() if params.singleton == "raw" else 0.0, found)


def _best_minus_second(stats: GroupStats) -> Floats:
    """Return largest minus second largest value of the group for its single best one, else 0."""
    found = np.zeros_like(stats.values)
    among = np.flatnonzero((stats.use > 0) & ~stats.alone)
    order = among[np.lexsort((stats.values[among], stats.ids[among]))]
    last = np.flatnonzero(np.diff(stats.ids[order], append=-1))
    best, second = stats.values[order[last]], stats.values[order[last - 1]]
    tie = best - second <= FLAT * np.maximum(1.0, np.abs(best))
    found[order[last]] = np.where(tie, 0.0, best - second)
    return found


def _scores(index: Index, params: Params) -> tuple[Scores, Params]:
    """Return the scores and the parameters that apply to them."""
    if params.variant == "passk" and params.centre != "group":
        raise ParamError(f"centre={params.centre!r} has no meaning for variant='passk'")
    if params.combine != "normalize_then_sum":
        return scores_of(index, params), params
    if (params.variant, params.scale, params.centre) != ("mean", "group", "group"):
        raise ParamError(
            "combine='normalize_then_sum' scales each reward in its group and the sum in the batch",
            hint="Leave variant, scale and centre at their defaults with it",
        )
    plain = components(index, params)
    counted = summed(index, params, plain).counted
    scores = summed(index, params, [_standardised(index, part, counted, params.eps) for part in plain])
    return scores, _over_batch(params)


def _standardised(index: Index, part: Component, counted: BoolArray, eps: float) -> Component:
    stats = GroupStats(part.values, index.group_R, index.n_groups, counted & part.present)
    return Component(part.name, stats.standardised(eps), part.present, part.weight)


def _over_batch(params: Params) -> Params:
    return Params(
        truncated=params.truncated,
        incomplete=params.incomplete,
        scale="batch",
        centre="batch",
        eps=params.eps,
    )


@method(
    "grpo",
    title="Group-relative outcome advantage, the same for every step",
    family="outcome",
    params=Params,
    needs={"reward|rewards"},
    yields="step",
    tags={"group", "broadcast", "conserves", "shift_invariant", "scale_invariant"},
    cites="arXiv:2402.03300",
    compat={
        "verl": {"eps": 1e-6, "singleton": "raw"},
        "verl-vectorized": {"eps": 1e-6, "singleton": "raw"},
        "trl": {"eps": 1e-4, "singleton": "zero"},
    },
    aliases={"dr-grpo": {"scale": "none"}, "grpo-passk": {"variant": "passk"}},
)
def grpo(index: Index, params: Params) -> Parts:
    """Group-relative outcome advantage.

    ``A_i = (S_i - mean_g S) / (std_g S + eps)``, S_i the rollout's total return, std unbiased;
    every step (and policy token) of rollout i carries A_i.  With ``scale="none"`` it is Dr.GRPO,
    ``(n-1)/n`` times RLOO.  With ``variant="passk"`` only the single best rollout of a group has
    credit: ``A = (S_(1) - S_(2)) / (std_g S + eps)``, 0 in a tie for first.

    Several rewards: ``sum_then_normalize`` takes ``S_i = sum_k w_k r_ik``; ``normalize_then_sum``
    takes ``S_i = sum_k w_k (r_ik - mean_g r_k) / (std_g r_k + eps)`` and then mean and deviation
    over the batch.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``; sums to 0 over the rollouts of a group; exactly 0 where all tie.
        ``parts``: ``episode``, or one addend a reward.

    Raises:
        ParamError: for parameters that exclude each other, or a weight or gate of no reward.
        MissingSignal: if the rollouts lack the reward that ``combine`` asks for.

    Source: arXiv 2402.03300 Eq. 3; verl ``compute_grpo_outcome_advantage``.

    Example:
        >>> import accredit as ac
        >>> records = [
        ...     {"id": str(i), "group": "g", "reward": r, "steps": [{}]} for i, r in enumerate([1, 0, 0, 1])
        ... ]
        >>> ac.assign(records, "grpo").steps.round(4).tolist()
        [0.866, -0.866, -0.866, 0.866]
    """
    scores, inner = _scores(index, params)
    level = _level(index, scores.total, inner, scores.counted)
    values = _advantage(level, inner)[index.rollout_S]
    pieces = scores.addends if inner.variant == "mean" else {}
    addends = {name: level.of(addend) for name, addend in pieces.items()} or {"episode": level}
    return Parts(
        values,
        parts={name: _advantage(own, inner)[index.rollout_S] for name, own in addends.items()},
        fallbacks={"singleton": int(level.group.alone.sum()), **scores.fallbacks},
        explain=_explainer(index, addends, inner, values),
        unused=scores.unused,
    )


def _explainer(index: Index, addends: Mapping[str, _Level], params: Params, values: Floats) -> Explainer:
    def explain(s: int) -> Explanation:
        r = int(index.rollout_S[s])
        terms = tuple(_term(index, name, level, params, r) for name, level in addends.items())
        return Explanation("grpo", *index.place_of(s), float(values[s]), terms)

    return explain


def _term(index: Index, name: str, level: _Level, params: Params, r: int) -> Term:
    if params.variant == "mean" and params.centre != "none" and not level.group.alone[r]:
        stats = level.group if params.centre == "group" else level.whole
        scale = None if level.scale is None else np.full(stats.n, level.scale[r])
        eps = params.eps if scale is not None else None
        return rollout_term(index, name, stats, r, eps=eps, scale_G=scale)
    value = float(_advantage(level, params)[r])
    score = float(level.group.values[r])
    inputs = {"score": score}
    if level.group.alone[r]:
        text = f"score {score:.6g} of a group of one, singleton={params.singleton}"
    elif params.variant == "passk":
        best = np.sort(level.group.values[(level.group.ids == level.group.ids[r]) & (level.group.use > 0)])[
            -2:
        ]
        inputs |= {"best": float(best[-1]), "second": float(best[0])} if best.size else {}
        text = (
            f"(best {best[-1]:.6g} - second {best[0]:.6g})"
            if value
            else f"score {score:.6g}: not the single best"
        )
    else:
        text = f"score {score:.6g}"
    if level.scale is not None:
        std = 1.0 if level.group.alone[r] else float(level.scale[r])
        inputs |= {"std": std, "eps": params.eps}
        text += f" / (std {std:.6g} + {params.eps:g})" if value else ""
    return Term(name, value, text, inputs, group_members(index, level.group, r))
