"""ProVer's plan: somebody points at one segment of a success; continuations before and after it tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from accredit.data import Batch
from accredit.data.chance import prf
from accredit.errors import ParamError
from accredit.index import Index
from accredit.index.proposals import eligible_R, faulty_S, segment_fault, targets
from accredit.index.samples import Floor, noise_floor
from accredit.planners.asking import Answer, Place, Request, version_of
from accredit.planners.truth import places_of
from accredit.planners.vineppo import listed
from accredit.typing import BoolArray

__all__ = ["Case", "Judge", "ProverPlanner", "Refusal", "Verdicts", "random_segments"]


@dataclass(frozen=True, slots=True)
class Case:
    """What a judge sees of one group: the target in full, previews of the failures, and two tools.

    Args:
        index: of the batch.
        group: its id.
        target: rollout of which a segment is to be proposed.
        failures: rollouts of the group that failed.
        max_length: most steps of a segment.
        fault: why the last proposal was refused; "" at first.
        turn: how many were refused.
    """

    index: Index
    group: str
    target: str
    failures: tuple[str, ...]
    max_length: int
    fault: str = ""
    turn: int = 0

    def segment(self, rollout: str, start: int = 0, end: int | None = None) -> list[dict[str, Any]]:
        """Return steps start .. end of a rollout, as records.

        Args:
            rollout: id.
            start: first step.
            end: last step; None = to the end.
        """
        batch = self.index.batch
        (record,) = batch.take([batch.position(rollout)]).records()
        found: list[dict[str, Any]] = record["steps"]
        return found[start : None if end is None else end + 1]

    def fault_of(self, start: Any, end: Any) -> str:
        """Return why steps start .. end of the target may not be proposed; "" if they may.

        Args:
            start: first step.
            end: last step.
        """
        r = self.index.batch.position(self.target)
        return segment_fault(self.index, faulty_S(self.index), r, start, end, self.max_length)

    def previews(self, steps: int = 8, width: int = 40) -> dict[str, str]:
        """Return the first actions of each failure, cut short.

        Args:
            steps: how many.
            width: characters of each.
        """
        return {
            name: "; ".join(str(s.get("action", ""))[:width] for s in self.segment(name)[:steps])
            for name in self.failures
        }

    def search(self, query: str, k: int = 5) -> list[tuple[str, int]]:
        """Return the steps of the failures that share most words with a query, as rollout and step.

        Args:
            query: words.
            k: how many at most.
        """
        wanted = set(query.lower().split())
        scored = []
        for name in self.failures:
            for t, step in enumerate(self.segment(name)):
                said = " ".join(str(step.get(f, "")) for f in ("state", "action", "observation", "text"))
                shared = len(wanted & set(said.lower().split()))
                if shared:
                    scored.append((-shared, name, t))
        return [(name, t) for _, name, t in sorted(scored)[:k]]


Judge: TypeAlias = Callable[[Case], Mapping[str, Any] | None]
"""From a case to ``{"start": l, "end": r}``, or None for no segment; asked again where that cannot be.

``{"fault": why}`` is a proposal that cannot even be read; it counts as refused and is asked for again.
A judge may have a ``version``, which the column's provenance tells.
"""


def random_segments(seed: int = 0) -> Judge:
    """Return the paper's control: a random segment of the target, 1 to `max_length` steps long.

    Args:
        seed: of the draw; it does not depend on the order of groups.
    """

    def judge(case: Case) -> Mapping[str, Any] | None:
        index = case.index
        last = int(index.steps_R[index.batch.position(case.target)]) - 2
        if last < 0:
            return None
        rng = np.random.default_rng(prf(seed, "prover", case.group, case.turn))
        length = int(rng.integers(1, min(case.max_length, last + 1) + 1))
        start = int(rng.integers(0, last - length + 2))
        return {"start": start, "end": start + length - 1}

    return judge


@dataclass(frozen=True, slots=True)
class Refusal:
    """A proposal that cannot be.

    Args:
        group: id.
        rollout: the target.
        turn: how many were refused before it.
        fault: why.
    """

    group: str
    rollout: str
    turn: int
    fault: str


@dataclass(frozen=True, slots=True)
class Verdicts:
    """How proposals fared.

    Args:
        groups: looked at.
        proposed: groups with a valid proposal.
        refused: proposals that were not valid.
        repaired: valid proposals that were not the first of their group.
        verified: proposals with outcomes on both sides.
        gains: of them, those whose value rose.
        delta: measured change of value of each verified one.
        floor: what as many segments of no worth would show, at V = 1/2: mean gain and chance of one.
        refusals: the proposals that were not valid, in order.
    """

    groups: int
    proposed: int
    refused: int
    repaired: int
    verified: int
    gains: int
    delta: tuple[float, ...]
    floor: Floor | None
    refusals: tuple[Refusal, ...] = ()

    def text(self) -> str:
        """Return the figures in one sentence."""
        found = f"{self.groups} groups, {self.proposed} proposals, {self.verified} verified"
        if self.refused:
            found += f" ({self.refused} that could not be)"
        if not self.verified or self.floor is None:
            return found
        return (
            f"{found}, {self.gains} gains ({self.gains / self.verified:.0%}; by chance "
            f"{self.floor.accepted:.0%}), mean gain {np.maximum(self.delta, 0).mean():.3f} "
            f"(by chance {self.floor.bonus:.3f})"
        )


class ProverPlanner:
    """Lets a judge propose, asks for continuations before and after, and writes what `prover` reads.

    A state has the same continuations whether it lies before one segment or after another, so that
    changes of value of neighbouring segments add up.

    Args:
        batch: rollouts whose steps carry every action.
        judge: proposes; see `Judge`.
        k: continuations a side.
        policy: name of the policy that goes on.
        markov: see `places_of`.
        success_at: score from which on a rollout is a success.
        min_success: fewest successes of a group that is looked at.
        max_success: most; None = ``max(1, floor(3 G / 8))``.
        max_length: most steps of a segment.
        repairs: how often the judge is asked again after a proposal that cannot be.
    """

    def __init__(
        self,
        batch: Batch,
        judge: Judge,
        k: int = 8,
        *,
        policy: str = "actor",
        markov: bool = False,
        success_at: float = 1.0,
        min_success: int = 1,
        max_success: int | None = None,
        max_length: int = 4,
        repairs: int = 3,
    ) -> None:
        if k < 1 or repairs < 0 or max_length < 1:
            raise ParamError(f"k and max_length >= 1, repairs >= 0; got {k}, {max_length} and {repairs}")
        self._index = index = Index(batch)
        self._judge, self._k, self._policy, self._markov = judge, k, policy, markov
        self._length, self._repairs = max_length, repairs
        counted = index.counted_R()
        eligible = eligible_R(index, counted, success_at, min_success, max_success)
        self._failed: BoolArray = counted & (index.score_R < success_at)
        self._targets = targets(index, eligible, success_at).tolist()
        self._faulty = faulty_S(index)
        self._repaired = 0
        self._refusals: list[Refusal] = []
        self._found: dict[int, tuple[int, int]] = {}
        self._answers: list[Answer] | None = None

    def ask(self) -> Sequence[Request]:
        """Return the continuations of every proposal at once."""
        if self._answers is not None:
            return []
        self._repaired, self._refusals = 0, []
        self._found = {r: found for r in self._targets if (found := self._proposed(r)) is not None}
        return [
            Request(place, self._k, self._policy, purpose=f"prover {side}")
            for r, span in self._found.items()
            for side, place in zip(("pre", "post"), self._places(r, *span), strict=True)
        ]

    def tell(self, answers: Sequence[Answer]) -> None:
        """Take the answers."""
        self._answers = list(answers)

    def filled(self) -> Batch:
        """Return the rollouts with `proposal`, its outcomes with what was paid before.

        Its provenance says K, the policy, how many continuations ended in which way, the judge, and how many
        of its proposals could not be.
        """
        batch = self._index.batch
        found = np.full(len(batch), None)
        for (r, (start, end)), (pre, post) in zip(self._found.items(), self._pairs(), strict=False):
            sides = {"pre": listed(pre, self._paid(r, start)), "post": listed(post, self._paid(r, end + 1))}
            found[r] = {"start": start, "end": end, **sides}
        counts: Counter[str] = Counter()
        for answer in self._answers or ():
            counts.update(answer.counts())
        made = {"by": "ProverPlanner", "k": self._k, "policy": self._policy, "statuses": dict(counts)}
        made |= {"judge": version_of(self._judge), "refused": len(self._refusals)}
        return batch.with_column("proposal", found, made)

    def verdicts(self) -> Verdicts:
        """Return how the proposals fared, beside what chance would show."""
        delta = [
            post.mean - pre.mean + self._paid(r, end + 1) - self._paid(r, start)
            for (r, (start, end)), (pre, post) in zip(self._found.items(), self._pairs(), strict=False)
            if pre.mean is not None and post.mean is not None
        ]
        return Verdicts(
            len(self._targets),
            len(self._found),
            len(self._refusals),
            self._repaired,
            len(delta),
            sum(d > 0 for d in delta),
            tuple(delta),
            noise_floor(self._k, self._k) if delta else None,
            tuple(self._refusals),
        )

    def _pairs(self) -> list[tuple[Answer, Answer]]:
        told = self._answers or []
        return list(zip(told[::2], told[1::2], strict=True))

    def _paid(self, r: int, step: int) -> float:
        first = int(self._index.batch.step_start_R1[r])
        return float(self._index.paid_S[first : first + step].sum())

    def _places(self, r: int, start: int, end: int) -> list[Place]:
        first = int(self._index.batch.step_start_R1[r])
        return places_of(self._index.batch, [first + start, first + end + 1], markov=self._markov)

    def _proposed(self, r: int) -> tuple[int, int] | None:
        """Return the judge's valid proposal; None where it has none, or none that can be."""
        index, fault = self._index, ""
        group = str(index.batch.group_names[int(index.batch.group_R[r])])
        failed = np.flatnonzero(self._failed & (index.group_R == index.group_R[r])).tolist()
        names = tuple(index.batch.ids[i] for i in failed)
        if index.steps_R[r] < 2:
            return None
        for turn in range(self._repairs + 1):
            told = self._judge(Case(index, group, index.batch.ids[r], names, self._length, fault, turn))
            if told is None:
                return None
            start, end = told.get("start"), told.get("end")
            fault = str(told.get("fault") or "") or segment_fault(
                index, self._faulty, r, start, end, self._length
            )
            if not fault:
                self._repaired += turn > 0
                return int(told["start"]), int(told["end"])
            self._refusals.append(Refusal(group, index.batch.ids[r], turn, fault))
        return None
