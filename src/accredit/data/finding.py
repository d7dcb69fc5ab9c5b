"""What is wrong, or worth knowing, about rollouts: findings and exclusions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from accredit.typing import Severity

__all__ = ["Exclusion", "Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about a batch, with its place and its mend.

    Args:
        code: stable code (``ACC104``), documented in ``docs/findings.md``.
        severity: ``error`` (numbers would be wrong or missing), ``warning`` (a fallback was or
            will be taken), ``info`` (worth knowing).
        message: one sentence with names and numbers.
        where: rollout, step, file and line of the first example; "" for the whole batch.
        hint: what to do about it.
        count: how many places show it.
        examples: up to a few places, first ones.
    """

    code: str
    severity: Severity
    message: str
    where: str = ""
    hint: str = ""
    count: int = 1
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        mend = f". {self.hint}" if self.hint else ""
        return f"{self.code}: {self.message}{place}{mend}"

    def merged(self, other: Finding, keep: int = 5) -> Finding:
        """Return this finding with another of the same code counted in."""
        places = (*self.places(), *other.places())[:keep]
        return replace(self, count=self.count + other.count, examples=places)

    def places(self) -> tuple[str, ...]:
        """Return the places known: the examples, or the one place."""
        return self.examples or ((self.where,) if self.where else ())

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON-ready fields."""
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "where": self.where,
            "hint": self.hint,
            "count": self.count,
            "examples": list(self.examples),
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Finding:
        """Return the finding that `to_dict` gave; odd values are read as text."""
        severity = fields.get("severity")
        count, examples = fields.get("count"), fields.get("examples")
        return cls(
            str(fields.get("code", "")),
            severity if severity in ("error", "warning", "info") else "warning",
            str(fields.get("message", "")),
            str(fields.get("where", "")),
            str(fields.get("hint", "")),
            count if isinstance(count, int) else 1,
            tuple(map(str, examples)) if isinstance(examples, list) else (),
        )


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A rollout that was read but is not used, and why.

    Args:
        id: the rollout's id, or its place where it has none.
        reason: the sentence of the error that excluded it.
        where: file and line, or record number.
        code: the finding's code.
    """

    id: str
    reason: str
    where: str = ""
    code: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the exclusion as JSON-ready fields."""
        return {"id": self.id, "reason": self.reason, "where": self.where, "code": self.code}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Exclusion:
        """Return the exclusion that `to_dict` gave; odd values are read as text."""
        return cls(*(str(fields.get(name, "")) for name in ("id", "reason", "where", "code")))
