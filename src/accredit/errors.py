"""Errors of accredit: what happened, where, and how to mend it.

AccreditError
├── DataError(ValueError)        rollouts, columns or files that cannot be used as they are
│   └── MissingSignal            a method needs a column that the batch lacks
├── ParamError(ValueError)       a parameter that is unknown or out of range
├── ProbeError(RuntimeError)     something outside (model, sandbox, budget) failed
│   ├── BackendError
│   ├── SandboxError
│   └── BudgetExceeded
└── StoreError(OSError)          bytes on disk
    ├── Interrupted
    └── VersionError

Programs branch on ``.code``; people read the sentence.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "AccreditError",
    "BackendError",
    "BudgetExceeded",
    "DataError",
    "Interrupted",
    "MissingSignal",
    "ParamError",
    "ProbeError",
    "SandboxError",
    "StoreError",
    "VersionError",
    "kind_of",
    "suggest",
]

_KINDS = {
    type(None): "null",
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    list: "a list",
}
_LISTED = 40
_OTHER_NAMES = {"epsilon": "eps", "lambda": "lam", "ppo": "gae"}


class AccreditError(Exception):
    """Base of every error that accredit raises on purpose.

    Args:
        message: what happened, with names and numbers.
        code: stable code such as ``"ACC104"``, or "" where none is documented.
        where: file and line, or rollout and step.
        hint: what the reader can do about it.
    """

    def __init__(self, message: str, *, code: str = "", where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        head = f"{self.code}: " if self.code else ""
        place = f" ({self.where})" if self.where else ""
        mend = f". {self.hint}" if self.hint else ""
        return f"{head}{self.message}{place}{mend}"


class DataError(AccreditError, ValueError):
    """Rollouts, columns or files that cannot be used as they are."""


class MissingSignal(DataError):
    """A method needs a column that the batch does not have."""


class ParamError(AccreditError, ValueError):
    """A parameter that is unknown, of the wrong type or out of range."""


class ProbeError(AccreditError, RuntimeError):
    """A probe's outside world (model, sandbox, budget) failed."""


class BackendError(ProbeError):
    """A model server or library answered with an error, or not at all."""


class SandboxError(ProbeError):
    """Code could not be run inside the sandbox."""


class BudgetExceeded(ProbeError):
    """A hard budget was reached; partial results are kept."""


class StoreError(AccreditError, OSError):
    """Bytes on disk could not be read or written."""

    def __str__(self) -> str:
        return AccreditError.__str__(self)


class Interrupted(StoreError):
    """A job was stopped before its end; it can be resumed."""


class VersionError(StoreError):
    """A file was written in a schema version that this release does not read."""


def suggest(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the nearest known name, else the list of known names.

    Capitals do not count, and a few things have two names.

    Example:
        >>> suggest("Lambda", ["gamma", "lam"])
        "Did you mean 'lam'?"
    """
    names = sorted(known)
    spelled = {known_name.casefold(): known_name for known_name in names}
    asked = str(name).casefold()
    other = _OTHER_NAMES.get(asked, "")
    near = [other] if other in spelled else difflib.get_close_matches(asked, spelled, n=1)
    if near:
        return f"Did you mean {spelled[near[0]]!r}?"
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"Known: {', '.join(names[:_LISTED])}{more}" if names else ""


def kind_of(value: object) -> str:
    """Return what a value is called in JSON, as a message names it.

    Example:
        >>> kind_of(None), kind_of("x"), kind_of([])
        ('null', 'a text', 'a list')
    """
    return _KINDS.get(type(value), f"a {type(value).__name__}")
