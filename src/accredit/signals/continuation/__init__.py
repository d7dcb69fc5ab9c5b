"""Going back to a state and trying again: restores, policies, seeds, budgets, a journal."""

from accredit.planners.branching import branched, with_branches
from accredit.signals.continuation.crews import Alone, Workers
from accredit.signals.continuation.engine import Engine, Progress
from accredit.signals.continuation.fidelity import Fidelity, check_fidelity
from accredit.signals.continuation.journal import Journal
from accredit.signals.continuation.ledger import Budget, Ledger
from accredit.signals.continuation.playing import Ending, Job, Player, Scorer
from accredit.signals.continuation.restorers import Replay, RestoreFailed, Restorer

__all__ = [
    "Alone",
    "Budget",
    "Ending",
    "Engine",
    "Fidelity",
    "Job",
    "Journal",
    "Ledger",
    "Player",
    "Progress",
    "Replay",
    "RestoreFailed",
    "Restorer",
    "Scorer",
    "Workers",
    "branched",
    "check_fidelity",
    "with_branches",
]
