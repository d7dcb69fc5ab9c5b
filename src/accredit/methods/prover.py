"""ProVer: a proposed segment is credited with the change of value that continuations verify.

Source: arXiv 2609.36178, read at second hand (no code is known).  Differences: docs/methods/prover.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from accredit.data import Explanation, Finding, Parts, Term
from accredit.errors import DataError
from accredit.index import GroupStats, Index
from accredit.index.proposals import eligible_R, faulty_S, proposals_of, segment_fault
from accredit.index.samples import Floor, Sampled, noise_floor, outcomes_of
from accredit.methods._params import bounded, choice, flag
from accredit.methods._registry import get_method, method
from accredit.methods._reweight import BaseCredit, base_credit, base_terms
from accredit.typing import BoolArray, Floats

__all__ = ["prover"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `prover`."""

    lam: float = bounded(1.0, at_least=0, doc="weight of the verified change of value")
    success_at: float = bounded(1.0, doc="a rollout with this score or more is a success")
    min_success: int = bounded(1, at_least=1, doc="fewest successes of a group that is looked at")
    max_success: int | None = bounded(
        None, at_least=1, whole=True, doc="most successes of it; None = max(1, floor(3 G / 8))"
    )
    max_length: int = bounded(4, at_least=1, doc="most steps of a segment")
    margin: float = bounded(
        0.0, at_least=0, doc="credited only if the change exceeds so many standard errors"
    )
    shrink: bool = flag(default=False, doc="values as (successes + 1) / (K + 2)")
    signed: bool = flag(default=False, doc="a loss of value is charged, too")
    several: bool = flag(default=False, doc="several proposals a group; they must not overlap")
    unit: str = choice(
        "auto",
        "reward",
        "group",
        doc="the change in reward units, or over the group's deviation; auto: as the base does",
    )
    truncated: str = choice(
        "keep", "drop", doc="truncated rollouts: reward as recorded, or left out of a group's successes"
    )


@dataclass(frozen=True, slots=True)
class _Segment:
    """A verified proposal: steps first .. last of the batch, and what continuations say of it."""

    rollout: int
    first: int
    last: int
    delta: float
    se: float
    k: tuple[int, int]
    floor: Floor | None
    accepted: bool


@method(
    "prover",
    title="Group-relative outcome, plus the verified change of value on one proposed segment",
    family="forks",
    params=Params,
    needs={"reward", "proposal"},
    yields="token",
    tags={"reweights", "group"},
    cites="arXiv:2609.36178",
)
def prover(index: Index, params: Params, *, base: str | None = None) -> Parts:
    """Base credit, plus the change of value across a proposed segment.

    In a group with few successes, at least one, and a failure, steps l .. r of a success were
    proposed: ``Delta = mean R after - mean R before``, means over continuations from the states before
    step l and before step r + 1.  If ``Delta > 0`` every step l .. r gets ``A_i + lam Delta``; all else
    keeps A_i, the base's credit.  With ``lam=0`` or without proposals it is the base.

    Args:
        index: of the batch; `proposal` of a rollout holds start, end, pre and post, or a list of these.
        params: see `Params`.
        base: method under it; None = ``dr-grpo``, the outcome minus the group's mean.

    Returns:
        Credit by step, or by token where the base is.  ``parts``: ``base``, ``segment``.  Extras ``[S]``,
        0 off the segments: ``delta``, ``delta_se`` ``sqrt(v_pre / K_pre + v_post / K_post)``,
        ``k_pre``, ``k_post``.  Fallbacks count the proposals that were not used, by reason.

    Raises:
        DataError: for a proposal that is none; with ``shrink``, for outcomes outside [0, 1].

    Source: arXiv 2609.36178.

    Example:
        >>> import accredit as ac
        >>> found = {"start": 1, "end": 1, "pre": [1, 0, 1, 0], "post": [1, 1, 0, 1]}
        >>> records = [
        ...     {"id": f"r{i}", "group": "g", "reward": float(i == 0), "steps": [{}] * 3} for i in range(4)
        ... ]
        >>> records[0]["proposal"] = found
        >>> ac.assign(records, "prover").steps[:3].tolist()
        [0.75, 1.0, 0.75]
    """
    under = base_credit(index, base or "dr-grpo")
    court = _Court(index, params)
    bonus_S, unit_R = np.zeros(index.batch.n_steps), _unit(index, params, base, court.counted)
    for segment in court.segments:
        if segment.accepted:
            bonus_S[segment.first : segment.last + 1] += params.lam * segment.delta / unit_R[segment.rollout]
    bonus = np.repeat(bonus_S, index.tokens_S) if under.by_token else bonus_S
    plain = under.tokens if under.by_token else under.steps
    values = plain + bonus
    steps = under.steps + bonus_S

    told = under.parts.informed_S
    return Parts(
        values,
        parts={"base": plain, "segment": bonus},
        steps=steps if under.by_token else None,
        informed_S=court.verified_S if told is None else court.verified_S | told,
        fallbacks={**under.parts.fallbacks, **court.fallbacks},
        findings=(*under.parts.findings, *court.findings()),
        extras=court.extras(),
        explain=lambda s: _explained(index, params, under, court, bonus_S, unit_R, s),
        unused=under.parts.unused,
    )


class _Court:
    """Looks at every proposal of a batch.

    Args:
        index: of the batch.
        params: see `Params`.
    """

    def __init__(self, index: Index, params: Params) -> None:
        self.index, self.params = index, params
        self.counted: BoolArray = index.counted_R(params.truncated)
        self.left_out: Counter[str] = Counter()
        self.segments: list[_Segment] = list(self._heard())

    @cached_property
    def verified_S(self) -> BoolArray:
        """Steps of verified segments ``[S]``."""
        return self._spread(lambda segment: 1.0) > 0

    @property
    def fallbacks(self) -> Mapping[str, int]:
        """How many proposals were not used, by reason."""
        names = ("not_eligible", "no_success", "invalid", "surplus", "no_outcome")
        worse = sum(not segment.accepted for segment in self.segments)
        return {name: self.left_out[name] for name in names} | {"not_confirmed": worse}

    def extras(self) -> dict[str, Floats]:
        """Return what was verified, by step."""
        return {
            "delta": self._spread(lambda segment: segment.delta),
            "delta_se": self._spread(lambda segment: segment.se),
            "k_pre": self._spread(lambda segment: segment.k[0]),
            "k_post": self._spread(lambda segment: segment.k[1]),
        }

    def findings(self) -> tuple[Finding, ...]:
        """Return how many segments were confirmed, and what chance alone would have earned."""
        if not self.segments:
            return ()
        accepted = sum(segment.accepted for segment in self.segments)
        floors = [segment.floor for segment in self.segments if segment.floor is not None]
        message = f"{accepted} of {len(self.segments)} verified segments are credited"
        if floors:
            bonus, chance = np.mean(floors, axis=0)
            message += (
                f"; the same segments, worth nothing, would show {bonus:.3f} of a mean gain "
                f"and {chance:.0%} of them a gain"
            )
        hint = "More continuations a side, or margin=1, tell segments from chance"
        return (Finding("ACC520", "info", message, hint=hint, count=len(self.segments)),)

    def segment_at(self, s: int) -> _Segment | None:
        """Return the verified segment that a step lies in."""
        return next((one for one in self.segments if one.first <= s <= one.last), None)

    def _spread(self, number: Any) -> Floats:
        found = np.zeros(self.index.batch.n_steps)
        for segment in self.segments:
            found[segment.first : segment.last + 1] = number(segment)
        return found

    def _heard(self) -> Iterator[_Segment]:
        index, params = self.index, self.params
        eligible = eligible_R(index, self.counted, params.success_at, params.min_success, params.max_success)
        faulty, taken = faulty_S(index), np.zeros(index.batch.n_steps, bool)
        seen: set[int] = set()
        rows = np.flatnonzero(index.batch.column("proposal_R").mask(len(index.batch)))
        for r in rows[np.lexsort((rows, index.steps_R[rows]))].tolist():  # the shortest first
            for told in proposals_of(index, r):
                reason = self._refused(eligible, faulty, taken, seen, r, told)
                found = None if reason else self._verified(r, told)
                if found is None:
                    self.left_out[reason or "no_outcome"] += 1
                    continue
                taken[found.first : found.last + 1] = True
                seen.add(int(index.group_R[r]))
                yield found

    def _refused(
        self,
        eligible: BoolArray,
        faulty: BoolArray,
        taken: BoolArray,
        seen: set[int],
        r: int,
        told: Mapping[str, Any],
    ) -> str:
        """Return why a proposal is not looked at; "" if it is."""
        index, params = self.index, self.params
        if not eligible[r]:
            return "not_eligible"
        if index.score_R[r] < params.success_at:
            return "no_success"
        start, end = told.get("start"), told.get("end")
        if segment_fault(index, faulty, r, start, end, params.max_length):
            return "invalid"
        if int(index.group_R[r]) in seen and not params.several:
            return "surplus"
        first = int(index.batch.step_start_R1[r])
        assert isinstance(start, int | np.integer)  # segment_fault has looked
        assert isinstance(end, int | np.integer)
        return "invalid" if taken[first + start : first + end + 1].any() else ""

    def _verified(self, r: int, told: Mapping[str, Any]) -> _Segment | None:
        """Return what continuations say; None where none came back on a side."""
        where = f"rollout {self.index.batch.ids[r]!r} proposal"
        pre, post = (outcomes_of(told.get(side), 0.0, where) for side in ("pre", "post"))
        if not pre or not post:
            return None
        before, after = Sampled.of(pre), Sampled.of(post)
        delta, se = after.mean - before.mean, float(np.sqrt(before.error + after.error))
        both = np.array([*pre, *post])
        if self.params.shrink:
            if (both < 0).any() or (both > 1).any():
                raise DataError("shrink=True is for outcomes in [0, 1]", where=where, hint="Leave it off")
            delta = (sum(post) + 1) / (len(post) + 2) - (sum(pre) + 1) / (len(pre) + 2)
        floor = None
        if np.isin(both, (0.0, 1.0)).all():
            floor = noise_floor(len(pre), len(post), float((both.sum() + 1) / (both.size + 2)))
        size = abs(delta) if self.params.signed else delta
        first = int(self.index.batch.step_start_R1[r])
        return _Segment(
            r,
            first + int(told["start"]),
            first + int(told["end"]),
            delta,
            se,
            (len(pre), len(post)),
            floor,
            bool(size > self.params.margin * se),
        )


def _unit(index: Index, params: Params, base: str | None, counted: BoolArray) -> Floats:
    """Return what divides the change of value, as it divides the base's credit ``[R]``."""
    chosen, implied = get_method(base or "dr-grpo")
    inner = chosen.make_params(implied)
    divides = getattr(inner, "scale", "") == "group" or getattr(inner, "mode", "") == "mean_std_norm"
    if params.unit == "reward" or (params.unit == "auto" and not divides):
        return np.ones(len(index.batch))
    std = GroupStats(index.score_R, index.group_R, index.n_groups, counted).std()
    eps = float(getattr(inner, "eps", 0.0)) if divides else 0.0
    return np.where(std > 0, std + eps, 1.0)[index.group_R]


def _explained(
    index: Index,
    params: Params,
    under: BaseCredit,
    court: _Court,
    bonus_S: Floats,
    unit_R: Floats,
    s: int,
) -> Explanation:
    r = int(index.rollout_S[s])
    segment = court.segment_at(s)
    value = float(under.steps[s] + bonus_S[s])
    terms = base_terms(under, s, float(under.steps[s]))
    if segment is not None:
        inputs = {"delta": segment.delta, "se": segment.se, "unit": float(unit_R[r])}
        text = (
            f"{params.lam:g} x change of value {segment.delta:.6g} (standard error {segment.se:.3g}, "
            f"{segment.k[0]} continuations before, {segment.k[1]} after) / {unit_R[r]:.6g}"
        )
        text = text if segment.accepted else f"change of value {segment.delta:.6g} is not credited"
        terms = (*terms, Term("segment", float(bonus_S[s]), text, inputs))
    return Explanation("prover", *index.place_of(s), value, terms)
