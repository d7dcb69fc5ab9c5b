"""Rollout text made harmless: it is written by models and environments, never by us."""

from __future__ import annotations

import re

__all__ = ["one_line", "shorten", "visible"]

# C0 and C1 controls (escape sequences begin there) and the marks that reverse reading order.
# Tab and newline stay.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_SPACE = re.compile(r"\s+")
_PICTURES = 0x2400


def visible(text: str) -> str:
    r"""Return text in which control characters are pictures and nothing can act on a terminal.

    Newlines and tabs stay; a carriage return before a newline goes.

    Example:
        >>> visible("\x1b[31mred\x07")
        '␛[31mred␇'
    """
    return _HIDDEN.sub(_picture, text.replace("\r\n", "\n")).encode("utf-8", "replace").decode()


def one_line(text: str) -> str:
    """Return visible text with every run of white space as one space."""
    return _SPACE.sub(" ", visible(text)).strip()


def shorten(text: str, width: int) -> str:
    """Return text cut to ``width`` characters, the last one an ellipsis where it was cut."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(_PICTURES + code)
    return "␡" if code == 0x7F else "\ufffd"
