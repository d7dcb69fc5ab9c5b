"""VinePPO's continuations: K from the state before every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from accredit.data import Batch
from accredit.errors import ParamError
from accredit.planners.asking import Answer, Request
from accredit.planners.truth import places_of

__all__ = ["VinePlanner", "listed"]


def listed(answer: Answer, paid: float = 0.0) -> list[dict[str, Any]]:
    """Return the results of an answer as records hold them: a reward, and whether it was cut off.

    Args:
        answer: to a request.
        paid: added to each reward: what the rollout got before the place.
    """
    return [
        {"reward": paid + (outcome.reward or 0.0), "truncated": outcome.status == "truncated"}
        for outcome in answer.outcomes
        if outcome.is_result
    ]


class VinePlanner:
    """Asks for continuations from the state before every step, and writes them where `vineppo` reads them.

    Rollouts that began alike share their continuations.

    Args:
        batch: rollouts whose steps carry every action.
        k: continuations a state.
        policy: name of the policy that goes on; it should be the one that sampled the rollouts.
        markov: see `places_of`.
        max_step: states of steps 0 .. max_step alone; None = all.
        common_seeds: the states of a task share the chance of every step of the episode, so that errors
            of neighbours go together and their difference has less.
        max_steps: of each continuation; None = what the world has left.

    Example:
        >>> steps = [{"action": "x"}, {"action": "y"}]
        >>> records = [{"id": i, "group": "g", "reward": 1, "steps": steps} for i in "ab"]
        >>> asked = VinePlanner(Batch.from_records(records), 4).ask()
        >>> [(request.place.rollout, request.place.step, request.k) for request in asked]
        [('a', 0, 4), ('a', 1, 4)]
    """

    def __init__(
        self,
        batch: Batch,
        k: int = 9,
        *,
        policy: str = "actor",
        markov: bool = False,
        max_step: int | None = None,
        common_seeds: bool = False,
        max_steps: int | None = None,
    ) -> None:
        if k < 1 or (max_step is not None and max_step < 0):
            raise ParamError(f"k must be >= 1 and max_step >= 0, got {k} and {max_step}")
        self._batch, self._k, self._policy = batch, k, policy
        position = np.arange(batch.n_steps) - np.repeat(
            batch.step_start_R1[:-1], np.diff(batch.step_start_R1)
        )
        self._steps = np.flatnonzero(position <= (batch.n_steps if max_step is None else max_step))
        places = places_of(batch, self._steps, markov=markov)
        self._keys = [(place.group, place.key) for place in places]
        chance = "episode" if common_seeds else ""
        self._requests = {
            key: Request(place, k, policy, chance=chance, max_steps=max_steps, purpose="vineppo")
            for key, place in reversed(list(zip(self._keys, places, strict=True)))
        }
        self._answers: dict[tuple[str, str], Answer] | None = None

    def ask(self) -> Sequence[Request]:
        """Return all requests at once, one a place."""
        return [] if self._answers is not None else list(reversed(self._requests.values()))

    def tell(self, answers: Sequence[Answer]) -> None:
        """Take the answers."""
        self._answers = {(a.request.place.group, a.request.place.key): a for a in answers}

    def filled(self) -> Batch:
        """Return the rollouts with `continuations`: empty where none came back, absent where none were asked.

        Its provenance says K, the policy and how many continuations ended in which way.
        """
        answers = self._answers or {}
        found = np.full(self._batch.n_steps, None)
        for s, key in zip(self._steps.tolist(), self._keys, strict=True):
            if key in answers:
                found[s] = listed(answers[key])
        counts: Counter[str] = Counter()
        for answer in answers.values():
            counts.update(answer.counts())
        made = {"by": "VinePlanner", "k": self._k, "policy": self._policy, "statuses": dict(counts)}
        return self._batch.with_column("continuations", found, made)
