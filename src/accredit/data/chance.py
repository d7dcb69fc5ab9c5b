"""Chance by counter: numbers that follow from what they are for, never from when they are drawn."""

from __future__ import annotations

import hashlib
import json
from typing import Any

__all__ = ["prf", "unit"]


def prf(*parts: Any) -> int:
    """Return the first 8 bytes of BLAKE2b over the canonical JSON list of the parts, as a number.

    Example:
        >>> prf(0, "g", "s", 0) == prf(0, "g", "s", 0) != prf(0, "g", "s", 1)
        True
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big"
    )


def unit(*parts: Any) -> float:
    """Return a number in [0, 1) that follows from the parts, uniform over different parts.

    Example:
        >>> 0 <= unit("g", 3) < 1, unit("g", 3) == unit("g", 3)
        (True, True)
    """
    return float((prf(*parts) >> 11) * 2.0**-53)
