"""Checks of states: do they recur, and would a coarser key make them?"""

from __future__ import annotations

from collections.abc import Iterator

from accredit.data import Finding
from accredit.findings.codes import CODES
from accredit.findings.recurrence import state_column
from accredit.findings.scene import Check, Scene

__all__ = ["CHECKS", "RARE"]

# Below this share of shared steps, state methods say next to nothing beyond the outcome.
RARE = 0.01
_GAIN = 0.05


def _states(scene: Scene) -> Iterator[Finding]:
    if not scene.batch.n_steps:
        return
    found = scene.revisits
    if found is None:
        yield CODES["ACC701"].finding("no step has a state, so methods that compare states cannot run")
        return
    there = scene.present(state_column(scene.index))
    yield from scene.steps("ACC702", ~there, "{n} without a state")
    if found.distinct == 1 and scene.index.steps_R.max() > 1:
        yield CODES["ACC705"].finding(f"all {found.steps} steps are in the same state")
    elif found.anywhere < RARE and scene.group_size_G.max() > 1:
        yield CODES["ACC703"].finding(
            f"{found.anywhere:.2%} of {found.steps} steps share their state with another step of their group"
        )


def _gains(scene: Scene) -> Iterator[Finding]:
    worth = sorted(((gain, name) for name, gain in scene.gains.items() if gain >= _GAIN), reverse=True)
    if worth:
        shown = ", ".join(f"{name} {gain:+.0%}" for gain, name in worth)
        yield CODES["ACC704"].finding(
            f"a coarser state key would let more steps share their state: {shown} of the steps"
        )


CHECKS: tuple[Check, ...] = (_states, _gains)
