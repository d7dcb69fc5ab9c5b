"""Two methods on the same steps: agreement, its interval, and where they differ most.

The numbers are those of `accredit compare`: the same estimators (`accredit.agreement`), over the
rollouts that every method of the report counted.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from accredit.agreement import draw_weights, rms, spearmans
from accredit.typing import Floats, Ints

if TYPE_CHECKING:
    from accredit.views.sheet import Sheet

__all__ = ["contrasts", "quadrants", "worst"]

RESAMPLES = 1_000
WORST = 10


def contrasts(sheet: Sheet) -> list[dict[str, Any]]:
    """Return every pair of methods as JSON-ready fields.

    Returns:
        Each with ``a``, ``b`` (indices of methods), ``n`` (steps compared), ``groups``, ``rho``
        (Spearman's rank correlation, low and high end of its 95 % interval; None where one side is
        constant), ``quadrants`` and ``worst`` (steps of the sheet).
    """
    if len(sheet.credits) < 2:
        return []
    at = np.flatnonzero(_counted(sheet)[sheet.rollout_S])
    values = [row[at] for row in sheet.credit_MS]
    groups, group_S = np.unique(sheet.group_S[at], return_inverse=True)
    rhos = spearmans(values, group_S, draw_weights(groups.size, RESAMPLES, 0)) if at.size else []
    out = []
    for p, (a, b) in enumerate(combinations(range(len(values)), 2)):
        rho = rhos[p] if rhos else None
        found = worst(values[a], values[b], sheet.rollout_S[at])
        out.append(
            {
                "a": a,
                "b": b,
                "n": int(at.size),
                "groups": int(groups.size),
                "rho": None if rho is None else [rho.value, rho.low, rho.high],
                "quadrants": list(quadrants(values[a], values[b])),
                "worst": [int(at[i]) for i in found],
            }
        )
    return out


def quadrants(a: Floats, b: Floats) -> tuple[int, int, int, int, int, int]:
    """Count steps by sign: both +, + -, - +, both -, one of them 0, both 0.

    Args:
        a: ``[S]`` credit of one method.
        b: ``[S]`` credit of the other.

    Example:
        >>> quadrants(np.array([1.0, -1, 0]), np.array([2.0, 1, 0]))
        (1, 0, 1, 0, 0, 1)
    """
    masks = (
        (a > 0) & (b > 0),
        (a > 0) & (b < 0),
        (a < 0) & (b > 0),
        (a < 0) & (b < 0),
        (a == 0) ^ (b == 0),
        (a == 0) & (b == 0),
    )
    pp, pn, np_, nn, one, none = (int(np.count_nonzero(m)) for m in masks)
    return pp, pn, np_, nn, one, none


def worst(a: Floats, b: Floats, rollout_S: Ints, keep: int = WORST) -> list[int]:
    """Return the steps on which two credits differ most, each in units of its root mean square.

    Steps of one rollout with the same two numbers stand for each other: the first is told.

    Args:
        a: ``[S]``.
        b: ``[S]``.
        rollout_S: ``[S]``.
        keep: how many at most.
    """
    gap = np.abs(a / (rms(a) or 1.0) - b / (rms(b) or 1.0))
    order = np.argsort(-gap, kind="stable")
    seen: set[tuple[int, float, float]] = set()
    found: list[int] = []
    for i in order[gap[order] > 1e-9].tolist():
        if len(found) == keep:
            break
        same = (int(rollout_S[i]), float(a[i]), float(b[i]))
        if same not in seen:
            found.append(i)
        seen.add(same)
    return found


def _counted(sheet: Sheet) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Rollouts that every method counted: the zeros of the others are no opinion."""
    left = {name for c in sheet.credits for names in c.uncounted.values() for name in names}
    return np.array([name not in left for name in sheet.ids], bool)
