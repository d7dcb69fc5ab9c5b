"""Whether what all rollouts of a group share cancels: weights of their gradients against advantages.

Source: arXiv 2604.13088 v1 (DFPO), read at second hand.
"""

from __future__ import annotations

import numpy as np

from accredit.errors import DataError
from accredit.typing import Floats, Ints

__all__ = ["drift", "min_replace", "orthogonal"]


def drift(weights_R: Floats, advantages_R: Floats, groups_R: Ints) -> Floats:
    """Return ``|sum w_i A_i| / sum |w_i A_i|`` of each group ``[G]``.

    0: what all rollouts of the group share cancels; 1: nothing does.  Equal weights of centred
    advantages give 0; sequence-level ratios and clipping that is not symmetric break it.

    Args:
        weights_R: w_i, weight of rollout i's gradient in the loss ``[R]`` (ratio, 0 where clipped).
        advantages_R: A_i ``[R]``.
        groups_R: dense group of each rollout ``[R]``.

    Returns:
        ``[G]`` in [0, 1]; 0 where all products are 0.

    Raises:
        DataError: if the lengths differ or a number is not finite.

    Example:
        >>> drift(np.array([1.0, 1.0]), np.array([0.5, -0.5]), np.array([0, 0])).tolist()
        [0.0]
    """
    weights, advantages, groups = _checked(weights_R, advantages_R, groups_R)
    product = weights * advantages
    size = np.bincount(groups, np.abs(product))
    total = np.abs(np.bincount(groups, product))
    return np.divide(total, size, out=np.zeros(size.size), where=size > 0)


def min_replace(weights_R: Floats, advantages_R: Floats, groups_R: Ints) -> Floats:
    """Return the smallest weight of each rollout's group ``[R]``: centred advantages then cancel.

    Args:
        weights_R: w_i ``[R]``.
        advantages_R: A_i ``[R]``.
        groups_R: dense group of each rollout ``[R]``.

    Raises:
        DataError: if the lengths differ or a number is not finite.

    Example:
        >>> min_replace(np.array([1.2, 0.9]), np.array([0.5, -0.5]), np.array([0, 0])).tolist()
        [0.9, 0.9]
    """
    weights, _, groups = _checked(weights_R, advantages_R, groups_R)
    least = np.full(int(groups.max(initial=-1)) + 1, np.inf)
    np.minimum.at(least, groups, weights)
    found: Floats = least[groups]
    return found


def orthogonal(weights_R: Floats, advantages_R: Floats, groups_R: Ints) -> Floats:
    """Return ``w - A (w.A) / (A.A)`` within each group ``[R]``; then w.A = 0.  A.A = 0: unchanged.

    Args:
        weights_R: w_i ``[R]``.
        advantages_R: A_i ``[R]``.
        groups_R: dense group of each rollout ``[R]``.

    Raises:
        DataError: if the lengths differ or a number is not finite.

    Example:
        >>> orthogonal(np.array([1.5, 0.5]), np.array([0.5, -0.5]), np.array([0, 0])).tolist()
        [1.0, 1.0]
    """
    weights, advantages, groups = _checked(weights_R, advantages_R, groups_R)
    along, size = np.bincount(groups, weights * advantages), np.bincount(groups, advantages**2)
    share = np.divide(along, size, out=np.zeros(size.size), where=size > 0)
    found: Floats = weights - advantages * share[groups]
    return found


def _checked(weights_R: Floats, advantages_R: Floats, groups_R: Ints) -> tuple[Floats, Floats, Ints]:
    weights, advantages = (np.asarray(x, np.float64) for x in (weights_R, advantages_R))
    groups = np.asarray(groups_R, np.int64)
    if not weights.shape == advantages.shape == groups.shape or weights.ndim != 1:
        raise DataError(
            f"weights, advantages and groups have shapes {weights.shape}, {advantages.shape}, {groups.shape}",
            hint="Give one number a rollout in each",
        )
    if not (np.isfinite(weights).all() and np.isfinite(advantages).all()):
        raise DataError("a weight or an advantage is not finite", hint="Bound the log-ratios before exp")
    return weights, advantages, groups
