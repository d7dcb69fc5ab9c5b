"""Pure ask/tell rules that say which continuations to buy next; an engine executes what they ask."""

from accredit.planners.asking import Answer, Outcome, Place, Planner, Request, Visit
from accredit.planners.branching import branched, with_branches

__all__ = [
    "Answer",
    "Outcome",
    "Place",
    "Planner",
    "Request",
    "Visit",
    "branched",
    "with_branches",
]
