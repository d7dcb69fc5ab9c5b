"""The house colour scale: negative orange, zero near-white, positive blue; and its dark mirror.

Colour never stands alone: a sign is also a glyph, a magnitude also a length or a number.
The figures that the two scales must reach (distance under colour blindness, contrast of text) are
tested in ``tests/views/test_colour.py``. Light scale: built from ColorBrewer PuOr and RdBu
(Apache-2.0). Dark scale: lightness mirrored, hues kept.
"""

from __future__ import annotations

import numpy as np

from accredit.typing import Floats

__all__ = ["DARK", "LIGHT", "STEPS", "domain", "glyph", "ink", "magnitude", "shade"]

LIGHT = (
    *("#7A3300", "#B35806", "#E08214", "#F4B36B", "#FBE0C0"),
    "#F7F7F7",
    *("#D1E5F0", "#92C5DE", "#4393C3", "#2166AC", "#053061"),
)
DARK = (
    *("#FEC07F", "#DA883C", "#A86027", "#7F4A22", "#573922"),
    "#2A2A2A",
    *("#1A445D", "#015C8B", "#0477BC", "#3EA2E8", "#93D4FC"),
)
STEPS = 5
_TEXT_FLIPS_AT = 4


def domain(credit: Floats, percentile: float = 98) -> float:
    """Return where the colour scale ends: a percentile of |credit|, the same on both sides of zero.

    Args:
        credit: ``[...]`` reward units; zeros count only if most entries are zero.
        percentile: percent of the entries inside the scale.

    Returns:
        A positive number; 1 where all credit is zero.

    Example:
        >>> domain(np.array([0.0, 0.5, -2.0]), 100)
        2.0
    """
    size = np.abs(credit[credit != 0])
    end = float(np.percentile(size, percentile)) if size.size else 0.0
    return end if end > 0 else 1.0


def magnitude(value: float, end: float, top: int = STEPS) -> int:
    """Return the signed colour step of a value, -top..top; 0 only for (nearly) nothing."""
    share = min(abs(value) / end, 1.0)
    size = int(np.ceil(share * top - 1e-9)) if share > 1e-9 else 0
    return size if value > 0 else -size


def shade(step: int, *, dark: bool = False) -> str:
    """Return the colour of a signed step."""
    return (DARK if dark else LIGHT)[STEPS + step]


def ink(step: int, *, dark: bool = False) -> str:
    """Return the text colour that reads on a step: at least 4.5:1."""
    strong = abs(step) >= _TEXT_FLIPS_AT
    return "#000000" if strong == dark else "#FFFFFF"


def glyph(value: float) -> str:
    """Return the sign as a mark: ▲ ▼ or ·."""
    if value > 0:
        return "▲"
    return "▼" if value < 0 else "·"
