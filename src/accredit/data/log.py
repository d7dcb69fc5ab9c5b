"""Findings gathered while something runs: one entry a code, counted, first places kept."""

from __future__ import annotations

from accredit.data.finding import Finding
from accredit.typing import Severity

__all__ = ["FindingLog", "known_again"]


class FindingLog:
    """Collects findings and merges those of one code.

    Example:
        >>> log = FindingLog()
        >>> log.add("ACC202", "warning", "reward of 'a' is NaN", where="line 1")
        >>> log.add("ACC202", "warning", "reward of 'b' is NaN", where="line 9")
        >>> [(f.code, f.count, f.examples) for f in log.findings()]
        [('ACC202', 2, ('line 1', 'line 9'))]
    """

    def __init__(self) -> None:
        self._by_code: dict[str, Finding] = {}

    def add(self, code: str, severity: Severity, message: str, *, where: str = "", hint: str = "") -> None:
        """Record one finding."""
        self.put(Finding(code, severity, message, where, hint))

    def put(self, finding: Finding) -> None:
        """Record a finding, merging it with an earlier one of its code."""
        earlier = self._by_code.get(finding.code)
        self._by_code[finding.code] = finding if earlier is None else earlier.merged(finding)

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings in order of first appearance."""
        return tuple(self._by_code.values())


# What rollouts show whenever they are read: joined rows, prompts that do not go on.
_RECURRENT = frozenset({"ACC106", "ACC301", "ACC302"})


def known_again(earlier: tuple[Finding, ...], found: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return earlier findings and those found now, one that says the same only once.

    A file carries the findings of its source; some of them show again whenever it is read, in a
    slice of the source less often.
    """
    said = {f.code: f.count for f in earlier if f.code in _RECURRENT}
    return (*earlier, *(f for f in found if f.count > said.get(f.code, 0)))
