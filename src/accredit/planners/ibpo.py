"""IBPO's plan for agents: a failure is taken back to its first edited step, and a reviser goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from accredit.data import Batch
from accredit.errors import ParamError
from accredit.index import Index
from accredit.index.alignment import aligned
from accredit.planners.asking import Answer, Outcome, Request, version_of
from accredit.planners.truth import places_of

__all__ = ["Draft", "IbpoPlanner", "Reviser", "Revisions", "nearest_repair"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A failed rollout, and siblings to compare it with.

    Args:
        index: of the batch.
        rollout: id of the failure.
        references: ids of siblings, right ones first.
        right: of them, those that succeeded.
    """

    index: Index
    rollout: str
    references: tuple[str, ...]
    right: tuple[str, ...]

    def steps(self, rollout: str) -> list[dict[str, Any]]:
        """Return the steps of a rollout, as records.

        Args:
            rollout: id.
        """
        batch = self.index.batch
        (record,) = batch.take([batch.position(rollout)]).records()
        found: list[dict[str, Any]] = record["steps"]
        return found

    def actions(self, rollout: str) -> list[str]:
        """Return the actions of a rollout.

        Args:
            rollout: id.
        """
        batch = self.index.batch
        column, steps = batch.column("action_S"), batch.steps_of(batch.position(rollout))
        return [str(column.item(s)) for s in steps]


Reviser: TypeAlias = Callable[[Draft], Mapping[str, Any] | None]
"""From a failure to ``{"step": first edited step, "actions": [...]}``, the actions to take first, if any.

None: no correction.  A reviser may have a ``version``, which the column's provenance tells.
"""


def nearest_repair(draft: Draft) -> Mapping[str, Any] | None:
    """Return the first step at which the nearest reference does something else; None without references.

    Args:
        draft: the failure; right references count before wrong ones.
    """
    own = draft.actions(draft.rollout)
    pool = draft.right or draft.references
    found = [aligned(own, draft.actions(name)) for name in pool]
    if not found or not own:
        return None
    best = max(found, key=lambda alignment: alignment.similarity)
    return {"step": min(best.first_edit, len(own) - 1)}


@dataclass(frozen=True, slots=True)
class Revisions:
    """How the failures fared.

    Args:
        failures: looked at.
        unrevised: of them, those that the reviser gave no correction for.
        statuses: how many revisions ended in which way.
        corrected: failures of which a revision succeeded; one that was cut off did not.
    """

    failures: int
    unrevised: tuple[str, ...]
    statuses: Mapping[str, int]
    corrected: tuple[str, ...]

    def text(self) -> str:
        """Return the figures in one sentence."""
        played = ", ".join(f"{n} {status}" for status, n in sorted(self.statuses.items())) or "none played"
        return (
            f"{self.failures} failures, {len(self.unrevised)} without a correction; revisions: {played}; "
            f"{len(self.corrected)} failures corrected"
        )


class IbpoPlanner:
    """Lets a reviser say where a failure is first edited, replays what is kept, and lets a policy go on.

    What comes back was executed: the rollout's actions before the edited step, those that the reviser
    gave, and what the policy chose from there.

    Args:
        batch: rollouts whose steps carry every action.
        reviser: says where to begin; see `Reviser`.
        k: revisions of each failure.
        policy: name of the policy that goes on.
        markov: see `places_of`.
        references: siblings shown, right ones first.
        success_at: score from which on a rollout is right.
        max_steps: of each continuation.
    """

    def __init__(
        self,
        batch: Batch,
        reviser: Reviser = nearest_repair,
        k: int = 1,
        *,
        policy: str = "reviser",
        markov: bool = False,
        references: int = 3,
        success_at: float = 1.0,
        max_steps: int | None = None,
    ) -> None:
        if k < 1 or references < 0:
            raise ParamError(f"k must be >= 1 and references >= 0, got {k} and {references}")
        self._index = index = Index(batch)
        self._reviser, self._k, self._policy, self._markov = reviser, k, policy, markov
        self._references, self._max_steps = references, max_steps
        self._counted = index.counted_R()
        self._right = self._counted & (index.score_R >= success_at)
        self._success_at = success_at
        self._begun: dict[int, int] = {}
        self._answers: list[Answer] | None = None

    def ask(self) -> Sequence[Request]:
        """Return the revisions of every failure at once."""
        if self._answers is not None:
            return []
        asked, self._begun = [], {}
        for r in self._failures():
            told = self._reviser(self._draft(r))
            if told is None:
                continue
            step = self._step(r, told.get("step"))
            self._begun[r] = step
            at = int(self._index.batch.step_start_R1[r]) + step
            (place,) = places_of(self._index.batch, [at], markov=self._markov)
            asked.append(
                Request(
                    place,
                    self._k,
                    self._policy,
                    tuple(str(a) for a in told.get("actions", ())),
                    arm="revision",
                    max_steps=self._max_steps,
                    shared=False,
                    record=True,
                    purpose="ibpo",
                )
            )
        return asked

    def tell(self, answers: Sequence[Answer]) -> None:
        """Take the answers."""
        self._answers = list(answers)

    def filled(self) -> Batch:
        """Return the rollouts with `revision`: reward of the whole, whether it was cut off, and its actions.

        A revision that could not be played has no reward.  Provenance says K, the policy, how many
        continuations ended in which way, the reviser, and how many failures it had no correction for.
        """
        batch = self._index.batch
        found = np.full(len(batch), None)
        for (r, step), answer in zip(self._begun.items(), self._answers or [], strict=False):
            made_of = [self._revision(r, step, outcome) for outcome in answer.outcomes]
            found[r] = made_of[0] if len(made_of) == 1 else made_of or None
        told = self.revisions()
        made = {"by": "IbpoPlanner", "k": self._k, "policy": self._policy, "statuses": dict(told.statuses)}
        made |= {"reviser": version_of(self._reviser), "unrevised": len(told.unrevised)}
        return batch.with_column("revision", found, made)

    def revisions(self) -> Revisions:
        """Return how the failures fared."""
        ids = self._index.batch.ids
        failures = self._failures()
        counts, corrected = Counter[str](), []
        for (r, step), answer in zip(self._begun.items(), self._answers or [], strict=False):
            counts.update(answer.counts())
            ended = [o for o in answer.outcomes if o.is_result and o.status != "truncated"]
            if any(self._paid(r, step) + (o.reward or 0.0) >= self._success_at for o in ended):
                corrected.append(ids[r])
        unrevised = tuple(ids[r] for r in failures if r not in self._begun)
        return Revisions(len(failures), unrevised, dict(counts), tuple(corrected))

    def _failures(self) -> list[int]:
        found: list[int] = np.flatnonzero(self._counted & ~self._right).tolist()
        return found

    def _paid(self, r: int, step: int) -> float:
        first = int(self._index.batch.step_start_R1[r])
        return float(self._index.paid_S[first : first + step].sum())

    def _revision(self, r: int, step: int, outcome: Outcome) -> dict[str, Any]:
        if not outcome.is_result:
            return {"reward": None}
        draft = self._draft(r)
        return {
            "reward": self._paid(r, step) + (outcome.reward or 0.0),
            "truncated": outcome.status == "truncated",
            "actions": [*draft.actions(draft.rollout)[:step], *(visit.action for visit in outcome.path)],
        }

    def _draft(self, r: int) -> Draft:
        index = self._index
        others = np.flatnonzero(self._counted & (index.group_R == index.group_R[r]))
        others = others[others != r]
        ordered = [*others[self._right[others]].tolist(), *others[~self._right[others]].tolist()]
        kept = ordered[: self._references]
        names = tuple(index.batch.ids[i] for i in kept)
        right = tuple(index.batch.ids[i] for i in kept if self._right[i])
        return Draft(index, index.batch.ids[r], names, right)

    def _step(self, r: int, step: Any) -> int:
        size = int(self._index.steps_R[r])
        whole = isinstance(step, int | np.integer) and not isinstance(step, bool)
        if not whole or not 0 <= step < size:
            raise ParamError(
                f"rollout {self._index.batch.ids[r]!r} has steps 0 .. {size - 1}, the reviser said {step!r}"
            )
        return int(step)
