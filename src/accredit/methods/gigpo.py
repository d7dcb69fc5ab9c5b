"""GiGPO: step advantages from groups of equal anchor states.

Source: arXiv 2505.10978, Eq. 3 and 5-8; authors' code verl-agent ``gigpo/core_gigpo.py``, second
implementation alibaba/ROLL ``agentic/utils.py``.  Differences: docs/methods/gigpo.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Parts, Term
from accredit.data.parts import Explainer
from accredit.errors import DataError
from accredit.index import (
    GroupStats,
    Index,
    first_seen,
    key_column,
    rollout_term,
    similar_clusters,
    visit_term,
)
from accredit.methods._params import GroupParams, bounded, choice, flag
from accredit.methods._registry import method
from accredit.typing import BoolArray, Floats, Ints

__all__ = [
    "StateGroupParams",
    "episode_advantage",
    "episode_stats",
    "gigpo",
    "missing_states",
    "normalised",
]


@dataclass(frozen=True, slots=True)
class StateGroupParams(GroupParams):
    """Parameters shared by the estimators that compare visits to one state."""

    gamma: float = bounded(0.95, at_least=0, at_most=1, doc="discount of step rewards")
    mode: str = choice("mean_norm", "mean_std_norm", doc="subtract the mean; or also divide by the deviation")
    eps: float = bounded(1e-6, at_least=0, doc="added to the deviation (mean_std_norm)")


@dataclass(frozen=True, slots=True)
class Params(StateGroupParams):
    """Parameters of `gigpo`."""

    parts: str = choice("joint", "step", "episode", "returns", doc="both terms, or one; returns = step")
    step_weight: float = bounded(1.0, at_least=0, doc="weight of the step term")
    episode_weight: float = bounded(1.0, at_least=0, doc="weight of the episode term")
    episode_stats: str = choice(
        "rollouts", "steps", doc="a rollout counts once, or once a step (authors' code)"
    )
    similarity: float | None = bounded(
        None, above=0, at_most=1, doc="greedy text similarity that joins states; None = equal keys"
    )
    autojunk: bool = flag(default=False, doc="difflib's heuristic, order-dependent (authors' code)")
    pool_across_groups: bool = flag(default=False, doc="equal states of different tasks compared (ROLL)")
    std_floor: float = bounded(0.0, at_least=0, doc="mean_std_norm: a deviation up to this counts as none")


def normalised(stats: GroupStats, params: StateGroupParams, floor: float = 0.0) -> Floats:
    """Return values centred in their group, scaled too in ``mean_std_norm``; exact 0 in a tie.

    Args:
        stats: of the values.
        params: mode and eps.
        floor: deviations up to this give 0.
    """
    if params.mode == "mean_norm":
        return stats.centred
    scale = stats.std()[stats.ids]
    return np.divide(stats.centred, scale + params.eps, out=np.zeros_like(stats.centred), where=scale > floor)


def episode_advantage(stats: GroupStats, params: StateGroupParams, floor: float = 0.0) -> Floats:
    """Return episode scores against their group; a group of one as ``singleton`` says.

    Args:
        stats: of `episode_stats`.
        params: mode, eps and singleton.
        floor: deviations up to this give 0.
    """
    found = normalised(stats, params, floor)
    return np.where(stats.alone, stats.values, found) if params.singleton == "raw" else found


def episode_stats(index: Index, counted: BoolArray, over: str) -> GroupStats:
    """Return the statistics of episode scores, over rollouts ``[R]`` or step rows ``[S]``.

    Args:
        index: of the batch.
        counted: rollouts in the statistics ``[R]``.
        over: ``rollouts`` or ``steps``.
    """
    if over == "rollouts":
        return GroupStats(index.score_R, index.group_R, index.n_groups, counted)
    rows = index.rollout_S
    return GroupStats(index.score_R[rows], index.group_S, index.n_groups, counted[rows])


def missing_states(index: Index) -> int:
    """Return the number of steps without a state key."""
    column = index.batch.columns.get(key_column(index.batch, index.key)[0])
    if column is None or column.valid is None:
        return 0
    return int((~column.valid).sum())


def _anchors(index: Index, params: Params) -> Ints:
    if params.similarity is None:
        return first_seen(index.state_S) if params.pool_across_groups else index.anchor_S
    column = index.batch.column(key_column(index.batch, index.key)[0])
    words = column.decoded().tolist()
    if column.valid is not None or not all(isinstance(w, str) for w in words):
        raise DataError(
            "similarity groups need a text state at every step",
            hint="Leave similarity out, or give string states (a normaliser as key is better)",
        )
    groups = np.zeros(len(words), int) if params.pool_across_groups else index.group_S
    return similar_clusters(words, groups.tolist(), params.similarity, autojunk=params.autojunk)


@method(
    "gigpo",
    title="Episode advantage plus the return against other visits of the same state",
    family="shared states",
    params=Params,
    needs={"reward", "state"},
    yields="step",
    tags={"group", "state_local"},
    cites="arXiv:2505.10978",
    compat={
        "verl-agent": {"episode_stats": "steps", "singleton": "raw", "autojunk": True},
        "roll": {"episode_stats": "steps", "pool_across_groups": True, "std_floor": 1e-6},
    },
    aliases={"returns": {"parts": "step"}},
)
def gigpo(index: Index, params: Params) -> Parts:
    """Group-in-group advantage of each step.

    ``A_{i,t} = E_i + w P_{i,t}``: E_i is the episode score against the group's mean, P_{i,t} the
    return-to-go ``R_{i,t} = sum_{k>=t} gamma^(k-t) r_{i,k}`` against the mean over all visits of
    the same state in the group (any rollout, any time, repeats included).  With ``step_weight=0``
    it is Dr.GRPO (``mean_norm``) or GRPO (``mean_std_norm``); with all states unique it is E_i.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``.  The step part sums to 0 over each state group.  Extras: ``returns``
        ``[S]``, ``episode_part`` and ``step_part`` unweighted ``[S]``, ``step_group`` ``[S]``
        (ids in order of first appearance).

    Raises:
        DataError: similarity without text states.

    Source: arXiv 2505.10978 Eq. 3, 5-8; verl-agent ``core_gigpo.py``.
    """
    counted = index.counted_R(params.truncated, params.incomplete)
    episode = episode_stats(index, counted, params.episode_stats)
    per_row = episode_advantage(episode, params, params.std_floor)
    per_row = per_row if params.episode_stats == "steps" else per_row[index.rollout_S]
    anchors = _anchors(index, params)
    n = int(anchors.max(initial=-1)) + 1
    visits = GroupStats(index.return_S(params.gamma), anchors, n, counted[index.rollout_S])
    step = normalised(visits, params, params.std_floor)
    parts = _weighted(per_row, step, params)
    return Parts(
        sum(parts.values(), np.zeros(step.size)),
        parts=parts,
        informed_S=step != 0 if "step" in parts else None,
        fallbacks={"singleton": int(episode.alone.sum()), "missing_state": missing_states(index)},
        extras={
            "returns": visits.values,
            "episode_part": per_row,
            "step_part": step,
            "step_group": anchors,
        },
        explain=_explainer(index, params, episode, visits, parts),
    )


def _weighted(episode: Floats, step: Floats, params: Params) -> dict[str, Floats]:
    parts = {"episode": params.episode_weight * episode, "step": params.step_weight * step}
    if params.parts == "joint":
        return parts
    name = "step" if params.parts == "returns" else params.parts
    return {name: parts[name]}


def _explainer(
    index: Index, params: Params, episode: GroupStats, visits: GroupStats, parts: dict[str, Floats]
) -> Explainer:
    eps = None if params.mode == "mean_norm" else params.eps

    def episode_term(s: int) -> Term:
        scale = None if eps is None else episode.std()
        weight = params.episode_weight
        if params.episode_stats == "steps":
            return visit_term(
                index, "episode", episode, s, weight=weight, eps=eps, scale_G=scale, noun="score"
            )
        r = int(index.rollout_S[s])
        return rollout_term(index, "episode", episode, r, weight=weight, eps=eps, scale_G=scale)

    def explain(s: int) -> Explanation:
        scale = None if eps is None else visits.std()
        terms = []
        if "episode" in parts:
            terms.append(episode_term(s))
        if "step" in parts:
            terms.append(
                visit_term(index, "step", visits, s, weight=params.step_weight, eps=eps, scale_G=scale)
            )
        total = float(sum(part[s] for part in parts.values()))
        return Explanation("gigpo", *index.place_of(s), total, tuple(terms))

    return explain
