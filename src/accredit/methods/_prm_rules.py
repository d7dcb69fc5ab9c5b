"""Rules on one number a step: pooled step rewards, potentials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Member, Parts, Term
from accredit.index import GroupStats, Index, discounted_sum, rollout_term, segment_sum, shifted
from accredit.methods._prm_params import Params
from accredit.methods._prm_sources import joined_R, potentials, step_rewards
from accredit.typing import BoolArray, Floats

__all__ = ["Case", "explained", "gaps", "immediate", "others_term", "pbrs", "pooled"]

Terms = Callable[[int], tuple[Term, ...]]


@dataclass(frozen=True)
class Case:
    """A run of prm: its batch, its parameters, the source and the rule in force."""

    index: Index
    params: Params
    source: str
    rule: str

    def joined(self, *, outcome: bool = True) -> BoolArray:
        """Return which rollouts take part ``[R]``."""
        return joined_R(self.index, self.params.truncated, self.params.incomplete, outcome=outcome)

    def outcomes(self, joined: BoolArray) -> GroupStats:
        """Return the statistics of the outcome ``[R]`` by group."""
        return GroupStats(self.index.outcome_R, self.index.group_R, self.index.n_groups, joined)


def explained(index: Index, values_S: Floats, terms: Terms) -> Callable[[int], Explanation]:
    """Return the explainer of a step's credit from its terms."""

    def explain(s: int) -> Explanation:
        return Explanation("prm", *index.place_of(s), float(values_S[s]), terms(s))

    return explain


def gaps(index: Index, joined: BoolArray, there_S: BoolArray) -> dict[str, int]:
    """Return how many rollouts have no annotation, and how many steps of the others lack it."""
    have = segment_sum(there_S, index.rollout_S, len(index.batch)) > 0
    bare = joined & ~have & (index.steps_R > 0)
    holes = (joined & have)[index.rollout_S] & ~there_S
    return {"unannotated": int(bare.sum()), "missing_steps": int(holes.sum())}


def others_term(index: Index, name: str, stats: GroupStats, r: int, weight: float) -> Term:
    """Return the term of rollout r's value against the mean of the others of its group.

    Args:
        index: of the batch.
        name: the addend's name.
        stats: over rollouts ``[R]`` by group.
        r: the rollout.
        weight: factor of the whole term.
    """
    same = np.flatnonzero((index.group_R == index.group_R[r]) & (stats.use > 0)).tolist()
    members = tuple(Member(index.batch.ids[j], float(stats.values[j])) for j in same if j != r)
    own, mean = float(stats.values[r]), float(stats.leave_one_out[r])
    text = f"{weight:g} x (outcome {own:.6g} - mean {mean:.6g} of {len(members)} others)"
    value = weight * (own - mean)
    if not members or not stats.use[r] or stats.flat[stats.ids[r]]:
        text, value = f"{text} [no others, all equal, or not counted: exactly 0]", 0.0
    inputs = {"outcome": own, "mean": mean, "n": float(len(members)), "weight": weight}
    return Term(name, value, text, inputs, members)


def pooled(case: Case) -> Parts:
    """Return the group's step rewards standardised in one pool, summed from each step on.

    ``A_t = sum_{u>=t} (r_u - mean) / (std + eps)``, plus ``w (R - mean R) / (std R + eps)``.
    """
    index, params = case.index, case.params
    weight = params.outcome_weight
    if weight is None:
        weight = 1.0 if case.rule == "milestone" else 0.0
    joined = case.joined(outcome=weight > 0)
    signal = step_rewards(index, case.source, form=params.milestone, beta=params.beta)
    pool = GroupStats(signal.values, index.group_S, index.n_groups, signal.there & joined[index.rollout_S])
    outcome = case.outcomes(joined)
    process = discounted_sum(pool.standardised(params.eps), index.batch.step_start_R1, 1.0)
    parts = {"process": process, "outcome": weight * outcome.standardised(params.eps)[index.rollout_S]}
    values = process + parts["outcome"]

    def terms(s: int) -> tuple[Term, ...]:
        found = (_pool_term(index, pool, s, params.eps),)
        if not weight:
            return found
        r = int(index.rollout_S[s])
        own = rollout_term(index, "outcome", outcome, r, weight=weight, eps=params.eps, scale_G=outcome.std())
        return (*found, own)

    return Parts(
        values,
        parts=parts,
        informed_S=pool.use > 0,
        fallbacks=gaps(index, joined, signal.there),
        findings=signal.findings,
        extras={"step_rewards": signal.values},
        explain=explained(index, values, terms),
    )


def _pool_term(index: Index, pool: GroupStats, s: int, eps: float) -> Term:
    r, g = int(index.rollout_S[s]), int(index.group_S[s])
    first, end = int(index.batch.step_start_R1[r]), int(index.batch.step_start_R1[r + 1])
    mean, std, size = float(pool.mean[g]), float(pool.std()[g]), int(pool.size[g])
    used = [u for u in range(s, end) if pool.use[u]]
    value = sum(float(pool.centred[u]) for u in used) / (std + eps) if std > 0 else 0.0
    members = tuple(Member(index.batch.ids[r], float(pool.values[u]), u - first) for u in used)
    text = (
        f"sum of (step reward - mean {mean:.6g} of {size}) / (std {std:.6g} + {eps:g}) "
        f"over {len(used)} steps from here on"
    )
    if not std:
        text += " [all equal, or one alone: exactly 0]"
    inputs = {"mean": mean, "std": std, "eps": eps, "n": float(size)}
    return Term("process", value, text, inputs, members)


def pbrs(case: Case) -> Parts:
    """Return shaped returns from each step on, minus the group's mean shaped return.

    ``F_t = gamma Phi(s_{t+1}) - Phi(s_t)``, Phi = 0 after the end and where it is not known (both
    keep the optimal policy); ``A_t = G_t - mean_j G_{j,0}`` of the rewards plus F.
    """
    index, gamma = case.index, case.params.gamma
    joined = case.joined()
    signal = potentials(index, case.source)
    start = index.batch.step_start_R1
    none = np.zeros(len(index.batch))
    shaping = gamma * shifted(signal.values, start, none) - signal.values
    earned = _Centred.of(index, index.reward_S, index.score_R, gamma, joined)
    shaped = _Centred.of(index, shaping, none, gamma, joined)
    parts = {"outcome": earned.values, "shaping": shaped.values}
    values = earned.values + shaped.values

    def terms(s: int) -> tuple[Term, ...]:
        return earned.term(index, "outcome", s), shaped.term(index, "shaping", s)

    return Parts(
        values,
        parts=parts,
        informed_S=signal.there & joined[index.rollout_S],
        fallbacks=gaps(index, joined, signal.there),
        findings=signal.findings,
        extras={"shaping_rewards": shaping},
        explain=explained(index, values, terms),
    )


@dataclass(frozen=True)
class _Centred:
    """Returns to go ``[S]`` minus the group's mean return of whole rollouts."""

    returns: Floats
    whole: GroupStats
    values: Floats

    @classmethod
    def of(
        cls, index: Index, reward_S: Floats, stepless_R: Floats, gamma: float, joined: BoolArray
    ) -> _Centred:
        returns = discounted_sum(reward_S, index.batch.step_start_R1, gamma)
        total = np.where(index.steps_R > 0, 0.0, stepless_R)
        heads = index.batch.step_start_R1[:-1][index.steps_R > 0]
        total[index.steps_R > 0] = returns[heads]
        whole = GroupStats(total, index.group_R, index.n_groups, joined)
        r = index.rollout_S
        values = np.where(joined[r], returns - total[r] + whole.centred[r], 0.0)
        return cls(returns, whole, values)

    def term(self, index: Index, name: str, s: int) -> Term:
        g = int(index.group_S[s])
        mean = float(self.whole.mean[g])
        same = np.flatnonzero(
            (index.group_R == index.group_R[int(index.rollout_S[s])]) & (self.whole.use > 0)
        )
        members = tuple(Member(index.batch.ids[j], float(self.whole.values[j])) for j in same.tolist())
        inputs = {"return": float(self.returns[s]), "mean": mean, "n": float(len(members))}
        text = f"return from here on {inputs['return']:.6g} - mean whole return {mean:.6g} of {len(members)}"
        return Term(name, float(self.values[s]), text, inputs, members)


def immediate(case: Case) -> Parts:
    """Return the change of the potential that each step brought, the outcome being the end's.

    ``A_t = V(s_{t+1}) - V(s_t)``, V(end) = R; a truncated rollout without reward ends at the
    potential of its last state, if known, else 0.  A step of unknown potential gets 0.
    """
    index = case.index
    signal = potentials(index, case.source)
    have = segment_sum(signal.there, index.rollout_S, len(index.batch)) > 0
    credited, end = _ends(case)
    start = index.batch.step_start_R1
    after = np.zeros(index.batch.n_steps)
    rows = np.flatnonzero(index.steps_R)
    after[start[rows + 1] - 1] = end[rows]
    # An unknown potential is that of the state after it: no change there, and the sum telescopes.
    known = discounted_sum(
        np.where(signal.there, signal.values, after), start, np.where(signal.there, 0.0, 1.0)
    )
    used = (credited & have)[index.rollout_S]
    following = shifted(known, start, end)
    values = np.where(used, following - known, 0.0)

    def terms(s: int) -> tuple[Term, ...]:
        inputs = {"next": float(following[s]), "potential": float(known[s])}
        text = f"next potential {inputs['next']:.6g} - potential {inputs['potential']:.6g}"
        if not used[s]:
            text += " [no credit: unscored, or not annotated]"
        return (Term("process", float(values[s]), text, inputs),)

    return Parts(
        values,
        parts={"process": values},
        informed_S=used & signal.there,
        fallbacks=gaps(index, credited, signal.there),
        findings=signal.findings,
        extras={"values": known},
        explain=explained(index, values, terms),
    )


def _ends(case: Case) -> tuple[BoolArray, Floats]:
    """Return which rollouts get credit and the potential of their ends ``[R]``."""
    index = case.index
    cut = index.has_status("truncated") & ~index.scored_R
    end = np.where(index.scored_R, index.outcome_R, 0.0)
    for name in ("final_value_R", "final_potential_R"):
        column = index.batch.columns.get(name)
        if column is not None:
            end = np.where(cut & column.mask(len(index.batch)), column.values, end)
    if case.params.truncated == "drop":
        return case.joined(), end
    return case.joined() | cut, end
