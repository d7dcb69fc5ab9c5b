"""Parameters of methods: one frozen dataclass, every field with its bounds and a sentence."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accredit.data import ParamSpec
from accredit.data.values import is_number
from accredit.errors import ParamError, suggest

__all__ = [
    "RESERVED",
    "GroupParams",
    "bounded",
    "choice",
    "flag",
    "incomplete_choice",
    "make_params",
    "mapping",
    "pair",
    "some_of",
    "specs",
    "text",
    "truncated_choice",
]

# These keywords belong to `assign`; no Params field may use them.
RESERVED = frozenset({"key", "outcome_in_steps", "spread", "base", "compat", "state", "seed", "strict"})


@dataclass(frozen=True, slots=True)
class _Rule:
    """Bounds of a field: an interval of numbers or names beside it, a closed list, true/false …"""

    doc: str
    words: str
    above: float = -math.inf
    at_least: float = -math.inf
    below: float = math.inf
    at_most: float = math.inf
    options: tuple[Any, ...] = ()
    kind: str = "number"
    integer: bool = False
    optional: bool = False

    def allows(self, value: Any) -> bool:
        """Return whether a value keeps the rule."""
        if value is None:
            return self.optional
        return self._in_bounds(value) if self.kind == "number" else self._fits(value)

    def _fits(self, value: Any) -> bool:
        if self.kind == "choice":
            return isinstance(value, str) and value in self.options
        if self.kind == "flag":
            return isinstance(value, bool)
        if self.kind == "text":
            return isinstance(value, str) and bool(value)
        if self.kind == "some":
            return isinstance(value, Collection) and all(name in self.options for name in _names(value))
        if self.kind == "pair":
            return isinstance(value, list | tuple) and len(value) == 2 and all(map(is_number, value))
        return isinstance(value, Mapping)

    def _in_bounds(self, value: Any) -> bool:
        if isinstance(value, str):
            return value in self.options
        if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
            return False
        if math.isnan(value) or (self.integer and value != math.floor(value)):
            return False
        inside = self.above < value < self.below and self.at_least <= value <= self.at_most
        return bool(inside or (value in (math.inf, -math.inf) and value in (self.at_least, self.at_most)))


def bounded(
    default: float | None,
    *,
    doc: str = "",
    above: float = -math.inf,
    at_least: float = -math.inf,
    below: float = math.inf,
    at_most: float = math.inf,
    whole: bool = False,
    names: tuple[str, ...] = (),
) -> Any:
    """Return a dataclass field for a number with bounds; a whole default asks for whole numbers.

    Args:
        default: the default; None makes the parameter optional.
        doc: one line: what it is, its unit.
        above: values must be greater.
        at_least: values must be greater or equal.
        below: values must be smaller.
        at_most: values must be smaller or equal.
        whole: only whole numbers (implied by a whole default).
        names: words that may stand in place of a number.

    Example:
        >>> import dataclasses
        >>> @dataclasses.dataclass(frozen=True, slots=True)
        ... class Params:
        ...     gamma: float = bounded(0.95, above=0, at_most=1, doc="discount")
        >>> make_params(Params, {"gamma": 2.0})
        Traceback (most recent call last):
        accredit.errors.ParamError: gamma must be in (0, 1], got 2.0
    """
    low = f"({above:g}" if above > at_least else f"[{at_least:g}"
    high = f"{below:g})" if below < at_most else f"{at_most:g}]"
    low, high = low.replace("[-inf", "(-inf"), high.replace("inf]", "inf)")
    integer = whole or isinstance(default, int)
    words = f"{'a whole number ' if integer else ''}in {low}, {high}"
    rule = _Rule(
        doc,
        words + "".join(f" or {name}" for name in names) + (" or None" if default is None else ""),
        above,
        at_least,
        below,
        at_most,
        options=names,
        integer=integer,
        optional=default is None,
    )
    return field(default=default, metadata={"rule": rule})


def choice(default: str | None, *options: str, doc: str = "") -> Any:
    """Return a dataclass field for one of some names; the default comes first.

    Args:
        default: the default; None makes the parameter optional.
        options: the other names.
        doc: one line.
    """
    names = tuple(dict.fromkeys(o for o in (default, *options) if o is not None))
    rule = _Rule(doc, f"one of {', '.join(names)}", options=names, kind="choice", optional=default is None)
    return field(default=default, metadata={"rule": rule})


def text(default: str, *, doc: str = "") -> Any:
    """Return a dataclass field for a name that the user's data choose (a role, a column).

    Args:
        default: the default.
        doc: one line.
    """
    return field(default=default, metadata={"rule": _Rule(doc, "a name", kind="text")})


def flag(*, default: bool, doc: str = "") -> Any:
    """Return a dataclass field for true or false.

    Args:
        default: the default.
        doc: one line.
    """
    return field(default=default, metadata={"rule": _Rule(doc, "true or false", kind="flag")})


def some_of(*options: str, doc: str = "") -> Any:
    """Return a dataclass field for some of these names; None, the default, means none was given.

    It takes a set, list or tuple of names, or text that joins them by ``+``; what the method gets is
    a tuple in the order of the options.

    Args:
        *options: the names.
        doc: one line.
    """
    words = f"some of {', '.join(options)} (joined by + in text), or None"
    rule = _Rule(doc, words, options=options, kind="some", optional=True)
    return field(default=None, metadata={"rule": rule})


def _names(value: Collection[Any]) -> Collection[Any]:
    return value.split("+") if isinstance(value, str) else value


def pair(*, doc: str = "") -> Any:
    """Return a dataclass field for two numbers, as a list or tuple; None, the default, = not given.

    Args:
        doc: one line.
    """
    rule = _Rule(doc, "two numbers or None", kind="pair", optional=True)
    return field(default=None, metadata={"rule": rule})


def mapping(*, doc: str = "") -> Any:
    """Return a dataclass field for an optional mapping (for example group -> number).

    Args:
        doc: one line.
    """
    rule = _Rule(doc, "a mapping or None", kind="mapping", optional=True)
    return field(default=None, metadata={"rule": rule})


def truncated_choice() -> Any:
    """Return the field of what is done with truncated rollouts."""
    return choice("keep", "drop", doc="truncated rollouts: reward as recorded, or left out with credit 0")


def incomplete_choice() -> Any:
    """Return the field of what is done with small groups."""
    return choice("keep", "drop", doc="groups smaller than the commonest size: as they are, or left out")


@dataclass(frozen=True, slots=True)
class GroupParams:
    """What every group-relative method decides about odd groups and rollouts."""

    singleton: str = choice("zero", "raw", doc="a group of one: credit 0, or its raw score")
    truncated: str = truncated_choice()
    incomplete: str = incomplete_choice()


def make_params(cls: type[Any], values: Mapping[str, Any], method: str = "") -> Any:
    """Return the checked Params of a method.

    Raises:
        ParamError: naming the parameter, what is allowed and what was got.
    """
    rules = {f.name: f.metadata.get("rule") for f in dataclasses.fields(cls)}
    where = f"method {method!r}" if method else ""
    fixed = dict(values)
    for name, value in values.items():
        if name not in rules:
            raise ParamError(f"{where or 'the method'} has no parameter {name!r}", hint=suggest(name, rules))
        rule = rules[name]
        if rule is None:
            continue
        if value is None and "none" in rule.options:
            fixed[name] = value = "none"  # what `name:scale=none` on a command line means
        if not rule.allows(value):
            raise ParamError(f"{name} must be {rule.words}, got {value!r}", where=where)
        if rule.kind == "number" and value is not None and not isinstance(value, str):
            fixed[name] = int(value) if rule.integer else float(value)
        if rule.kind == "some" and value is not None:
            fixed[name] = tuple(option for option in rule.options if option in _names(value))
    return cls(**fixed)


def specs(cls: type[Any]) -> tuple[ParamSpec, ...]:
    """Return the specs of a Params class, in order.

    Raises:
        ParamError: if a field's name belongs to `assign`.
    """
    found = []
    for f in dataclasses.fields(cls):
        if f.name in RESERVED:
            raise ParamError(f"parameter {f.name!r} of {cls.__module__} belongs to assign")
        rule = f.metadata.get("rule")
        doc, words = (rule.doc, rule.words) if rule else ("", "")
        default = f.default if f.default is not dataclasses.MISSING else None
        found.append(ParamSpec(f.name, default, doc, words))
    return tuple(found)
