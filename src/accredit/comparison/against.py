"""Methods against a truth of the user's own: the benchmark's measures, and the truth's worth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from accredit.agreement import Estimate, draw_weights, estimate
from accredit.comparison.pairs import left_out
from accredit.data import Batch, Credit
from accredit.errors import DataError
from accredit.index import Index, first_seen
from accredit.metrics import Facts, kendall_by_unit, measure
from accredit.store.truth import Truth, read_truth
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["Against", "Reliability", "TruthRow", "against_truth"]

TruthLike: TypeAlias = Truth | str | Path


@dataclass(frozen=True, slots=True)
class Reliability:
    """How far the reference itself can be trusted.

    A reference of continuations is the truth plus chance.  Cut into halves, it would agree with
    itself by ``halves``; the whole is ``2 halves / (1 + halves)`` reliable (Spearman-Brown), which is
    ``1 - mean(se^2) / var(reference)``; no credit can be expected to correlate with it above the
    square root of that, nor the truth itself to have a lower NMSE than ``floor``.

    Args:
        halves: expected correlation of two halves.
        whole: reliability of the reference, in [0, 1].
        ceiling: sqrt(whole), the correlation that the truth itself would reach.
        floor: NMSE that the truth itself would have.
        n_noisy: steps whose reference has a standard error.
        basis: ``se``, ``n`` (from the number of continuations), or ``exact``.
    """

    halves: float
    whole: float
    ceiling: float
    floor: float
    n_noisy: int
    basis: str


@dataclass(frozen=True, slots=True)
class TruthRow:
    """One method against the truth.

    Args:
        label: its name in the comparison.
        numbers: every measure that is defined, by name (see `accredit.metrics.MEASURES`).
        nmse: with a 95 % interval over groups; None where the truth is 0.
        tau: Kendall's tau-b within a rollout, likewise; None where no rollout has two true values.
    """

    label: str
    numbers: Mapping[str, float]
    nmse: Estimate | None
    tau: Estimate | None


@dataclass(frozen=True, slots=True)
class Against:
    """Methods against a truth.

    Args:
        rows: one a method.
        n_steps: steps with a known truth in rollouts that all methods counted.
        n_rollouts: rollouts with such a step.
        n_groups: groups of them, the unit of the intervals.
        unknown: steps of the batch without a known truth.
        reliability: of the reference; None where its standard errors are unknown.
    """

    rows: tuple[TruthRow, ...]
    n_steps: int
    n_rollouts: int
    n_groups: int
    unknown: int
    reliability: Reliability | None


def against_truth(
    batch: Batch, credits: Mapping[str, Credit], truth: TruthLike, n_boot: int, seed: int
) -> Against:
    """Return how far each credit is from the truth, on the steps whose truth is known.

    Args:
        batch: the rollouts.
        credits: results by label.
        truth: its rows, or a file of schema ``accredit.truth/1``.
        n_boot: resamples of groups behind the intervals.
        seed: of the resamples.

    Raises:
        DataError: if the truth knows no step of these rollouts.
    """
    table = truth if isinstance(truth, Truth) else read_truth(truth)
    value_S, known_S = _advantage(batch, table)
    index = Index(batch)
    kept = np.flatnonzero(known_S & ~left_out(batch, credits.values())[index.rollout_S])
    if not kept.size:
        raise DataError(
            f"the truth knows the advantage of none of the {batch.n_steps} steps",
            code="ACC834",
            hint="Give advantage, or value and q, of steps of these rollouts, by the same rollout ids",
        )
    facts = _facts(index, kept, value_S[kept])
    weights = draw_weights(int(facts.group_S.max()) + 1, n_boot, seed)
    rows = tuple(_row(label, credit.steps[kept], facts, weights) for label, credit in credits.items())
    return Against(
        rows,
        int(kept.size),
        int(facts.rollout_S.max()) + 1,
        int(facts.group_S.max()) + 1,
        int((~known_S).sum()),
        _reliability(batch, table, kept, value_S[kept]),
    )


def _advantage(batch: Batch, truth: Truth) -> tuple[Floats, BoolArray]:
    """The advantage as told, or q - value."""
    told, value, q = (truth.column(batch, which) for which in ("advantage", "value", "q"))
    n = batch.n_steps
    both = value.mask(n) & q.mask(n)
    found = np.where(told.mask(n), told.values, np.where(both, q.values - value.values, 0.0))
    return found, told.mask(n) | both


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


def _row(label: str, credit_S: Floats, facts: Facts, weights: Floats) -> TruthRow:
    return TruthRow(
        label,
        measure(credit_S, facts),
        _nmse(credit_S, facts, weights),
        _tau(credit_S, facts, weights),
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


def _reliability(batch: Batch, truth: Truth, kept: Ints, reference: Floats) -> Reliability | None:
    error2, basis = _error2(batch, truth, kept)
    spread = float(reference.var())
    if error2 is None or not spread:
        return None
    noise = float(error2.mean())
    whole = min(1.0, max(0.0, 1 - noise / spread))
    square = float(np.mean(reference**2))
    return Reliability(
        max(0.0, (spread - noise) / (spread + noise)),
        whole,
        math.sqrt(whole),
        min(1.0, noise / square),
        int((error2 > 0).sum()),
        basis,
    )


def _error2(batch: Batch, truth: Truth, kept: Ints) -> tuple[Floats | None, str]:
    """Squared standard error of each step's reference; None where some are unknown."""
    told = truth.column(batch, "se")
    found, known = told.values[kept] ** 2, told.mask(batch.n_steps)[kept]
    n_S, exact_S, p_S = _counts(batch, truth)
    exact = exact_S[kept] & ~known
    by_n = (n_S[kept] > 0) & (p_S[kept] >= 0) & ~known
    # Variance of a share of successes, of its n continuations.
    found = np.where(by_n, p_S[kept] * (1 - p_S[kept]) / np.maximum(n_S[kept], 1), np.where(exact, 0, found))
    if not (known | by_n | exact).all():
        return None, ""
    return found, "se" if known.any() else "n" if by_n.any() else "exact"


def _counts(batch: Batch, truth: Truth) -> tuple[Ints, BoolArray, Floats]:
    """Continuations, whether the row says it is exact, and q where it is a share (else -1), by step."""
    n_S, exact_S = np.zeros(batch.n_steps, np.int64), np.zeros(batch.n_steps, bool)
    p_S = np.full(batch.n_steps, -1.0)
    for i, (name, step) in enumerate(zip(truth.rollout, truth.step, strict=True)):
        r = batch.rollout_of.get(name)
        if r is None:
            continue
        s = batch.steps_of(r)[step]
        n_S[s], exact_S[s] = truth.n[i], truth.source[i] == "exact"
        if truth.known["q"][i] and 0 <= truth.numbers["q"][i] <= 1:
            p_S[s] = truth.numbers["q"][i]
    return n_S, exact_S, p_S
