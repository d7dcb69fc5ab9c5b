"""Contexts of C3: alternatives for one message, each gone on from several times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from accredit.data import Batch
from accredit.data.chance import prf
from accredit.errors import ParamError
from accredit.index import Index
from accredit.planners.asking import Answer, Place, Request, Visit
from accredit.planners.branching import branched
from accredit.planners.growing import places_before
from accredit.typing import Ints

__all__ = ["Alternatives", "decision_points"]


def decision_points(index: Index, per_group: int = 2, seed: int = 0) -> Ints:
    """Return steps of each task that are drawn without looking at what was done or came out.

    Args:
        index: of the reference rollouts.
        per_group: steps a task.
        seed: of the draw; a step's number follows from it, the rollout's id and its position.
    """
    ids, place = index.batch.ids, index.position_S
    drawn = [prf(seed, ids[int(r)], int(t)) for r, t in zip(index.rollout_S, place, strict=True)]
    order = np.array(sorted(range(place.size), key=lambda s: drawn[s]), np.int64)
    group = index.group_S[order]
    by_group = order[np.argsort(group, kind="stable")]
    first = np.searchsorted(index.group_S[by_group], index.group_S[by_group], side="left")
    return np.sort(by_group[np.arange(by_group.size) - first < per_group])


class Alternatives:
    """Draws n alternatives at each decision point, and goes on c times after each.

    n and c are fixed before any outcome is seen, so that means are unbiased.  Alternatives that the
    world refuses are played and scored like others; equal ones are kept.  Decision points with one
    path to them are one context.

    Args:
        batch: reference rollouts; every step has its action.
        steps: step numbers of the decision points.
        n: alternatives a context.
        c: continuations an alternative.
        reuse: take the recorded action as one of the n; only for steps that were chosen without
            looking at it.
        common: alternatives share the chance of what follows.
        policy: name of the policy that draws and goes on.
        max_steps: of each continuation, the alternative included.

    Example:
        >>> records = [{"id": "a", "group": "g", "reward": 1, "steps": [{"action": "x"}, {"action": "y"}]}]
        >>> asked = Alternatives(Batch.from_records(records), [1], n=3).ask()
        >>> [(request.k, request.max_steps, request.place.actions) for request in asked]
        [(3, 1, ('x',))]
    """

    def __init__(
        self,
        batch: Batch,
        steps: Sequence[int] | Ints,
        *,
        n: int = 4,
        c: int = 4,
        reuse: bool = False,
        common: bool = False,
        policy: str = "actor",
        max_steps: int | None = None,
    ) -> None:
        if n < 1 or c < 1:
            raise ParamError(f"n and c must be >= 1, got {n} and {c}")
        self._batch, self._n, self._c, self._reuse = batch, n, c, reuse
        self._common, self._policy, self._max_steps = common, policy, max_steps
        distinct: dict[Any, Place] = {}
        for place in places_before(Index(batch), np.asarray(steps, np.int64)):
            distinct.setdefault((place.group, place.start, place.actions), place)
        self._places = list(distinct.values())
        self._drawn: list[list[Visit]] | None = None
        self._answers: tuple[Answer, ...] | None = None
        self.counts: Counter[str] = Counter()

    def ask(self) -> Sequence[Request]:
        """Return the draws of alternatives, then the continuations; nothing when done."""
        if self._drawn is None:
            k = self._n - self._reuse
            return [
                Request(
                    place, k, self._policy, arm="alternative", max_steps=1, record=True, purpose="c3: draw"
                )
                for place in self._places
            ]
        return () if self._answers is not None else [request for _, _, request in self._wanted()]

    def tell(self, answers: Sequence[Answer]) -> None:
        """Take what was drawn, then the continuations."""
        if self._drawn is None:
            self._drawn = [
                [*self._recorded(place), *(o.path[0] for o in answer.outcomes if o.is_result and o.path)]
                for place, answer in zip(self._places, answers, strict=True)
            ]
            return
        self._answers = tuple(answers)
        for answer in answers:
            self.counts.update(answer.counts())

    def filled(self) -> Batch:
        """Return the contexts as branched rollouts, one tree a context, for `c3`.

        The reference rollouts are not among them: they chose where to look.  Continuations of one
        alternative share its step; an alternative of which none came back is left out.
        """
        records = list(self._batch.records())
        found: list[dict[str, Any]] = []
        heads: dict[str, str] = {}
        in_steps = self._batch.outcome_in_steps
        for (tree, visit, request), answer in zip(self._wanted(), self._answers or (), strict=False):
            made = branched([answer], records, outcome_in_steps=in_steps)
            for m, record in enumerate(made):
                found.append(_linked(record, tree, request.place.step, visit, heads.get(tree), made, m))
                heads.setdefault(tree, record["id"])
        made_by = {"by": "Alternatives", "n": self._n, "c": self._c, "statuses": dict(self.counts)}
        return Batch.from_records(found).with_provenance({**self._batch.provenance, "contexts": made_by})

    def _recorded(self, place: Place) -> list[Visit]:
        if not self._reuse:
            return []
        s = self._batch.steps_of(self._batch.rollout_of[place.rollout])[place.step]
        return [Visit(place.state, str(self._batch.column("action_S").item(s)), 0.0)]

    def _wanted(self) -> list[tuple[str, Visit, Request]]:
        """Return the context, the alternative and the request of its continuations, of all."""
        return [
            (
                f"{place.rollout}@{place.step}",
                visit,
                Request(
                    place,
                    self._c,
                    self._policy,
                    (visit.action,),
                    arm=f"alternative {j}",
                    common=self._common,
                    max_steps=self._max_steps,
                    record=True,
                    purpose="c3",
                ),
            )
            for place, visits in zip(self._places, self._drawn or (), strict=False)
            for j, visit in enumerate(visits)
        ]


def _linked(
    record: dict[str, Any],
    tree: str,
    step: int,
    visit: Visit,
    head: str | None,
    siblings: Sequence[dict[str, Any]],
    m: int,
) -> dict[str, Any]:
    """Return a continuation as a branch inside its context's tree.

    The first of a context is the root, the first of another alternative leaves it before the
    alternative, and the others of an alternative leave its first after it.
    """
    found = {k: v for k, v in record.items() if k not in ("parent", "fork_step", "branch_kind")}
    if m > 0:
        found |= {"parent": siblings[0]["id"], "fork_step": step + 1, "branch_kind": "fork"}
    elif head is not None:
        found |= {"parent": head, "fork_step": step, "branch_kind": "fork"}
    steps = [dict(one) for one in record["steps"]]
    if visit.logprob is not None:
        steps[step]["action_logprob"] = visit.logprob
    return found | {"tree": tree, "steps": steps}
