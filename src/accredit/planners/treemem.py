"""Trees of pipelines: every message is answered by several, level by level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accredit.data import Batch
from accredit.errors import ParamError
from accredit.index import Index
from accredit.planners.asking import Answer, Place, Request
from accredit.planners.branching import branched, with_branches
from accredit.planners.growing import places_before

__all__ = ["FanOut"]


class FanOut:
    """Grows a tree of G first messages, J answers to each, K answers to each of those, and so on.

    Each level goes on from what is there: a task costs ``G J K`` rollouts, whose upper messages are
    made once.  Steps beyond the last level go on freely.

    Args:
        starts: task -> seed of its episode's start.
        sizes: answers at each level (G, J, K).
        policy: name of the policy (the team) that plays.
        max_steps: of each continuation.

    Attributes:
        batch: the rollouts; None before the first level came back.
        counts: how many continuations ended in which way.

    Example:
        >>> asked = FanOut({"history 1": 0}, (8, 2, 2)).ask()
        >>> [(request.place.group, request.k) for request in asked]
        [('history 1', 8)]
    """

    def __init__(
        self,
        starts: Mapping[str, int],
        sizes: Sequence[int] = (8, 2, 2),
        *,
        policy: str = "actor",
        max_steps: int | None = None,
    ) -> None:
        if not sizes or min(sizes) < 1:
            raise ParamError(f"sizes must be whole numbers >= 1, got {tuple(sizes)!r}")
        self.batch: Batch | None = None
        self.counts: dict[str, int] = {}
        self._starts, self._sizes = dict(starts), tuple(sizes)
        self._policy, self._max_steps, self._level = policy, max_steps, 0

    def ask(self) -> Sequence[Request]:
        """Return the continuations of the next level; nothing after the last."""
        if self._level == 0:
            self._level = 1
            places = [Place(group, "start", start=seed) for group, seed in self._starts.items()]
            return [self._request(place, self._sizes[0], 0) for place in places]
        while self.batch is not None and self._level < len(self._sizes):
            level, self._level = self._level, self._level + 1
            if self._sizes[level] > 1:
                index = Index(self.batch)
                steps = self.batch.step_start_R1[:-1][index.steps_R > level] + level
                return [self._request(p, self._sizes[level] - 1, level) for p in places_before(index, steps)]
        return ()

    def _request(self, place: Place, k: int, level: int) -> Request:
        return Request(
            place,
            k,
            self._policy,
            arm=f"level {level}",
            max_steps=self._max_steps,
            shared=False,
            record=True,
            purpose="treemem",
        )

    def tell(self, answers: Sequence[Answer]) -> None:
        """Add what came back to the tree."""
        for answer in answers:
            for status, n in answer.counts().items():
                self.counts[status] = self.counts.get(status, 0) + n
        if self.batch is not None:
            self.batch = with_branches(self.batch, answers)
            return
        first = branched(answers)
        self.batch = Batch.from_records(first) if first else None
