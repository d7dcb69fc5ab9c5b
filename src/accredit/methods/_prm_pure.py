"""PURE: process rewards weighed towards a rollout's worst step, so that their sum is near its minimum.

Source: arXiv 2504.15275; CJReinforce/PURE ``turn_process_reward_logits_to_reward`` and
``experience_maker.process_experiences``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Member, Parts, Term
from accredit.index import GroupStats, Index, discounted_sum, segment_sum
from accredit.methods._prm_params import Params
from accredit.methods._prm_rules import Case, explained, gaps, others_term
from accredit.methods._prm_sources import Signal, scores
from accredit.typing import BoolArray, Floats

__all__ = ["pure", "solution_scores"]


def pure(case: Case) -> Parts:
    """Return weighted step rewards minus their baseline, summed from each step on, plus the outcome.

    ``p' = 2 p - 1``, ``w = softmax(-p' / tau)`` over the rollout's steps, ``r_t = w_t p'_t``.
    """
    index, params = case.index, case.params
    by_outcome = params.reward_mode != "PRM"
    joined = case.joined(outcome=by_outcome)
    signal = scores(index)
    good = 2.0 * signal.values - 1.0
    there = signal.there & joined[index.rollout_S]
    weighted = _weights(index, good, there, params) * good
    base = _Base.of(index, weighted, there, params)
    reward = (weighted - base.units * base.price[index.rollout_S]) * base.used * (params.reward_mode != "VR")
    process = discounted_sum(reward, index.batch.step_start_R1, 1.0)
    outcome = case.outcomes(joined)
    coef = params.verifier_coef * by_outcome
    parts = {"process": process, "outcome": coef * outcome.less_others[index.rollout_S]}
    values = process + parts["outcome"]

    def terms(s: int) -> tuple[Term, ...]:
        own = others_term(index, "outcome", outcome, int(index.rollout_S[s]), coef)
        return _process_term(index, weighted, base, float(process[s]), s), own

    return Parts(
        values,
        parts=parts,
        informed_S=base.used > 0,
        fallbacks=gaps(index, joined, signal.there) | {"singleton": int(outcome.alone.sum())},
        findings=signal.findings,
        extras={"weighted_rewards": weighted, **solution_scores(index, signal)},
        explain=explained(index, values, terms),
    )


def _weights(index: Index, good: Floats, there: BoolArray, params: Params) -> Floats:
    """Return w_t ``[S]``: they sum to 1 over the scored steps of a rollout, 0 elsewhere."""
    n = len(index.batch)
    if params.weighted:
        worst = np.full(n, np.inf)
        np.minimum.at(worst, index.rollout_S[there], good[there])
        above = np.where(there, good - worst[index.rollout_S], np.inf)
        with np.errstate(over="ignore"):
            raw = np.exp(-np.where(there, above / params.tau if params.tau < np.inf else 0.0, np.inf))
    else:
        raw = there.astype(np.float64)
    total = segment_sum(raw, index.rollout_S, n)[index.rollout_S]
    found: Floats = np.divide(raw, total, out=np.zeros_like(raw), where=total > 0)
    return found


@dataclass(frozen=True)
class _Base:
    """What the other rollouts of the group earn, which is subtracted from each step's reward.

    Args:
        units: tokens of each step (or 1 step) ``[S]``.
        price: reward a unit of the others ``[R]``.
        used: 1 on scored steps of rollouts that have others, else 0 ``[S]``.
        total: reward of each rollout ``[R]``.
        size: units of each rollout ``[R]``.
    """

    units: Floats
    price: Floats
    used: Floats
    total: Floats
    size: Floats

    @classmethod
    def of(cls, index: Index, weighted: Floats, there: BoolArray, params: Params) -> _Base:
        n = len(index.batch)
        units: Floats = np.ones(index.batch.n_steps)
        if params.baseline == "token":
            tokens = index.tokens_S.astype(np.float64) + params.separator
            # In a group without any token on record every step counts as one.
            known = segment_sum(tokens, index.group_S, index.n_groups) > 0
            units = np.where(known[index.group_S], tokens, 1.0)
        total = segment_sum(weighted, index.rollout_S, n)
        size = segment_sum(units * there, index.rollout_S, n)
        scored = segment_sum(there, index.rollout_S, n) > 0
        among = GroupStats(total, index.group_R, index.n_groups, scored)
        if params.baseline == "step":
            mean = np.divide(total, size, out=np.zeros(n), where=size > 0)
            price = GroupStats(mean, index.group_R, index.n_groups, scored).leave_one_out
        else:
            lengths = GroupStats(size, index.group_R, index.n_groups, scored).leave_one_out
            price = np.divide(among.leave_one_out, lengths, out=np.zeros(n), where=lengths > 0)
        used = there & (scored & ~among.alone)[index.rollout_S]
        return cls(units, price, used.astype(np.float64), total, size)


def _process_term(index: Index, weighted: Floats, base: _Base, value: float, s: int) -> Term:
    r = int(index.rollout_S[s])
    ahead = slice(s, int(index.batch.step_start_R1[r + 1]))
    own = float((weighted[ahead] * base.used[ahead]).sum())
    units = float((base.units[ahead] * base.used[ahead]).sum())
    price = float(base.price[r])
    same = np.flatnonzero((index.group_R == index.group_R[r]) & (base.size > 0)).tolist()
    members = tuple(
        Member(index.batch.ids[j], float(base.total[j]), note=f"over {base.size[j]:g} units")
        for j in same
        if j != r
    )
    text = f"weighted rewards from here on {own:.6g} - {units:g} units x {price:.6g} a unit of the others"
    if value == 0:
        text += " [no others, or not used: 0]"
    return Term("process", value, text, {"own": own, "units": units, "price": price}, members)


def solution_scores(index: Index, signal: Signal) -> dict[str, Floats]:
    """Return scores of whole solutions ``[R]``: product and minimum of p_t, 0 where none is scored.

    Args:
        index: of the batch.
        signal: p_t ``[S]``.

    Source: arXiv 2305.20050 (Let's Verify Step by Step).
    """
    n, rollout = len(index.batch), index.rollout_S[signal.there]
    product, least = np.ones(n), np.full(n, np.inf)
    np.multiply.at(product, rollout, signal.values[signal.there])
    np.minimum.at(least, rollout, signal.values[signal.there])
    bare = ~np.isfinite(least)
    product[bare] = least[bare] = 0.0
    return {"solution_product": product, "solution_minimum": least}
