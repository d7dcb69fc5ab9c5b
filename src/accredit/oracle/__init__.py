"""Truth: exact values of worlds with tables and of real worlds that are explored, else continuations."""

from accredit.oracle.exact import Exact, solve
from accredit.oracle.played import TablesActor, player_of
from accredit.oracle.tables import Explored, read_tables, save_tables
from accredit.oracle.tabulated import Table, table_truth, tabulate
from accredit.oracle.truths import TruthReport, truth

__all__ = [
    "Exact",
    "Explored",
    "Table",
    "TablesActor",
    "TruthReport",
    "player_of",
    "read_tables",
    "save_tables",
    "solve",
    "table_truth",
    "tabulate",
    "truth",
]
