"""HGPO: visits compared in nested groups that also share the last states.

Source: arXiv 2602.22817; code ``recipe/hgpo/core_hgpo.py`` of a verl-agent fork.  The paper's text
was not read: names of symbols are ours.  Differences: docs/methods/hgpo.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Parts, Term
from accredit.index import GroupStats, Index, first_seen, visit_term
from accredit.methods._params import bounded, choice, flag
from accredit.methods._registry import method
from accredit.methods.gigpo import StateGroupParams, episode_advantage, episode_stats, missing_states
from accredit.typing import Floats, Ints

__all__ = ["hgpo", "history_groups"]

_DENOMINATOR = 1e-6


@dataclass(frozen=True, slots=True)
class Params(StateGroupParams):
    """Parameters of `hgpo`."""

    mode: str = choice(
        "mean_std_norm", "mean_norm", doc="divide by the deviation too, or only subtract the mean"
    )
    history_length: int = bounded(2, at_least=0, doc="past states that must match besides")
    length_weight_alpha: float = bounded(1.0, at_least=0, doc="weight (k+1)^alpha of a match of k states")
    base_group: bool = flag(default=False, doc="the episode advantage joins as match of length 0")


def history_groups(index: Index, history_length: int) -> list[tuple[Ints, Ints]]:
    """Return for k = 1 .. K+1 the steps that have k-1 predecessors and their group codes.

    Two steps share a code when they lie in one task group and their last k states are equal.

    Args:
        index: of the batch.
        history_length: K.
    """
    base = index.anchor_S
    codes = base
    steps = np.arange(base.size)
    found = [(steps, codes)]
    width = int(base.max(initial=0)) + 1
    for k in range(2, history_length + 2):
        keep = index.position_S[steps] >= k - 1
        earlier = np.full(base.size, -1, np.int64)
        earlier[steps] = codes
        steps = steps[keep]
        if not steps.size:
            break
        codes = first_seen(earlier[steps - 1] * width + base[steps])
        found.append((steps, codes))
    return found


def _level(index: Index, returns: Floats, steps: Ints, codes: Ints, params: Params) -> GroupStats:
    counted = index.counted_R(params.truncated, params.incomplete)[index.rollout_S[steps]]
    return GroupStats(returns[steps], codes, int(codes.max(initial=-1)) + 1, counted)


def _advantage(stats: GroupStats, params: Params) -> Floats:
    if params.mode == "mean_norm":
        return stats.centred
    return stats.standardised(params.eps, ddof=0)


def _base(index: Index, params: Params) -> tuple[Floats, GroupStats]:
    counted = index.counted_R(params.truncated, params.incomplete)
    stats = episode_stats(index, counted, "steps")
    return episode_advantage(stats, params), stats


@method(
    "hgpo",
    title="Returns against visits that also share the recent history, longer matches weigh more",
    family="shared states",
    params=Params,
    needs={"reward", "state"},
    yields="step",
    tags={"group", "state_local"},
    cites="arXiv:2602.22817",
    compat={"code": {"singleton": "raw"}},
)
def hgpo(index: Index, params: Params) -> Parts:
    """Weighted mean of a step's advantages in nested history groups.

    For k = 1 .. min(K+1, t): ``a_k = (R - mean)/(std + eps)`` (population std) over all steps of
    the task group whose last k states are equal; items that are exactly 0 are dropped;
    ``A = sum_k w_k a_k``, ``w_k = (k+1)^alpha / (sum of kept (k+1)^alpha + 1e-6)``.  With K = 0,
    ``mean_norm`` and no base group it is GiGPO's step part times ``2^alpha/(2^alpha + 1e-6)``.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``, 0 where no group says anything.  Parts ``history_k`` (states matched)
        and ``episode`` (base group).  Extras: ``returns`` ``[S]``.

    Source: ``compute_hgpo_outcome_advantage``.
    """
    returns = index.return_S(params.gamma)
    levels: list[tuple[str, int, Ints, Floats, GroupStats]] = []
    if params.base_group:
        values, stats = _base(index, params)
        levels.append(("episode", 0, np.arange(values.size), values, stats))
    for k, (steps, codes) in enumerate(history_groups(index, params.history_length), start=1):
        stats = _level(index, returns, steps, codes, params)
        levels.append((f"history_{k}", k, steps, _advantage(stats, params), stats))
    total = np.full(returns.size, _DENOMINATOR)
    for _, k, steps, values, _ in levels:
        total[steps] += (values != 0) * (k + 1.0) ** params.length_weight_alpha
    parts = {}
    for name, k, steps, values, _ in levels:
        parts[name] = np.zeros(returns.size)
        weight = (k + 1.0) ** params.length_weight_alpha / total[steps]
        parts[name][steps] = weight * values

    credit = sum(parts.values(), np.zeros(returns.size))
    informed = np.zeros(returns.size, bool)
    for name, values in parts.items():
        if name != "episode":
            informed |= values != 0

    def explain(s: int) -> Explanation:
        terms = [
            _explain_level(index, params, level, s, float(parts[level[0]][s]))
            for level in levels
            if parts[level[0]][s] != 0
        ]
        notes = () if terms else ("no group of equal states says anything about this step",)
        return Explanation("hgpo", *index.place_of(s), float(credit[s]), tuple(terms), notes)

    return Parts(
        credit,
        parts=parts,
        informed_S=informed,
        fallbacks={"missing_state": missing_states(index)},
        extras={"returns": returns},
        explain=explain,
    )


def _explain_level(
    index: Index,
    params: Params,
    level: tuple[str, int, Ints, Floats, GroupStats],
    s: int,
    value: float,
) -> Term:
    name, _, steps, values, stats = level
    at = int(np.searchsorted(steps, s))
    ddof = 1 if name == "episode" else 0
    std = None if params.mode == "mean_norm" else stats.std(ddof)
    eps = None if params.mode == "mean_norm" else params.eps
    weight = value / float(values[at])
    noun = "score" if name == "episode" else "return"
    return visit_term(index, name, stats, at, weight=weight, eps=eps, scale_G=std, noun=noun, steps=steps)
