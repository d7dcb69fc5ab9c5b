"""`examine` and the Report that it returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from accredit.data import Batch, Finding, FindingLog
from accredit.errors import DataError
from accredit.findings import branches, groups, plans, rewards, roles, signals, spelling, states, tokens
from accredit.findings.codes import CODES
from accredit.findings.scene import Check, Plan, Scene
from accredit.findings.summary import summarise
from accredit.index import Index, Key
from accredit.typing import Severity

__all__ = ["Report", "examine"]

_ORDER = {"error": 0, "warning": 1, "info": 2}
_CHECKS: tuple[Check, ...] = (
    *groups.CHECKS,
    *rewards.CHECKS,
    *tokens.CHECKS,
    *signals.CHECKS,
    *spelling.CHECKS,
    *plans.CHECKS,
    *branches.CHECKS,
    *roles.CHECKS,
    *states.CHECKS,
)


@dataclass(frozen=True)
class Report:
    """What is wrong, or worth knowing, about a batch, and its numbers.

    Args:
        findings: errors first, then by code; one code may come several times (once a signal, say).
        summary: sizes, distributions and shares; JSON-ready (see `accredit.findings.summary`).

    Example:
        >>> batch = Batch.from_records([{"id": "a", "group": "g", "reward": None, "steps": []}])
        >>> report = examine(batch)
        >>> report.ok, sorted(report.by_code())[:2], report.summary["rollouts"]["read"]
        (False, ['ACC115', 'ACC204'], 1)
    """

    findings: tuple[Finding, ...]
    summary: Mapping[str, Any]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that make numbers wrong or stop a method."""
        return self._of("error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Findings for which a fallback is taken."""
        return self._of("warning")

    @property
    def ok(self) -> bool:
        """Whether there is no error and no warning."""
        return not (self.errors or self.warnings)

    def by_code(self) -> dict[str, tuple[Finding, ...]]:
        """Return the findings by code."""
        codes = dict.fromkeys(f.code for f in self.findings)
        return {code: tuple(f for f in self.findings if f.code == code) for code in codes}

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready fields."""
        found = [f.to_dict() for f in self.findings]
        return {"ok": self.ok, "findings": found, "summary": dict(self.summary)}

    def _of(self, severity: Severity) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity == severity)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        n = {s: len(self._of(s)) for s in ("error", "warning", "info")}
        head = f"Report({n['error']} errors, {n['warning']} warnings, {n['info']} infos)"
        return "\n".join([head, *(f"  {f.severity:7} {f}" for f in self.findings)])


def examine(
    batch: Batch, plan: Plan | None = None, *, key: Key | None = None, strict: bool = False
) -> Report:
    """Return the findings of a batch, those made while reading included, and its numbers.

    Args:
        batch: the rollouts; not changed.
        plan: the method that is to run on them; None = any.
        key: which states count as the same (see `accredit.index.word_keys`).
        strict: raise at the first error or warning.

    Raises:
        DataError: strict only.
    """
    scene = Scene(Index(batch, key), plan)
    log = FindingLog()
    for finding in batch.findings:
        log.put(_mended(finding))
    made = [finding for check in _CHECKS for finding in check(scene)]
    found = sorted([*log.findings(), *made], key=lambda f: (_ORDER[f.severity], f.code))
    if strict and found and found[0].severity != "info":
        worst = found[0]
        raise DataError(worst.message, code=worst.code, where=worst.where, hint=worst.hint)
    return Report(tuple(found), summarise(scene))


def _mended(finding: Finding) -> Finding:
    """Return a finding with the table's mend where it has none of its own."""
    known = CODES.get(finding.code)
    return finding if finding.hint or known is None else replace(finding, hint=known.mend)
