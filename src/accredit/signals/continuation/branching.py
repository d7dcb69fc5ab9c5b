"""Branched rollouts from what the engine bought; planners make them themselves."""

from accredit.planners.branching import branched, with_branches

__all__ = ["branched", "with_branches"]
