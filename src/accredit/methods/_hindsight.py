"""What methods that weigh a step by its tokens' log-probabilities share."""

from __future__ import annotations

import numpy as np

from accredit.data import Finding
from accredit.data.vocabulary import STEP_FIELDS
from accredit.errors import MissingSignal
from accredit.index import Index, discounted_sum, last_of_row, segment_sum
from accredit.typing import Array, BoolArray, Floats

__all__ = [
    "clip_finding",
    "kept_positive",
    "negative_finding",
    "rollout_ratio",
    "smoothed",
    "step_means",
]


def step_means(index: Index, column: str, field: str) -> Floats:
    """Return the mean of a token signal over each step's tokens ``[S]``; 0 for empty steps.

    Raises:
        MissingSignal: naming the first rollout and step that has tokens but no signal.
    """
    signal = index.batch.column(column)
    lacks = ~signal.mask(index.batch.n_steps) & (index.tokens_S > 0) & index.scored_R[index.rollout_S]
    if lacks.any():
        raise MissingSignal(
            f"{index.where(int(np.flatnonzero(lacks)[0]))} has no {field}",
            code="ACC401",
            hint=f"Give {field} at every step with tokens (from {STEP_FIELDS[field].probe})",
        )
    values = np.asarray(signal.values, np.float64)
    return segment_sum(values, index.step_T, index.batch.n_steps) / np.maximum(index.tokens_S, 1)


def rollout_ratio(index: Index, values: Floats, low: float, high: float) -> tuple[Floats, Floats]:
    """Return ``values / mean over the rollout's steps with tokens``, and the same clipped ``[S]``.

    Steps without tokens are left out of the mean and get 1.

    Args:
        index: of the batch.
        values: positive ``[S]``.
        low: least ratio.
        high: largest ratio.
    """
    spoken = (index.tokens_S > 0).astype(np.float64)
    n = len(index.batch)
    mean = segment_sum(values * spoken, index.rollout_S, n) / np.maximum(
        segment_sum(spoken, index.rollout_S, n), 1
    )
    ratio = np.where(spoken > 0, values / np.where(mean > 0, mean, 1.0)[index.rollout_S], 1.0)
    return ratio, np.clip(ratio, low, high)


def smoothed(index: Index, values: Floats, alpha: float, kind: str) -> Floats:
    """Return values smoothed along each rollout ``[S]``.

    Args:
        index: of the batch.
        values: ``[S]``.
        alpha: share of the own value (``recursive``) or of the neighbours (``neighbours``).
        kind: ``recursive`` = ``y_T = x_T``, ``y_t = alpha x_t + (1 - alpha) y_{t+1}``;
            ``neighbours`` = ``(1 - alpha) x_t + alpha mean(x_{t-1}, x_{t+1})``; ``none``.
    """
    if kind == "none":
        return values
    start = index.batch.step_start_R1
    _, last = last_of_row(start)
    if kind == "recursive":
        scaled = alpha * values
        scaled[last] = values[last]
        return discounted_sum(scaled, start, 1.0 - alpha)
    return _with_neighbours(index, values, alpha, last)


def _with_neighbours(index: Index, values: Floats, alpha: float, last: Array) -> Floats:
    has_before = index.position_S > 0
    has_after = np.ones(values.size, bool)
    has_after[last] = False
    total = np.zeros(values.size)
    total[has_before] += values[np.flatnonzero(has_before) - 1]
    total[has_after] += values[np.flatnonzero(has_after) + 1]
    count = has_before.astype(np.float64) + has_after
    mean = np.where(count > 0, total / np.maximum(count, 1), values)
    return (1.0 - alpha) * values + alpha * mean


def kept_positive(index: Index, values: Floats, success_above: float) -> Floats:
    """Return step terms ``[S]``, those of successes at least 0.

    Args:
        index: of the batch.
        values: ``[S]``.
        success_above: an outcome above it is a success.
    """
    won = (index.outcome_R > success_above)[index.rollout_S]
    return np.where(won, np.maximum(values, 0.0), values)


def negative_finding(which: BoolArray, what: str) -> tuple[Finding, ...]:
    """Return a finding where something is negative that hindsight multiplies.

    Args:
        which: rollouts or steps where it is.
        what: they are and have, after their number.
    """
    n = int(which.sum())
    if not n:
        return ()
    text = f"{n} {what}: actions that hindsight finds likely are blamed more there"
    return (Finding("ACC415", "warning", text, hint="Give outcomes of 0 and 1", count=n),)


def clip_finding(index: Index, ratio: Floats, clipped: Floats) -> tuple[Finding, ...]:
    """Return a finding with the share of clipped ratios and their correlation with length."""
    spoken = index.tokens_S > 0
    if spoken.sum() < 2:
        return ()
    share = float(np.mean(ratio[spoken] != clipped[spoken]))
    a, b = clipped[spoken], index.tokens_S[spoken].astype(np.float64)
    flat = a.std() == 0 or b.std() == 0
    relation = 0.0 if flat else float(np.corrcoef(a, b)[0, 1])
    return (
        Finding(
            "ACC414",
            "info",
            f"{share:.0%} of the hindsight ratios are clipped; their correlation with the number of "
            f"tokens is {relation:.2f}",
            hint="A large correlation means that the score measures length: shorten the added context",
        ),
    )
