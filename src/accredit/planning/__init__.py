"""`plan`: how many rollouts a task needs before some of them differ, and what is lost where none do."""

from accredit.planning.records import Finder, GroupPlan, SizeOdds, TaskRate, Waste
from accredit.planning.sizes import plan

__all__ = ["Finder", "GroupPlan", "SizeOdds", "TaskRate", "Waste", "plan"]
