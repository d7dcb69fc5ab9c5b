"""Credit against true advantages of the same steps: how near methods come, what the truth is worth."""

from accredit.against.groupwise import CLEAR, Judge, Nearness
from accredit.against.reference import Reliability, TruthLike, advantages, errors, told_of, truth_of
from accredit.against.rows import Against, TruthRow, against_truth, left_out

__all__ = [
    "CLEAR",
    "Against",
    "Judge",
    "Nearness",
    "Reliability",
    "TruthLike",
    "TruthRow",
    "advantages",
    "against_truth",
    "errors",
    "left_out",
    "told_of",
    "truth_of",
]
