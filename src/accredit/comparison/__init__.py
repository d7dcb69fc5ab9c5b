"""`compare`: several methods on the same rollouts, what each says and where they disagree."""

from accredit.against import Against, Reliability, TruthRow
from accredit.comparison.records import Comparison, Disagreement, MethodRow, Pair, Unable
from accredit.comparison.run import compare, runnable

__all__ = [
    "Against",
    "Comparison",
    "Disagreement",
    "MethodRow",
    "Pair",
    "Reliability",
    "TruthRow",
    "Unable",
    "compare",
    "runnable",
]
