"""Errors of size and sign, all steps pooled.  Source: benchmark specification, "Metrics"."""

from __future__ import annotations

import numpy as np

from accredit.typing import BoolArray, Floats, Ints

__all__ = ["affine_nmse", "mse", "nmse", "scale_of", "sign_accuracy"]

_FITTED = 3  # steps that a group needs before a line through them says anything


def scale_of(credit_S: Floats, truth_S: Floats) -> float:
    """Return the best scale ``c = argmin_{c >= 0} sum (c credit - truth)^2``; 0 for null credit.

    Args:
        credit_S: what a method gave ``[S]``.
        truth_S: true advantages ``[S]``.

    Example:
        >>> scale_of(np.array([2.0, -2.0]), np.array([1.0, -1.0]))
        0.5
    """
    square = float(credit_S @ credit_S)
    return max(0.0, float(credit_S @ truth_S) / square) if square else 0.0


def nmse(credit_S: Floats, truth_S: Floats) -> float | None:
    """Return the squared error after the best scale, over that of no credit at all.

    ``min_{c >= 0} sum_s (c credit_s - truth_s)^2 / sum_s truth_s^2``: 0 = the truth up to its unit,
    1 = no better than 0 everywhere.  It is ``1 - cos^2`` where the cosine is positive, else 1.

    Args:
        credit_S: what a method gave ``[S]``.
        truth_S: true advantages ``[S]``.

    Returns:
        A number in [0, 1]; None where the truth is 0 everywhere.

    Example:
        >>> nmse(np.array([3.0, 0.0]), np.array([1.0, 1.0]))
        0.5
    """
    whole = float(truth_S @ truth_S)
    if not whole:
        return None
    rest = scale_of(credit_S, truth_S) * credit_S - truth_S
    return min(1.0, float(rest @ rest) / whole)


def affine_nmse(credit_S: Floats, truth_S: Floats, group_S: Ints) -> float | None:
    """Return `nmse` where each group may choose its own scale (0 or more) and its own shift.

    ``sum_g min_{c >= 0, b} sum_{s in g} (c credit_s + b - truth_s)^2 / sum truth^2``; groups with
    fewer than 3 steps are left out of both sums.

    Args:
        credit_S: what a method gave ``[S]``.
        truth_S: true advantages ``[S]``.
        group_S: dense group code of each step ``[S]``.

    Example:
        >>> a, b = np.array([5.0, 7.0, 9.0]), np.array([-1.0, 0.0, 1.0])
        >>> affine_nmse(a, b, np.zeros(3, int))
        0.0
    """
    many = np.bincount(group_S)
    kept_S = (many >= _FITTED)[group_S]
    whole = float(truth_S[kept_S] @ truth_S[kept_S])
    if not whole:
        return None
    g, x, y = group_S[kept_S], credit_S[kept_S], truth_S[kept_S]
    x = x - (np.bincount(g, x, many.size) / np.maximum(many, 1))[g]
    y = y - (np.bincount(g, y, many.size) / np.maximum(many, 1))[g]
    xx, xy = np.bincount(g, x * x, many.size), np.bincount(g, x * y, many.size)
    slope = np.maximum(0.0, np.divide(xy, xx, out=np.zeros_like(xx), where=xx > 0))
    rest = slope[g] * x - y
    return float(rest @ rest) / whole


def mse(credit_S: Floats, truth_S: Floats) -> float | None:
    """Return the mean squared error in reward units squared, for methods that claim the right scale.

    Args:
        credit_S: what a method gave ``[S]``.
        truth_S: true advantages ``[S]``.

    Example:
        >>> mse(np.array([1.0, 0.0]), np.array([0.0, 0.0]))
        0.5
    """
    return float(np.mean((credit_S - truth_S) ** 2)) if truth_S.size else None


def sign_accuracy(
    credit_S: Floats,
    truth_S: Floats,
    *,
    keep_S: BoolArray | None = None,
    weighted: bool = False,
    above: float = 0.05,
) -> float | None:
    """Return the share of steps that matter whose credit has the true sign; credit 0 counts 1/2.

    A step matters where ``|truth| > above * max |truth|`` (the maximum over all steps given).

    Args:
        credit_S: what a method gave ``[S]``.
        truth_S: true advantages ``[S]``.
        keep_S: only these steps (those of failed rollouts, say) ``[S]``.
        weighted: weigh each step by its ``|truth|``.
        above: in [0, 1).

    Returns:
        A number in [0, 1]; None where no step matters.

    Example:
        >>> sign_accuracy(np.array([1.0, 0.0, 1.0]), np.array([2.0, -2.0, -1.0]))
        0.5
    """
    size = np.abs(truth_S)
    kept = size > above * size.max(initial=0.0)
    if keep_S is not None:
        kept &= keep_S
    weight = size[kept] if weighted else np.ones(int(kept.sum()))
    if not weight.sum():
        return None
    right = (1 + np.sign(credit_S[kept]) * np.sign(truth_S[kept])) / 2
    return float(weight @ right / weight.sum())
