"""Whether restored states are the recorded ones: without that, everything bought from them is meaningless."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from accredit.errors import ProbeError
from accredit.planners import Place
from accredit.signals.continuation.restorers import RestoreFailed, Restorer

__all__ = ["Fidelity", "check_fidelity"]

TIMES = 3
SAMPLE = 20
_ALLOWED: Mapping[str, float] = {"exact": 0.01, "replay": 0.05, "best-effort": 0.05}


@dataclass(frozen=True, slots=True)
class Fidelity:
    """What a check of restored states found.

    Args:
        restores: tried.
        mismatches: that came to another state, or whose next state was another one than recorded.
        by_group: mismatches of each group that has some.
        by_step: mismatches at each step that has some.
        first: the first mismatch in words, "" if there is none.
        allowed: share of mismatches above which continuations are refused.
    """

    restores: int
    mismatches: int
    by_group: Mapping[str, int]
    by_step: Mapping[int, int]
    first: str
    allowed: float

    @property
    def rate(self) -> float:
        """Share of restores that were mismatches."""
        return self.mismatches / self.restores if self.restores else 0.0

    def refuse(self) -> None:
        """Raise if there are too many mismatches.

        Raises:
            ProbeError: naming the share and the first mismatch.
        """
        if self.rate > self.allowed:
            raise ProbeError(
                f"{self.mismatches} of {self.restores} restored states are not the recorded ones: "
                f"{self.first}",
                hint="Is it the world, and the start, that these rollouts were played in?",
            )


def check_fidelity(
    restorer: Restorer,
    places: Sequence[Place],
    nexts: Sequence[tuple[str, str] | None],
    *,
    times: int = TIMES,
    sample: int = SAMPLE,
) -> Fidelity:
    """Return how often restored states, and what the recorded action does there, are as recorded.

    Args:
        restorer: of the worlds.
        places: recorded states.
        nexts: the action recorded at each, and the state recorded after it; None = unknown.
        times: restores of each.
        sample: places looked at, spread over all.
    """
    step = max(len(places) / max(min(sample, len(places)), 1), 1.0)
    picked = sorted({int(i * step) for i in range(min(sample, len(places)))})
    wrong: list[tuple[Place, str]] = []
    tried = 0
    for i in picked:
        for _ in range(times):
            tried += 1
            said = _compared(restorer, places[i], nexts[i])
            if said:
                wrong.append((places[i], said))
    groups: dict[str, int] = {}
    steps: dict[int, int] = {}
    for place, _ in wrong:
        groups[place.group] = groups.get(place.group, 0) + 1
        steps[place.step] = steps.get(place.step, 0) + 1
    first = wrong[0][1] if wrong else ""
    return Fidelity(tried, len(wrong), groups, steps, first, _ALLOWED[restorer.fidelity])


def _compared(restorer: Restorer, place: Place, after: tuple[str, str] | None) -> str:
    """Return what differs, "" if nothing does."""
    try:
        world = restorer.stand(place)
    except RestoreFailed as error:
        return str(error)
    said = ""
    if after is not None and world.deterministic:
        action, state = after
        options = world.actions()
        if options is not None and action not in options:
            said = f"{action[:80]!r}, recorded at step {place.step} of {place.rollout!r}, is not possible"
        else:
            world.step(action)
            if world.key() != state:
                said = f"after step {place.step} of {place.rollout!r} the state is {world.key()[:80]!r}"
    restorer.release(world, place)
    return said
