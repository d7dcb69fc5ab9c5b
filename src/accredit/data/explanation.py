"""How one number came about: the comparison set and the arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Explanation", "Member", "Term"]


@dataclass(frozen=True, slots=True)
class Member:
    """One rollout or visit of a comparison set, with the number it brings.

    Args:
        rollout: rollout id.
        value: its score, return or reward, in reward units.
        step: 0-based step, None where the whole rollout is compared.
        note: what sets it apart ("self", "not counted: unscored").
    """

    rollout: str
    value: float
    step: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Term:
    """One addend of a credit.

    Args:
        name: the name in ``Credit.parts``.
        value: the addend, weights included.
        formula: the arithmetic with the numbers filled in.
        inputs: the numbers of the formula by name.
        members: the comparison set.
    """

    name: str
    value: float
    formula: str
    inputs: Mapping[str, float] = field(default_factory=dict)
    members: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one step (or its tokens) got its credit.

    Args:
        method: method id.
        rollout: rollout id.
        step: 0-based step.
        value: the step's credit; the terms add up to it.
        terms: the addends.
        notes: fallbacks that were taken, and what was not used.
    """

    method: str
    rollout: str
    step: int
    value: float
    terms: tuple[Term, ...]
    notes: tuple[str, ...] = ()

    def text(self, max_members: int = 12) -> str:
        """Return the explanation as lines of plain text.

        Args:
            max_members: how many members of each comparison set to list.
        """
        lines = [f"{self.method}: rollout {self.rollout!r} step {self.step} credit {self.value:+.6g}"]
        if len(self.terms) > 1:
            lines.append("  = " + " ".join(f"{t.value:+.6g} ({t.name})" for t in self.terms))
        for term in self.terms:
            lines.append(f"  {term.name}: {term.formula} = {term.value:+.6g}")
            lines += [f"    {_member_line(m)}" for m in _shown(term.members, max_members)]
            if len(term.members) > max_members:
                lines.append(f"    … {len(term.members) - max_members} more")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON-ready fields."""
        return {
            "method": self.method,
            "rollout": self.rollout,
            "step": self.step,
            "value": self.value,
            "terms": [_term_dict(t) for t in self.terms],
            "notes": list(self.notes),
        }


def _shown(members: tuple[Member, ...], most: int) -> list[Member]:
    """Return the members in order; where some do not fit, the own one comes first."""
    if len(members) <= most:
        return list(members)
    return sorted(members, key=lambda m: "this one" not in m.note)[:most]


def _member_line(member: Member) -> str:
    place = member.rollout if member.step is None else f"{member.rollout} step {member.step}"
    note = f"  ({member.note})" if member.note else ""
    return f"{place}: {member.value:.6g}{note}"


def _term_dict(term: Term) -> dict[str, Any]:
    members = [{"rollout": m.rollout, "step": m.step, "value": m.value, "note": m.note} for m in term.members]
    return {
        "name": term.name,
        "value": term.value,
        "formula": term.formula,
        "inputs": dict(term.inputs),
        "members": members,
    }
