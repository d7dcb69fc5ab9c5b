"""Methods against exact truth: `bench`, its leaderboards, and the advice that follows from them."""

from accredit.benchmark.leaderboard import Board, Row
from accredit.benchmark.plan import SCALES, Scale, Setting
from accredit.benchmark.run import Bench, bench

__all__ = ["SCALES", "Bench", "Board", "Row", "Scale", "Setting", "bench"]
