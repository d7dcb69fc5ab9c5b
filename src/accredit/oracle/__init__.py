"""Truth: exact values of worlds with tables, and of real worlds that are explored into one."""

from accredit.oracle.exact import Exact, solve
from accredit.oracle.tabulated import Table, table_truth, tabulate

__all__ = ["Exact", "Table", "solve", "table_truth", "tabulate"]
