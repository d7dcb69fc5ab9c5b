"""PRIME: token rewards from an implicit reward model, each against the other rollouts' mean.

Source: arXiv 2502.01456; PRIME-RL/PRIME ``core_algos.compute_rloo_returns``,
``dp_prime.compute_implicit_reward``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Member, Parts, Term
from accredit.index import GroupStats, Index, carrier_S, discounted_sum, last_of_row, segment_sum
from accredit.methods._prm_rules import Case, explained, gaps, others_term
from accredit.methods._prm_sources import Signal, log_ratios
from accredit.methods._whitened import whitening_term
from accredit.methods.reinforce_pp import step_values
from accredit.spread import Whitening
from accredit.typing import BoolArray, Floats

__all__ = ["prime", "prime_code"]


@dataclass(frozen=True)
class _Rewards:
    """Token rewards against the other rollouts of the group.

    Args:
        own: token rewards ``[T]``, what is kept of each.
        base: what is subtracted from each token's reward ``[R]``.
        used: 1 on tokens that take part, else 0 ``[T]``.
        means: mean token reward of the rollouts, by group.
    """

    own: Floats
    base: Floats
    used: Floats
    means: GroupStats

    @classmethod
    def of(cls, index: Index, reward: Floats, there: BoolArray, joined: BoolArray, *, code: bool) -> _Rewards:
        n = len(index.batch)
        rollout_T = np.repeat(np.arange(n), index.tokens_R)
        counted = there & np.repeat(joined, index.tokens_R)
        size = segment_sum(counted, rollout_T, n)
        total = segment_sum(reward * counted, rollout_T, n)
        mean = np.divide(total, size, out=np.zeros(n), where=size > 0)
        means = GroupStats(mean, index.group_R, index.n_groups, size > 0)
        together = np.repeat((means.use > 0) & ~means.alone, index.tokens_R)
        used = (counted & together).astype(np.float64)
        if not code:
            return cls(reward, means.leave_one_out, used, means)
        # All rollouts are in the sum, this one too, and each reward is stretched by K / (K - 1).
        others = np.maximum(means.size[means.ids] - 1, 1)
        stretch = np.repeat(means.size[means.ids] / others, index.tokens_R)
        return cls(reward * stretch, means.total[means.ids] / others, used, means)

    def returns(self, index: Index, gamma: float) -> Floats:
        """Return the sums to go of the rewards minus the base ``[T]``."""
        centred = (self.own - np.repeat(self.base, index.tokens_R)) * self.used
        return discounted_sum(centred, index.token_start_R1, gamma)

    def term(self, index: Index, gamma: float, value: float, r: int, k: int) -> Term:
        """Return the arithmetic of token k of rollout r; k = -1 where it has no policy tokens."""
        ahead = slice(k, int(index.token_start_R1[r + 1])) if k >= 0 else slice(0, 0)
        fade = gamma ** np.arange(ahead.stop - ahead.start) * self.used[ahead]
        own, units, base = float(fade @ self.own[ahead]), float(fade.sum()), float(self.base[r])
        same = np.flatnonzero((index.group_R == index.group_R[r]) & (self.means.use > 0)).tolist()
        members = tuple(
            Member(index.batch.ids[j], float(self.means.values[j]), note="this one" if j == r else "")
            for j in same
        )
        text = f"token rewards from here on {own:.6g} - {units:.6g} tokens x {base:.6g} a token of the group"
        return Term("process", value, text, {"own": own, "units": units, "base": base}, members)


def prime(case: Case) -> Parts:
    """Return token credit of the paper's form.

    ``A_k = sum_{s>=k} gamma^(s-k) [beta l_s - mean of the others' mean beta l] + R - mean R of the
    others``, l the log ratio.
    """
    index, params = case.index, case.params
    joined = case.joined()
    signal = log_ratios(index)
    rewards = _Rewards.of(index, params.beta * signal.values, signal.there, joined, code=False)
    outcome = case.outcomes(joined)
    own_R = outcome.less_others
    parts = {
        "process": rewards.returns(index, params.gamma),
        "outcome": np.repeat(own_R, index.tokens_R),
    }
    values = parts["process"] + parts["outcome"]
    steps = step_values(index, values, "first")

    def terms(s: int) -> tuple[Term, ...]:
        r, k = _token_of(index, s)
        process = float(parts["process"][k]) if k >= 0 else 0.0
        found = (rewards.term(index, params.gamma, process, r, k),)
        return (*found, others_term(index, "outcome", outcome, r, 1.0)) if k >= 0 else ()

    return Parts(
        values,
        parts=parts,
        steps=steps,
        informed_S=_informed(index, rewards),
        fallbacks=_fallbacks(index, joined, outcome),
        explain=explained(index, steps, terms),
    )


def prime_code(case: Case) -> Parts:
    """Return token credit as the authors' code computes it, whitened over the batch."""
    index, params = case.index, case.params
    joined = case.joined()
    rewards = _Rewards.of(index, *_normalised(case, log_ratios(index)), joined, code=True)
    outcome = case.outcomes(joined)
    fade = _fading(index, params.verifier_gamma)
    own_T = np.repeat(outcome.less_others, index.tokens_R) * fade
    parts = {"process": rewards.returns(index, params.gamma), "outcome": own_T}
    raw = parts["process"] + parts["outcome"]
    joined_T = np.repeat(joined, index.tokens_R)
    white = Whitening.over(raw, joined_T)
    values = white.of(raw, joined_T, params.whiten_eps)
    parts["whitening"] = values - raw
    steps = step_values(index, values, "first")

    def terms(s: int) -> tuple[Term, ...]:
        r, k = _token_of(index, s)
        if k < 0:
            return ()
        return (
            rewards.term(index, params.gamma, float(parts["process"][k]), r, k),
            others_term(index, "outcome", outcome, r, float(fade[k])),
            whitening_term(white, float(raw[k]), params.whiten_eps, counted=bool(joined[r])),
        )

    return Parts(
        values,
        parts=parts,
        steps=steps,
        informed_S=_informed(index, rewards),
        fallbacks=_fallbacks(index, joined, outcome),
        extras={"returns": raw},
        explain=explained(index, steps, terms),
    )


def _normalised(case: Case, signal: Signal) -> tuple[Floats, BoolArray]:
    """Return the log ratios as rewards, and which tokens have one, by granularity and norm."""
    index, params = case.index, case.params
    reward = signal.values
    if params.granularity == "whole":
        rows, last = last_of_row(index.token_start_R1)
        rollout_T = np.repeat(np.arange(len(index.batch)), index.tokens_R)
        total = segment_sum(reward, rollout_T, len(index.batch))
        reward = np.zeros_like(reward)
        reward[last] = total[rows]
    if params.prime_norm == "batch" and reward.size:
        sums = discounted_sum(reward, index.token_start_R1, 1.0)
        reward = reward / max(float(np.abs(sums).max()) + params.norm_eps, np.finfo(float).tiny)
    return reward, signal.there


def _fading(index: Index, gamma: float) -> Floats:
    """Return what an outcome on the last policy token is worth at each token ``[T]``."""
    if gamma == 1.0:
        return np.ones(index.batch.n_tokens)
    to_go = np.repeat(index.token_start_R1[1:], index.tokens_R) - 1 - np.arange(index.batch.n_tokens)
    found: Floats = gamma ** to_go.astype(np.float64)
    return found


def _token_of(index: Index, s: int) -> tuple[int, int]:
    """Return the rollout of step s and the token whose credit is the step's; -1 = none."""
    k = int(index.batch.token_start_S1[s]) if index.tokens_S[s] else int(carrier_S(index)[s])
    return int(index.rollout_S[s]), k


def _informed(index: Index, rewards: _Rewards) -> BoolArray:
    return segment_sum(rewards.used, index.step_T, index.batch.n_steps) > 0


def _fallbacks(index: Index, joined: BoolArray, outcome: GroupStats) -> dict[str, int]:
    there = index.batch.column("prm_logratio_T").mask(index.batch.n_steps)
    bare = joined & (index.tokens_R == 0) & (index.steps_R > 0)
    found = gaps(index, joined, there | (index.tokens_S == 0))
    return found | {"singleton": int(outcome.alone.sum()), "no_policy_tokens": int(bare.sum())}
