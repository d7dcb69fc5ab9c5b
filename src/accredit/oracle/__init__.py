"""Truth: exact values of worlds with tables."""

from accredit.oracle.exact import Exact, solve

__all__ = ["Exact", "solve"]
