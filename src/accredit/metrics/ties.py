"""When two numbers are the same number, rounded differently."""

from __future__ import annotations

import numpy as np

from accredit.typing import Floats

__all__ = ["steady"]

_SAME = 1e-12


def steady(values: Floats) -> Floats:
    """Return values on a grid of 1e-12 of the largest, so that rounding error makes no ranks.

    Args:
        values: ``[S]``.

    Example:
        >>> x = steady(np.array([0.1 + 0.2, 0.3, 1.0]))
        >>> bool(x[0] == x[1])
        True
    """
    step = _SAME * float(np.abs(values).max(initial=0.0))
    found: Floats = np.round(values / step) if step else values
    return found
