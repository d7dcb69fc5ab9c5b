"""What a method declares (its card) and what it returns (its parts)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from accredit.data.explanation import Explanation
from accredit.data.finding import Finding
from accredit.typing import Array, BoolArray, Floats

__all__ = ["Explainer", "MethodCard", "ParamSpec", "Parts", "Yields"]

Yields: TypeAlias = Literal["step", "token", "table"]
Explainer: TypeAlias = Callable[[int], Explanation]


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """One parameter of a method, for people and for checks.

    Args:
        name: keyword of `assign`.
        default: the default.
        doc: one line.
        bounds: allowed values in words ("in (0, 1]", "one of group, batch").
    """

    name: str
    default: Any
    doc: str
    bounds: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values."""
        return {"name": self.name, "default": self.default, "doc": self.doc, "bounds": self.bounds}


@dataclass(frozen=True, slots=True)
class MethodCard:
    """What a method is, needs and promises.

    Args:
        id: its name here.
        title: one line in field terms.
        needs: record fields that must be there; ``"value|token_values"`` names alternatives.
        yields: credit per step, per token, or a table.
        tags: properties that `check_method` tests and users filter by.
        cites: the source.
        params: its parameters.
        compat: named sets of parameters that reproduce another implementation.
        aliases: other published names, each with the parameters it stands for.
        family: heading under which it is listed.
        loss: the term of `accredit.losses` that the method asks a trainer to add; empty = none.
    """

    id: str
    title: str
    needs: frozenset[str]
    yields: Yields
    tags: frozenset[str]
    cites: str
    params: tuple[ParamSpec, ...]
    compat: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    aliases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    family: str = ""
    loss: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the card as JSON-ready fields, lists sorted."""
        return {
            "id": self.id,
            "title": self.title,
            "family": self.family,
            "needs": sorted(self.needs),
            "yields": self.yields,
            "tags": sorted(self.tags),
            "cites": self.cites,
            "params": [p.to_dict() for p in self.params],
            "compat": {k: dict(v) for k, v in sorted(self.compat.items())},
            "aliases": {k: dict(v) for k, v in sorted(self.aliases.items())},
            "loss": self.loss,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """What a method returns.

    Args:
        values: the credit: float64 ``[T]`` where ``steps`` is given, else ``[S]``.
        parts: named addends of ``values``, same shape; they sum to it.
        steps: step credit ``[S]`` beside token credit; None = ``values`` are step credit.
        informed_S: steps that got information beyond the outcome broadcast; None = none did.
        fallbacks: how often each fallback was taken, by name.
        findings: what the user should know about this run.
        extras: named read-outs besides the credit (returns, step groups …), any axis.
        explain: how the credit of one step (its index) came about.
        state: memory to pass to the next call (stateful methods).
        table: rows of a method that yields a table.
        unused: inputs present in the batch that the method did not use.
    """

    values: Floats
    parts: Mapping[str, Floats] = field(default_factory=dict)
    steps: Floats | None = None
    informed_S: BoolArray | None = None
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    extras: Mapping[str, Array] = field(default_factory=dict)
    explain: Explainer | None = None
    state: Any = None
    table: Mapping[str, Any] | None = None
    unused: tuple[str, ...] = ()
