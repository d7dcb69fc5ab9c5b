"""What an alternative does to what follows: mutual information with the next action, spread of credit."""

from __future__ import annotations

import numpy as np

from accredit.typing import Floats, Ints

__all__ = ["context_variance", "mutual_information", "plug_in_information"]


def mutual_information(chance_JY: Floats) -> float:
    """Return I(J; Y) of a joint distribution, in nats.

    ``sum_jy p(j, y) log(p(j, y) / (p(j) p(y)))``; 0 where J tells nothing of Y, at most the smaller
    entropy of the two.

    Args:
        chance_JY: joint weights, 0 or more; they need not sum to 1 ``[J, Y]``.

    Returns:
        0 where all weights are 0.

    Source: C3 (arXiv:2603.06859), influence.

    Example:
        >>> round(mutual_information(np.eye(2)), 6), mutual_information(np.ones((2, 2)))
        (0.693147, 0.0)
    """
    whole = float(chance_JY.sum())
    if whole <= 0:
        return 0.0
    joint = chance_JY / whole
    apart = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    held = joint > 0
    found = float(joint[held] @ np.log(joint[held] / apart[held]))
    return max(0.0, found) if abs(found) > 1e-15 else 0.0


def plug_in_information(
    context_S: Ints, alternative_S: Ints, next_S: Ints, *, smoothing: float = 0.0, words: int = 64
) -> float | None:
    """Return the mean over contexts of the plug-in I(J; Y), in nats.

    In each context ``p(j, y)`` is ``count(j, y) + smoothing``, normalised; y over the most frequent
    actions of all contexts and one cell for all others.  Without smoothing it is biased upwards, by
    about ``(|J| - 1)(|Y| - 1) / (2 n)`` with n observations in a context; with it, towards 0.

    Args:
        context_S: dense code of what was known when the alternative was chosen ``[S]``.
        alternative_S: dense code of the alternative ``[S]``.
        next_S: dense code of the next agent's action ``[S]``.
        smoothing: added to each count, 0 or more; the authors' 1 makes it comparable with theirs.
        words: how many actions get a cell of their own.

    Returns:
        None where no context has two different alternatives.

    Source: C3 (arXiv:2603.06859), ``c3/analysis/metrics.py``, influence.

    Example:
        >>> j = np.array([0, 0, 1, 1])
        >>> round(plug_in_information(np.zeros(4, int), j, j), 6)
        0.693147
    """
    cell_S, n_cells = _cells(next_S, words)
    found = []
    for at in _contexts(context_S):
        tried, j = np.unique(alternative_S[at], return_inverse=True)
        if tried.size < 2:
            continue
        counts = np.bincount(j * n_cells + cell_S[at], minlength=tried.size * n_cells).astype(np.float64)
        found.append(mutual_information(counts.reshape(tried.size, n_cells) + smoothing))
    return float(np.mean(found)) if found else None


def _cells(next_S: Ints, words: int) -> tuple[Ints, int]:
    """Return the cell of each action, the most frequent first, and how many there are with the rest's."""
    count = np.bincount(next_S)
    rank = np.empty(count.size, np.int64)
    rank[np.argsort(-count, kind="stable")] = np.arange(count.size)
    n = min(words, int((count > 0).sum()))
    return np.minimum(rank[next_S], n), n + 1


def context_variance(credit_S: Floats, context_S: Ints) -> float | None:
    """Return the mean over contexts of the population variance of credit within each.

    Args:
        credit_S: credit of each alternative that was tried ``[S]``, reward units.
        context_S: dense code of what was known when it was chosen ``[S]``.

    Returns:
        Reward units squared; None where no context was tried twice.

    Source: C3 (arXiv:2603.06859), ``credit_var``.

    Example:
        >>> context_variance(np.array([1.0, -1.0, 5.0]), np.array([0, 0, 1]))
        1.0
    """
    if not credit_S.size:
        return None
    seen = np.bincount(context_S)
    mean = np.bincount(context_S, credit_S) / np.maximum(seen, 1)
    square = np.bincount(context_S, (credit_S - mean[context_S]) ** 2)
    tried = seen > 1
    return float(np.mean(square[tried] / seen[tried])) if tried.any() else None


def _contexts(context_S: Ints) -> list[Ints]:
    """Return the places of each context."""
    if not context_S.size:
        return []
    order = np.argsort(context_S, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(context_S[order])) + 1)
