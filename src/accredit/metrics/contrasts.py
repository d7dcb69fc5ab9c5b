"""Credit of alternatives tried in one context: its spread, its truth, what their outcomes tell, its law."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from accredit.metrics.ranks import spearman_within
from accredit.typing import Floats, Ints

__all__ = [
    "ContrastLaw",
    "OutcomeInformation",
    "context_variances",
    "contrast_law",
    "fidelity",
    "outcome_information",
]


def context_variances(credit_S: Floats, context_S: Ints) -> Floats:
    """Return the population variance of credit within each context ``[C]``, reward units squared.

    Args:
        credit_S: credit of each alternative ``[S]``, reward units.
        context_S: dense code of its context ``[S]``.

    Source: C3 (arXiv:2603.06859), ``c3/analysis/metrics.py`` ``credit_var``.

    Example:
        >>> context_variances(np.array([1.0, -1.0, 5.0]), np.array([0, 0, 1])).tolist()
        [1.0, 0.0]
    """
    size = np.maximum(np.bincount(context_S), 1)
    mean = np.bincount(context_S, credit_S) / size
    found: Floats = np.bincount(context_S, (credit_S - mean[context_S]) ** 2) / size
    return found


def fidelity(
    credit_S: Floats,
    reference_S: Floats,
    context_S: Ints,
    *,
    how: Literal["pooled", "per_context"] = "pooled",
) -> float:
    """Return Spearman's rank correlation of credit with a reference advantage; 0 where undefined.

    Args:
        credit_S: credit of each alternative ``[S]``.
        reference_S: its advantage by a reference, for instance many continuations ``[S]``.
        context_S: dense code of its context ``[S]``.
        how: over all alternatives, or in each context and then averaged.

    Source: C3, ``c3/analysis/metrics.py`` ``credit_fidelity`` (pooled); the paper's text (per context).

    Example:
        >>> fidelity(np.array([1.0, 2.0, 9.0]), np.array([0.0, 1.0, 2.0]), np.zeros(3, int))
        1.0
    """
    unit = np.zeros(context_S.size, np.int64) if how == "pooled" else context_S
    found = spearman_within(credit_S, reference_S, unit)
    return 0.0 if found is None else found


class OutcomeInformation(NamedTuple):
    """Information that alternatives give about success, nats.

    Args:
        value: plug-in estimate.
        bias: by about how much it is too large.
    """

    value: float
    bias: float


def outcome_information(q_J: Floats, count_J: Floats) -> OutcomeInformation:
    """Return the mutual information of alternative and success, from shares of successes.

    ``I = H(sum_j c_j Q_j / C) - (1/C) sum_j c_j H(Q_j)``, H the entropy of a coin in nats, C = sum c.
    It is biased upwards by about ``(n - 1) / (2 C)``.

    Args:
        q_J: share of successes after each alternative of one context, in [0, 1] ``[J]``.
        count_J: continuations behind it, above 0 ``[J]``.

    Source: C3 v2 A.4.

    Example:
        >>> found = outcome_information(np.array([1.0, 0.0]), np.array([2.0, 2.0]))
        >>> round(found.value, 4), found.bias
        (0.6931, 0.125)
    """
    whole = float(count_J.sum())
    if not whole > 0:
        return OutcomeInformation(0.0, 0.0)
    inside = float(count_J @ _coin(q_J)) / whole
    mean = np.clip(np.array([q_J @ count_J / whole]), 0.0, 1.0)
    return OutcomeInformation(max(0.0, float(_coin(mean)[0]) - inside), (q_J.size - 1) / (2 * whole))


def _coin(p: Floats) -> Floats:
    """Return the entropy of coins, nats."""
    found = np.zeros(p.size)
    for side in (p, 1 - p):
        held = side > 0
        found[held] -= side[held] * np.log(side[held])
    return found


class ContrastLaw(NamedTuple):
    """Mean and variance of the credit of each alternative, given the alternatives ``[J]``."""

    mean: Floats
    variance: Floats


def contrast_law(
    q_J: Floats, variance_J: Floats, count_J: Floats, *, baseline: Literal["loo", "weighted"] = "loo"
) -> ContrastLaw:
    """Return what the credit of C3 is on average and how noisy, where continuations are independent.

    ``loo``: ``E A_j = q_j - mean_{i != j} q_i``, ``Var A_j = s_j / c_j + (n - 1)^-2 sum_{i != j} s_i /
    c_i``.  ``weighted``: ``E A_j = q_j - sum_{i != j} c_i q_i / (C - c_j)``, ``Var A_j = s_j / c_j +
    sum_{i != j} c_i s_i / (C - c_j)^2``.  Neither the number of agents nor the depth enters.

    Args:
        q_J: value of going on after each alternative ``[J]``, J >= 2.
        variance_J: variance of one continuation's return ``[J]``.
        count_J: continuations, fixed before any outcome was seen ``[J]``.
        baseline: of the credit.

    Source: C3 v2 A.3 (weighted); the plain form: docs/methods/c3.md.

    Example:
        >>> q = np.array([0.2, 0.5, 0.8, 0.6])
        >>> contrast_law(q, q * (1 - q), np.full(4, 4.0)).variance.round(5).tolist()
        [0.05806, 0.07806, 0.05806, 0.07583]
    """
    weight = np.ones(q_J.size) if baseline == "loo" else np.asarray(count_J, np.float64)
    others = weight.sum() - weight
    mean = q_J - (weight @ q_J - weight * q_J) / others
    noise = weight**2 * variance_J / count_J
    variance = variance_J / count_J + (noise.sum() - noise) / others**2
    return ContrastLaw(mean, variance)
