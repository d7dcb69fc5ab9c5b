"""REINFORCE++: token returns, or group-centred scores, whitened over the whole batch.

Source: arXiv 2501.03262; verl 0.9.1 ``compute_reinforce_plus_plus_outcome_advantage`` and
``compute_reinforce_plus_plus_baseline_outcome_advantage``.  Differences from their code:
docs/methods/reinforce-pp.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Finding, Member, Parts, Term
from accredit.data.parts import Explainer
from accredit.errors import MissingSignal
from accredit.index import (
    GroupStats,
    Index,
    carrier_S,
    group_members,
    segment_sum,
    token_returns,
)
from accredit.index.rewards import components_of
from accredit.methods._params import GroupParams, bounded, choice
from accredit.methods._registry import method
from accredit.spread import Whitening
from accredit.typing import Floats

__all__ = ["reinforce_pp", "step_values"]


@dataclass(frozen=True, slots=True)
class Params(GroupParams):
    """Parameters of `reinforce-pp`."""

    variant: str = choice(
        "returns", "baseline", doc="whiten token returns; or scores minus their group's mean"
    )
    gamma: float = bounded(1.0, at_least=0, at_most=1, doc="discount a policy token (returns)")
    eps: float = bounded(1e-8, at_least=0, doc="added to the variance, inside the root")
    step_value: str = choice("first", "mean", doc="credit of a step: its first token's, or its tokens' mean")
    singleton: str = choice(
        "raw", "zero", doc="a group of one in the baseline variant: its raw score, or 0, before whitening"
    )


def step_values(index: Index, values_T: Floats, how: str) -> Floats:
    """Return one number a step ``[S]`` from its tokens'.

    A step without policy tokens takes the value of the token that carries its reward; a rollout
    without policy tokens has 0.

    Args:
        index: of the batch.
        values_T: ``[T]``.
        how: ``first`` token of the step, or ``mean`` of its tokens.
    """
    if not values_T.size:
        return np.zeros(index.batch.n_steps)
    empty = index.tokens_S == 0
    at = np.where(empty, carrier_S(index), index.batch.token_start_S1[:-1])
    found = np.where(at >= 0, values_T[at], 0.0)
    if how == "mean":
        total = segment_sum(values_T, index.step_T, index.batch.n_steps)
        found = np.where(empty, found, total / np.maximum(index.tokens_S, 1))
    return found


@method(
    "reinforce-pp",
    title="Token returns whitened over the batch",
    family="outcome",
    params=Params,
    needs={"reward", "tokens|n_tokens"},
    yields="token",
    tags={"cross_group", "shift_invariant", "scale_invariant"},
    cites="arXiv:2501.03262",
    compat={"verl": {}, "verl-baseline": {"variant": "baseline", "singleton": "raw"}},
)
def reinforce_pp(index: Index, params: Params) -> Parts:
    """Token advantages normalised over the batch.

    ``A_k = (x_k - mean x) / sqrt(var x + eps)`` over all policy tokens of the batch, var unbiased.
    ``returns``: x_k is the token's return to go, ``x_k = r_k + gamma x_{k+1}``, each step's reward
    on its last policy token and the outcome on the rollout's last; observation tokens neither
    discount nor count.  ``baseline``: x_k is ``S_i - mean_g S`` for all tokens of rollout i.  With
    gamma 1 and an outcome alone it is the whitened score, each token one sample.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Token credit ``[T]``: mean 0 and variance 1 over the tokens that count; exactly 0 where all
        returns tie.  ``steps``: each step's first (or mean) token.  Extras: ``returns`` ``[T]``, x.

    Raises:
        MissingSignal: if the rollouts have steps but no policy tokens.

    Source: arXiv 2501.03262; verl ``compute_reinforce_plus_plus_outcome_advantage``.

    Example:
        >>> import accredit as ac
        >>> records = [
        ...     {"id": "a", "group": "g", "reward": 1, "steps": [{"n_tokens": 1}, {"n_tokens": 1}]},
        ...     {"id": "b", "group": "g", "reward": 0, "steps": [{"n_tokens": 2}]},
        ... ]
        >>> ac.assign(records, "reinforce-pp", gamma=0.5).tokens.round(4).tolist()
        [0.2611, 1.3056, -0.7833, -0.7833]
    """
    if index.batch.n_steps and not index.batch.n_tokens:
        raise MissingSignal(
            "method 'reinforce-pp' whitens over policy tokens, and these rollouts have none",
            code="ACC401",
            hint="Give `tokens` or `n_tokens` in the steps",
        )
    counted = index.counted_R(params.truncated, params.incomplete)
    scores = GroupStats(index.score_R, index.group_R, index.n_groups, counted)
    alone = int(scores.alone.sum()) if params.variant == "baseline" else 0
    raw = _raw(index, scores, params)
    counted_T = np.repeat(counted, index.tokens_R)
    stats = Whitening.over(raw, counted_T)
    values = stats.of(raw, counted_T, params.eps)
    steps = step_values(index, values, params.step_value)
    return Parts(
        values,
        parts={"token": values},
        steps=steps,
        fallbacks={"singleton": alone},
        findings=_findings(alone, params),
        extras={"returns": raw},
        explain=_explainer(index, params, scores, stats, raw, steps),
        unused=tuple(f"rewards.{name}" for name in components_of(index)),
    )


def _raw(index: Index, scores: GroupStats, params: Params) -> Floats:
    """Return x ``[T]`` before whitening."""
    if params.variant == "returns":
        return token_returns(index, params.gamma)
    alone = scores.values if params.singleton == "raw" else np.zeros_like(scores.values)
    return np.repeat(np.where(scores.alone, alone, scores.centred), index.tokens_R)


def _findings(alone: int, params: Params) -> tuple[Finding, ...]:
    if not alone or params.singleton == "zero":
        return ()
    message = f"{alone} groups of one have no baseline: their raw scores join the whitening"
    hint = "Say singleton='zero' if their rewards are large beside the others'"
    return (Finding("ACC218", "warning", message, hint=hint, count=alone),)


def _explainer(
    index: Index, params: Params, scores: GroupStats, stats: Whitening, raw: Floats, steps: Floats
) -> Explainer:
    x_S = step_values(index, raw, params.step_value)

    def explain(s: int) -> Explanation:
        r, (name, t) = int(index.rollout_S[s]), index.place_of(s)
        if not scores.use[r] or not index.tokens_R[r]:
            why = "no policy tokens" if scores.use[r] else "not counted"
            return Explanation("reinforce-pp", name, t, float(steps[s]), (), (f"{why}: exactly 0",))
        x, mean, var = float(x_S[s]), stats.mean, stats.var
        text = f"(x {x:.6g} - mean {mean:.6g} of {stats.n} tokens) / sqrt(var {var:.6g} + {params.eps:g})"
        text += " [all equal: exactly 0]" if stats.tie else ""
        inputs = {"x": x, "mean": mean, "var": var, "eps": params.eps, "n": float(stats.n)}
        if params.variant == "baseline":
            members, note = group_members(index, scores, r), "x = score - mean of the group"
        else:
            members = _rewards_from(index, s, r)
            note = "x = sum of the rewards from here on, times gamma for each policy token between"
        term = Term("token", float(steps[s]), text, inputs, members)
        return Explanation("reinforce-pp", name, t, term.value, (term,), (note,))

    return explain


def _rewards_from(index: Index, s: int, r: int) -> tuple[Member, ...]:
    """Return the rewards that reach step s's first token, with how many tokens later they come."""
    carrier = carrier_S(index)
    here = int(carrier[s] if index.tokens_S[s] == 0 else index.batch.token_start_S1[s])
    paid = [k for k in index.batch.steps_of(r) if carrier[k] >= here and index.reward_S[k]]
    name, reward, position = index.batch.ids[r], index.reward_S, index.position_S
    return tuple(
        Member(name, float(reward[k]), int(position[k]), f"{carrier[k] - here} tokens on") for k in paid
    )
