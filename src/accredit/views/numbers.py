"""Numbers as people read them."""

from __future__ import annotations

__all__ = ["number", "signed"]

_MINUS = "\u2212"


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with few digits and a true minus sign; ``none`` for None.

    Example:
        >>> number(-0.12345), number(None)
        ('−0.123', 'none')
    """
    if value is None:
        return "none"
    return f"{value:.{digits}g}".replace("-", _MINUS)


def signed(value: float, digits: int = 3) -> str:
    """Return a number with its sign; 0 has none.

    Example:
        >>> signed(0.5), signed(-0.5), signed(0)
        ('+0.5', '−0.5', '0')
    """
    return number(value, digits) if value <= 0 else f"+{number(value, digits)}"
