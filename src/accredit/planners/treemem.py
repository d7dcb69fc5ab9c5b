"""Trees grown level by level: every message, or segment of steps, is followed by several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from accredit.data import Batch
from accredit.errors import ParamError
from accredit.index import Index
from accredit.planners.asking import Answer, Place, Request
from accredit.planners.branching import branched, with_branches
from accredit.planners.growing import places_before
from accredit.typing import Ints

__all__ = ["Cuts", "FanOut", "each_step"]

Cuts: TypeAlias = Callable[[Index], Ints]
"""The steps that begin a segment, those that begin a rollout among them; ascending."""


def each_step(index: Index) -> Ints:
    """Return all steps: a message is a segment.

    Args:
        index: of the rollouts.
    """
    return np.arange(index.batch.n_steps)


class FanOut:
    """Grows a tree of G first messages, J answers to each, K answers to each of those, and so on.

    Each level goes on from what is there: a task costs ``G J K`` rollouts, whose upper messages are
    made once.  Steps beyond the last level go on freely.  A rollout that ends before a level is a leaf
    there, alone where others fan out.

    Where a segment ends must follow from what was done up to there; then means over children, level by
    level, are unbiased.

    Args:
        starts: task -> seed of its episode's start.
        sizes: answers at each level (G, J, K).
        cuts: where a level ends; default: each message is one.
        policy: name of the policy (the team) that plays.
        max_steps: of each continuation.
        purpose: for reports.

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
        cuts: Cuts = each_step,
        policy: str = "actor",
        max_steps: int | None = None,
        purpose: str = "treemem",
    ) -> None:
        if not sizes or min(sizes) < 1:
            raise ParamError(f"sizes must be whole numbers >= 1, got {tuple(sizes)!r}")
        self.batch: Batch | None = None
        self.counts: Counter[str] = Counter()
        self._starts, self._sizes = dict(starts), tuple(sizes)
        self._policy, self._max_steps, self._level = policy, max_steps, 0
        self._cuts, self._purpose = cuts, purpose

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
                steps = _of_level(index, self._cuts(index), level)
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
            purpose=self._purpose,
        )

    def tell(self, answers: Sequence[Answer]) -> None:
        """Add what came back to the tree."""
        for answer in answers:
            self.counts.update(answer.counts())
        if self.batch is not None:
            self.batch = with_branches(self.batch, answers)
            return
        first = branched(answers)
        self.batch = Batch.from_records(first) if first else None


def _of_level(index: Index, cuts: Ints, level: int) -> Ints:
    """Return the first step of each rollout's segment number ``level``, of those that have one."""
    rollout = index.rollout_S[cuts]
    number = np.arange(cuts.size) - np.searchsorted(rollout, rollout, side="left")
    found: Ints = cuts[number == level]
    return found
