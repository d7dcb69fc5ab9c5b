"""The report's first sentence: how concentrated credit is, with its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from accredit.agreement import Estimate, draw_weights
from accredit.typing import Floats, Ints

if TYPE_CHECKING:
    from accredit.views.sheet import Sheet

__all__ = ["concentration", "concentrations"]

RESAMPLES = 400


def concentrations(sheet: Sheet) -> list[dict[str, Any]]:
    """Return each method's concentration as JSON-ready fields (None: all its credit is zero)."""
    out = []
    for row in sheet.credit_MS:
        found = concentration(row, sheet.group_S)
        zero = int(np.count_nonzero(row == 0))
        out.append({"half": None if found is None else [found.value, found.low, found.high], "zero": zero})
    return out


def concentration(credit: Floats, group_S: Ints, seed: int = 0) -> Estimate | None:
    """Return the smallest share of steps that holds half of all |credit|.

    Args:
        credit: ``[S]``.
        group_S: ``[S]`` group codes; groups are resampled for the interval.
        seed: of the resamples.

    Returns:
        A share in (0, 1] with its 95 % interval, or None where all credit is zero.

    Example:
        >>> concentration(np.array([4.0, 1, 1, 1, 1]), np.zeros(5, int)).value
        0.2
    """
    size = np.abs(credit)
    if not size.any():
        return None
    order = np.argsort(-size, kind="stable")
    size, groups = size[order], np.unique(group_S, return_inverse=True)[1][order]
    value = _share(size, np.ones(len(size)))
    n = int(groups.max()) + 1
    if n < 2:
        return Estimate(value)
    shares = [_share(size, weights[groups]) for weights in draw_weights(n, RESAMPLES, seed)]
    low, high = np.percentile([s for s in shares if s > 0], [2.5, 97.5])
    return Estimate(value, float(low), float(high))


def _share(size: Floats, weight: Floats | Ints) -> float:
    """Weighted share of the steps, sorted by size, that reach half of the total; 0 if none."""
    held = np.cumsum(size * weight)
    if held[-1] <= 0:
        return 0.0
    last = int(np.searchsorted(held, held[-1] / 2 * (1 - 1e-12)))
    return float(np.cumsum(weight)[last] / weight.sum())
