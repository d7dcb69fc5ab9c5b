"""Text without what changes from run to run: clocks, ids, addresses, temporary paths, durations."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

__all__ = ["Normaliser", "exact", "steady"]

Normaliser: TypeAlias = Callable[[str], str]

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_DATE = r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_CLOCK = r"|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b"
_RULES = tuple(
    (re.compile(pattern), f"<{name}>")
    for name, pattern in (
        ("time", _DATE + _CLOCK),
        ("id", r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"),
        ("address", r"\b0x[0-9a-fA-F]{4,16}\b"),
        ("tmp", r"/(?:tmp|var/folders|var/tmp)/[\w.+-]+"),
        ("duration", r"\b\d+(?:\.\d+)? ?(?:ns|us|µs|ms|s|secs?|seconds?|minutes?)\b"),
    )
)


def exact(text: str) -> str:
    """Return the text as it is."""
    return text


def steady(text: str) -> str:
    r"""Return the text with volatile parts replaced by their kind, and line ends made plain.

    ANSI codes, carriage returns and white space at line ends go; dates and clocks with seconds become
    ``<time>``, UUIDs ``<id>``, hexadecimal addresses ``<address>``, temporary paths ``<tmp>``, durations
    with a unit ``<duration>``. Other numbers stay: in most environments they are the state.

    Example:
        >>> steady("took 3.2s at 0x7f3a9c001000  \r\n")
        'took <duration> at <address>'
    """
    text = _ANSI.sub("", text).replace("\r\n", "\n")
    for rule, name in _RULES:
        text = rule.sub(name, text)
    return "\n".join(line.rstrip() for line in text.split("\n")).strip()
