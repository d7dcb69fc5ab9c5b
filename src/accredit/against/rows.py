"""Methods against a truth: every measure of the benchmark that is defined, and the truth's worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from accredit.against.groupwise import CLEAR, Judge
from accredit.against.reference import Reliability, advantages, reliability, told_of
from accredit.agreement import Estimate, draw_weights, estimate
from accredit.data import Batch, Credit
from accredit.errors import DataError
from accredit.index import Index, first_seen
from accredit.metrics import Facts, kendall_by_unit, measure
from accredit.store import Truth
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["Against", "TruthRow", "against_truth", "left_out"]


@dataclass(frozen=True, slots=True)
class TruthRow:
    """One method against the truth; each estimate has a 95 % interval over groups.

    Args:
        label: its name in the comparison.
        numbers: every measure that is defined, by name (see `accredit.metrics.MEASURES`).
        nmse: squared error after the best scale; None where the truth is 0.
        tau: Kendall's tau-b within a rollout; None where no rollout has two true values.
        rank: Spearman's correlation over the steps of a group, mean over groups (see `Nearness`).
        sign: share of steps with |A| > 0.05 that credit pushes the right way, likewise.
        cosine: of the policy gradient with the true one, likewise; None without choice log-probs.
        bias: mean of credit - A after the best scale, reward units, likewise.
    """

    label: str
    numbers: Mapping[str, float]
    nmse: Estimate | None
    tau: Estimate | None
    rank: Estimate | None
    sign: Estimate | None
    cosine: Estimate | None
    bias: Estimate | None


@dataclass(frozen=True, slots=True)
class Against:
    """Methods against a truth.

    Args:
        rows: one a method.
        n_steps: steps with a known truth in rollouts that all methods counted.
        n_rollouts: rollouts with such a step.
        n_groups: groups of them, the unit of the intervals.
        n_clear: of the steps, those with |A| > 0.05, whose signs are looked at.
        unknown: steps of the batch without a known truth.
        reliability: of the reference; None where its standard errors are unknown.
        about: what the truth says of itself: kind, world, policy, memory, continuations, verdict.
    """

    rows: tuple[TruthRow, ...]
    n_steps: int
    n_rollouts: int
    n_groups: int
    n_clear: int
    unknown: int
    reliability: Reliability | None
    about: Mapping[str, Any]


def against_truth(
    batch: Batch, credits: Mapping[str, Credit], truth: Truth, n_boot: int, seed: int
) -> Against:
    """Return how far each credit is from the truth, on the steps whose truth is known.

    Args:
        batch: the rollouts.
        credits: results by label.
        truth: its rows, from `truth_of`.
        n_boot: resamples of groups behind the intervals.
        seed: of the resamples.

    Raises:
        DataError: if the truth knows no step of rollouts that all methods counted.
    """
    value_S, known_S = advantages(batch, truth)
    index = Index(batch)
    judged_S = known_S & ~left_out(batch, credits.values())[index.rollout_S]
    kept = np.flatnonzero(judged_S)
    if not kept.size:
        raise DataError(
            f"some method left out each rollout of the {int(known_S.sum())} steps that the truth knows",
            code="ACC834",
            hint="Give the truth of more rollouts, or fewer methods",
        )
    facts = _facts(index, kept, value_S[kept])
    judge = Judge(batch, value_S, judged_S, index)
    weights = draw_weights(int(facts.group_S.max()) + 1, n_boot, seed)
    rows = [
        TruthRow(
            label,
            measure(credit.steps[kept], facts),
            _nmse(credit.steps[kept], facts, weights),
            _tau(credit.steps[kept], facts, weights),
            *judge.near(credit.steps, seed, n_boot),
        )
        for label, credit in credits.items()
    ]
    return Against(
        tuple(rows),
        int(kept.size),
        int(facts.rollout_S.max()) + 1,
        int(facts.group_S.max()) + 1,
        int((np.abs(value_S[kept]) > CLEAR).sum()),
        int((~known_S).sum()),
        reliability(batch, truth, kept, value_S[kept]),
        told_of(truth),
    )


def left_out(batch: Batch, credits: Iterable[Credit]) -> BoolArray:
    """Return the rollouts that some method did not count ``[R]``: their zeros are no opinion.

    Args:
        batch: the rollouts.
        credits: results over them.
    """
    left = np.zeros(len(batch), bool)
    for ids in {name for credit in credits for names in credit.uncounted.values() for name in names}:
        left[batch.position(ids)] = True
    return left


def _facts(index: Index, kept: Ints, truth_S: Floats) -> Facts:
    batch = index.batch
    states = batch.has("state_S") and batch.has("action_S")
    return Facts(
        truth_S,
        first_seen(index.rollout_S[kept]),
        first_seen(index.group_S[kept]),
        (index.outcome_R > 0)[index.rollout_S[kept]] if batch.has("reward_R") else None,
        None,
        index.anchor_S[kept] if states else None,
        batch.column("action_S").values[kept].astype(np.int64) if states else None,
    )


def _nmse(credit_S: Floats, facts: Facts, weights_BG: Floats) -> Estimate | None:
    n = weights_BG.shape[1]
    sums = [
        np.bincount(facts.group_S, v, n)
        for v in (credit_S * credit_S, credit_S * facts.truth_S, facts.truth_S**2)
    ]

    def of(weights: Floats) -> Floats:
        aa, at, tt = (weights @ s for s in sums)
        gained = np.divide(np.maximum(at, 0) ** 2, aa, out=np.zeros_like(aa), where=aa > 0)
        share: Floats = np.divide(gained, tt, out=np.full_like(tt, np.nan), where=tt > 0)
        return 1 - share

    return estimate(float(of(np.ones((1, n)))[0]), of(weights_BG))


def _tau(credit_S: Floats, facts: Facts, weights_BG: Floats) -> Estimate | None:
    tau_R, counts_R = kendall_by_unit(credit_S, facts.truth_S, facts.rollout_S)
    group_R = np.zeros(tau_R.size, np.int64)
    group_R[facts.rollout_S] = facts.group_S
    n = weights_BG.shape[1]
    top, many = np.bincount(group_R, tau_R * counts_R, n), np.bincount(group_R, counts_R, n)

    def of(weights: Floats) -> Floats:
        seen = weights @ many
        return np.divide(weights @ top, seen, out=np.full_like(seen, np.nan), where=seen > 0)

    return estimate(float(of(np.ones((1, n)))[0]), of(weights_BG))
