"""ARPO: group-relative outcomes on branched rollouts; shared steps may carry their rollouts' mean.

Source: arXiv 2507.19849; dongguanting/ARPO @ e257337
``verl_arpo_entropy/verl/trainer/ppo/core_algos.py``.  Differences from their code:
docs/methods/arpo.md; where to fork: `accredit.planners.entropy_forks`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Finding, Parts, Term
from accredit.data.parts import Explainer
from accredit.index import (
    GroupStats,
    Index,
    fork_parents,
    fork_step_R,
    group_members,
    owner_S,
    rollout_term,
    segment_sum,
)
from accredit.methods import grpo
from accredit.methods._params import bounded, choice, flag, truncated_choice
from accredit.methods._registry import method
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["arpo"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `arpo`."""

    attribution: str = choice(
        "soft", "hard", doc="a shared step: each copy its own rollout's advantage, or all their mean"
    )
    normalise_by_std: bool = flag(default=True, doc="divide by the deviation of the group")
    eps: float = bounded(1e-6, at_least=0, doc="added to the deviation")
    dedupe: bool = flag(default=False, doc="a shared step is trained once: the weight of other copies is 0")
    dedupe_weight: str = choice(
        "copies", "one", doc="weight of the copy that is trained: number of rollouts that share it, or 1"
    )
    singleton: str = choice("zero", "raw", doc="a group of one: credit 0, or its raw score")
    truncated: str = truncated_choice()


@dataclass(frozen=True, slots=True, eq=False)
class _Shared:
    """Advantages of rollouts, and which steps they share.

    Args:
        advantage_R: group-relative outcome ``[R]``; 0 where not counted.
        stats: of the scores by group.
        owner_S: step that each step is a copy of ``[S]``.
        sharers_S: counted rollouts that have a copy ``[S]``.
    """

    advantage_R: Floats
    stats: GroupStats
    owner_S: Ints
    sharers_S: Floats


@method(
    "arpo",
    title="Group-relative outcome on branched rollouts",
    family="forks",
    params=Params,
    needs={"reward"},
    yields="step",
    tags={"group", "conserves", "shift_invariant", "scale_invariant"},
    cites="arXiv:2507.19849",
)
def arpo(index: Index, params: Params) -> Parts:
    """Advantage attribution on branched rollouts.

    ``a_i = (R_i - mean_g R) / (std_g R + eps)``, R the score, std unbiased over the leaves of a task.
    ``soft``: every step of rollout i has a_i, copies of shared steps included; it is GRPO on the
    leaves.  ``hard``: a step that the rollouts S share has ``mean over S of a_j`` in every copy; both
    have the same summed gradient while nothing is clipped.  A branch without a step of its own is
    its parent again: it is left out and gets 0.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``; sums to 0 over the rollouts of a group; exactly 0 where all tie.
        ``parts``: ``episode``.  Extras: ``advantage`` ``[R]``, ``sharers`` ``[S]`` and ``weight``
        ``[S]``, what a trainer multiplies the loss of a step by.

    Raises:
        DataError: if a fork goes back to a step or a rollout that is not there.

    Source: arXiv 2507.19849; ``compute_grpo_outcome_advantage`` in their verl.

    Example:
        >>> import accredit as ac
        >>> forks = {"r2": "r1", "r3": "r0"}
        >>> records = [
        ...     {"id": f"r{i}", "group": "g", "reward": r, "steps": [{}, {}]}
        ...     | ({"parent": forks[f"r{i}"], "fork_step": 1} if f"r{i}" in forks else {})
        ...     for i, r in enumerate([1, 0, 0, 0, 0])
        ... ]
        >>> ac.assign(records, "arpo", attribution="hard").by_rollout()[0].round(4).tolist()
        [0.6708, 1.7889]
    """
    owner = owner_S(index)
    again = _again(index)
    counted = index.counted_R(params.truncated) & ~again
    scale = "group" if params.normalise_by_std else "none"
    plain = grpo.Params(scale=scale, eps=params.eps, singleton=params.singleton)
    advantage, stats = grpo.outcome_advantage(index, index.score_R, plain, counted)
    shared = _Shared(
        advantage, stats, owner, _over_copies(counted[index.rollout_S].astype(np.float64), owner)
    )
    values = advantage[index.rollout_S]
    if params.attribution == "hard":
        mean = _over_copies(values, owner) / np.maximum(shared.sharers_S, 1)
        values = np.where(counted[index.rollout_S], mean, 0.0)
    several = (shared.sharers_S > 1) & counted[index.rollout_S]
    return Parts(
        values,
        parts={"episode": values},
        informed_S=several if params.attribution == "hard" else None,
        fallbacks={"singleton": int(stats.alone.sum()), "branch_without_steps": int(again.sum())},
        findings=_findings(params, several),
        extras={
            "advantage": advantage,
            "sharers": shared.sharers_S,
            "weight": _weights(params, shared, counted[index.rollout_S]),
        },
        explain=_explainer(index, params, shared, values),
    )


def _again(index: Index) -> BoolArray:
    """Return the branches without a step of their own ``[R]``."""
    parent = fork_parents(index)
    found: BoolArray = (parent >= 0) & (fork_step_R(index, parent) >= index.steps_R)
    return found


def _over_copies(values_S: Floats, owner: Ints) -> Floats:
    """Return the sum over all copies of each step ``[S]``."""
    return segment_sum(values_S, owner, owner.size)[owner]


def _weights(params: Params, shared: _Shared, counted_S: BoolArray) -> Floats:
    """Return what a step's loss is multiplied by ``[S]``: 1, or with ``dedupe`` once for all copies."""
    if not params.dedupe:
        return np.ones(shared.owner_S.size)
    found = np.zeros(shared.owner_S.size)
    steps = np.flatnonzero(counted_S)
    first = steps[np.unique(shared.owner_S[steps], return_index=True)[1]]
    found[first] = shared.sharers_S[first] if params.dedupe_weight == "copies" else 1.0
    return found


def _findings(params: Params, several: BoolArray) -> tuple[Finding, ...]:
    if params.attribution == "soft" or several.any():
        return ()
    message = "no two rollouts share a step (links): hard attribution is soft attribution"
    return (Finding("ACC509", "warning", message, hint="Give `parent` and `fork_step`"),)


def _explainer(index: Index, params: Params, shared: _Shared, values: Floats) -> Explainer:
    def explain(s: int) -> Explanation:
        r = int(index.rollout_S[s])
        term = _term(index, params, shared, r, s, float(values[s]))
        return Explanation("arpo", *index.place_of(s), term.value, (term,))

    return explain


def _term(index: Index, params: Params, shared: _Shared, r: int, s: int, value: float) -> Term:
    n, stats = float(shared.sharers_S[s]), shared.stats
    inputs = {"advantage": float(shared.advantage_R[r]), "sharers": n}
    members = group_members(index, stats, r)
    if params.attribution == "hard" and n > 1 and stats.use[r]:
        text = f"mean advantage of the {n:.0f} rollouts that share the step"
        return Term("episode", value, text, inputs, members)
    if stats.alone[r]:
        text = f"score {stats.values[r]:.6g} of a group of one, singleton={params.singleton}"
        return Term("episode", value, text, inputs, members)
    eps = params.eps if params.normalise_by_std else None
    return rollout_term(index, "episode", stats, r, eps=eps, scale_G=stats.std())
