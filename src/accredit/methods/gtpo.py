"""GTPO (dynamic entropy weighting): rewards shaped by entropy among siblings at the same position.

Source: arXiv 2508.04349; textpolicy ``compute_gtpo_shaped_rewards``, ``normalize_gtpo_advantages``
(a third party's form of it).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Finding, Parts, Term
from accredit.index import GroupStats, Index, row_any, segment_sum
from accredit.methods._params import bounded
from accredit.methods._registry import method
from accredit.methods._reweight import counted_T, rollout_T, signal_T, step_mean, step_value
from accredit.typing import Array, BoolArray, Floats, Ints

__all__ = ["gtpo", "sides", "whitening"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `gtpo`."""

    alpha_1: float = bounded(
        1.0, at_least=0, doc="weight of the outcome; alpha_1 + alpha_2 = 1 keeps its total"
    )
    alpha_2: float = bounded(0.1, at_least=0, doc="weight of the entropy share")
    reward_threshold: float = bounded(0.5, doc="an outcome at or above it is a success")
    eps: float = bounded(1e-8, above=0, doc="added to entropies, to their sums and to the variance")


@method(
    "gtpo",
    title="Rewards shaped by the token's share of entropy among siblings at its position",
    family="tokens: entropy",
    params=Params,
    needs={"reward", "entropies"},
    yields="token",
    tags={"group", "amplifies_uncertain_successes", "attenuates_uncertain_failures"},
    cites="arXiv:2508.04349",
)
def gtpo(index: Index, params: Params) -> Parts:
    """Entropy-shaped token rewards, standardised among successes and among failures of the group.

    At position t, over the ``d_t`` successes (``h_t`` failures) of the group that reach it:
    success ``r~ = a1 r + a2 d_t H_t / sum H``; failure ``r~ = -a1 - a2 h_t (1/H_t) / sum 1/H``.
    Then ``(r~ - mean) / sqrt(var + eps)`` over all tokens of the group's successes, and over those
    of its failures.

    So the mean advantage of successes is 0, as is that of failures: half of the tokens of right
    answers are pushed down, and with 0/1 outcomes nothing of the outcome itself is left.

    Args:
        index: of the batch; ``entropies`` at every policy token; positions count the policy tokens
            of the whole rollout.
        params: see `Params`.

    Returns:
        Token credit ``[T]``, 0 where equal entropies leave nothing to compare.  Extras: ``shaped``
        (r~), ``position`` ``[T]``.

    Raises:
        MissingSignal: a step with tokens has no entropies.

    Source: arXiv 2508.04349; teilomillet/textpolicy.
    """
    entropy, counted = signal_T(index, "entropies"), counted_T(index)
    won_R = index.outcome_R >= params.reward_threshold
    side_R, n = sides(index, won_R)
    won, place = _by_token(index, won_R), _places(index)
    shaped = _share(index, entropy, counted, won, side_R, place, params.eps)
    shaped *= _by_token(index, np.where(won_R, params.alpha_2, -params.alpha_2))
    told_R = np.where(won_R, params.alpha_1 * index.outcome_R, -params.alpha_1)
    shaped += _by_token(index, told_R)
    if not counted.all():
        shaped[~counted] = 0.0
    stats = GroupStats(shaped, _by_token(index, side_R), n, counted)
    scale = whitening(stats, params.eps)
    values = stats.centred * scale[stats.ids]
    outcome = _by_token(index, _outcome_of(index, told_R, side_R, stats) * scale[side_R])
    if not counted.all():
        outcome[~counted] = 0.0
    parts = {"outcome": outcome, "entropy": values - outcome}
    steps = step_mean(index, values)

    def explain(s: int) -> Explanation:
        r = int(index.rollout_S[s])
        kind = "successes" if won_R[r] else "failures"
        mean = step_value(index, shaped, s)
        text = f"its part of the shaped reward (mean {mean:.4g}) against the tokens of the group's {kind}"
        terms = tuple(Term(name, step_value(index, part, s), text) for name, part in parts.items())
        return Explanation("gtpo", *index.place_of(s), float(steps[s]), terms)

    return Parts(
        values,
        parts=parts,
        steps=steps,
        informed_S=row_any(values != 0, index.batch.token_start_S1),
        findings=_pushed_down(values, won, counted),
        extras={"shaped": shaped, "position": place},
        explain=explain,
    )


def sides(index: Index, won_R: BoolArray) -> tuple[Ints, int]:
    """Return the side of each rollout ``[R]`` (its group's successes or failures), and their number."""
    return 2 * index.group_R + won_R, 2 * index.n_groups


def whitening(stats: GroupStats, eps: float) -> Floats:
    """Return ``1 / sqrt(population variance + eps)`` of each group; 0 in a tie ``[n]``.

    Args:
        stats: of the values.
        eps: inside the root.
    """
    return np.where(stats.flat, 0.0, 1.0 / np.hypot(stats.std(ddof=0), np.sqrt(eps)))


def _by_token(index: Index, values_R: Array) -> Array:
    return np.repeat(values_R, index.tokens_R)


def _places(index: Index) -> Ints:
    """Return the position of each policy token in its rollout ``[T]``."""
    found = np.arange(index.batch.n_tokens)
    found -= _by_token(index, index.token_start_R1[:-1])
    return found


def _share(
    index: Index,
    entropy: Floats,
    counted: BoolArray,
    won: BoolArray,
    side_R: Ints,
    place: Ints,
    eps: float,
) -> Floats:
    """Return the token's share at its position times the rollouts there ``[T]``: 1 where all are equal."""
    longest = np.zeros(int(side_R.max(initial=-1)) + 1, np.int64)
    np.maximum.at(longest, side_R, index.tokens_R)
    block = np.cumsum(longest) - longest
    cell = np.repeat(block[side_R], index.tokens_R)
    cell += place
    n = int(longest.sum())
    mass = entropy + eps
    np.divide(1.0, mass, out=mass)
    np.copyto(mass, entropy, where=won)
    if counted.all():
        many = np.bincount(cell, minlength=n).astype(np.float64)
    else:
        mass *= counted
        many = segment_sum(counted, cell, n)
    total = segment_sum(mass, cell, n)
    total += np.repeat(eps * (np.arange(longest.size) % 2), longest)  # sides of successes are odd
    factor = np.divide(many, total, out=many, where=total > 0)
    mass *= factor[cell]
    return mass


def _outcome_of(index: Index, told_R: Floats, side_R: Ints, stats: GroupStats) -> Floats:
    """Return what the shaped reward has of the outcome, less its mean over the side's tokens ``[R]``."""
    if stats.whole:
        size = index.tokens_R.astype(np.float64)
    else:
        size = segment_sum(stats.use, rollout_T(index), len(index.batch))
    return GroupStats(told_R, side_R, stats.n, size > 0, size).centred


def _pushed_down(values: Floats, won: BoolArray, counted: BoolArray) -> tuple[Finding, ...]:
    right = won & counted
    n, down = int(right.sum()), int((right & (values < 0)).sum())
    if not down:
        return ()
    text = f"{down} of {n} tokens of successes ({down / n:.0%}) get a negative advantage"
    hint = "Successes are standardised among themselves; hapo or eapo keep the outcome's sign"
    return (Finding("ACC443", "info", text, hint=hint, count=down),)
