"""Worlds: tasks whose truth is known, and environments that can be taken back to a state."""

from accredit.worlds.dynamic import Tables, evaluate, key_advantage, occupancy, optimal
from accredit.worlds.families import FAMILIES, make
from accredit.worlds.noise import Noise
from accredit.worlds.playing import TabularWorld
from accredit.worlds.policies import RATES, Policy, make_policy
from accredit.worlds.protocol import Cost, World
from accredit.worlds.sampling import Sample, sample
from accredit.worlds.supplies import Signals
from accredit.worlds.tabular import Rules, Task, tabulate
from accredit.worlds.truth import StepTruth, truth_file

__all__ = [
    "FAMILIES",
    "RATES",
    "Cost",
    "Noise",
    "Policy",
    "Rules",
    "Sample",
    "Signals",
    "StepTruth",
    "Tables",
    "TabularWorld",
    "Task",
    "World",
    "evaluate",
    "key_advantage",
    "make",
    "make_policy",
    "occupancy",
    "optimal",
    "sample",
    "tabulate",
    "truth_file",
]
