"""Truth: exact values of worlds with tables and of real worlds that are explored, else continuations."""

from accredit.oracle.exact import Exact, solve
from accredit.oracle.tabulated import Table, table_truth, tabulate
from accredit.oracle.truths import TruthReport, truth

__all__ = ["Exact", "Table", "TruthReport", "solve", "table_truth", "tabulate", "truth"]
