"""Calibration: where credit says so much, how much is true on average?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.metrics.sizes import scale_of
from accredit.typing import Floats

__all__ = ["EDGES", "Bin", "calibration"]

# In units of the truth's root mean square, so that tasks can be put together.
EDGES = (-2.0, -1.0, -0.5, -0.2, -0.05, 0.05, 0.2, 0.5, 1.0, 2.0)


@dataclass(frozen=True, slots=True)
class Bin:
    """Steps whose credit falls between two edges.

    Args:
        place: number of the bin, 0 .. len(EDGES).
        said: mean credit after the best scale, in units of the truth's root mean square.
        true: mean true advantage of the same steps, likewise.
        n: steps.
    """

    place: int
    said: float
    true: float
    n: int


def calibration(credit_S: Floats, truth_S: Floats) -> tuple[Bin, ...]:
    """Return mean credit and mean truth of steps binned by credit (see `EDGES`); empty bins are left out.

    A credit is calibrated where ``said == true`` in every bin, whatever its noise.

    Args:
        credit_S: what a method gave ``[S]``.
        truth_S: true advantages ``[S]``.

    Example:
        >>> [(b.said, b.true) for b in calibration(np.array([4.0, -4.0]), np.array([2.0, -2.0]))]
        [(-1.0, -1.0), (1.0, 1.0)]
    """
    unit = float(np.sqrt(np.mean(truth_S**2))) if truth_S.size else 0.0
    if not unit:
        return ()
    said, true = scale_of(credit_S, truth_S) * credit_S / unit, truth_S / unit
    place = np.searchsorted(EDGES, said, side="right")
    n = np.bincount(place, minlength=len(EDGES) + 1)
    total, held = np.bincount(place, said), np.bincount(place, true)
    return tuple(
        Bin(b, float(total[b] / n[b]), float(held[b] / n[b]), int(n[b])) for b in np.flatnonzero(n).tolist()
    )
