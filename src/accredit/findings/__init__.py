"""Checks of a batch: findings with code, severity, place and mend; one file a family."""

from accredit.findings.codes import CODES, FAMILIES, Code
from accredit.findings.recurrence import Revisits, normaliser_gains, revisits
from accredit.findings.report import Report, examine
from accredit.findings.scene import Plan
from accredit.findings.ties import Ties, zero_spread

__all__ = [
    "CODES",
    "FAMILIES",
    "Code",
    "Plan",
    "Report",
    "Revisits",
    "Ties",
    "examine",
    "normaliser_gains",
    "revisits",
    "zero_spread",
]
