"""Every registered method passes the battery, or waives a claim that it really breaks."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

import accredit as ac
from accredit.battery import Check, CheckFailed, Subject, checks_for
from accredit.battery_samples import Record, sample_records
from accredit.data import Batch
from tests.methods.waivers import CASES, Case

_NAMED = {case.name for case in CASES}
# Claims about parameters and needs are the same whatever the rollouts are.
SEEDS = {"a parameter out of bounds is refused by name": (0,), "an unmet need is named": (0,)}
ALL = (*CASES, *(Case(card.id) for card in ac.catalog() if card.id not in _NAMED))


def _pairs() -> list[tuple[Case, str]]:
    return [(case, claim) for case in ALL for claim, _ in checks_for(subject_of(case))]


@functools.cache
def _made(decorate: Callable[[list[Record]], list[Record]], sample: str, seed: int) -> list[Record]:
    return decorate(sample_records(sample, seed))


_BATCHES: dict[int, Batch] = {}  # by the id of what `_made` keeps


class Remembering(Subject):
    """Makes its rollouts once for all claims: that takes ten times as long as a method."""

    __slots__ = ()

    def records(self, sample: str = "mixed") -> list[Record]:
        made = _made(self.decorate, sample, self.seed)
        if id(made) not in _BATCHES:
            _BATCHES[id(made)] = Subject.batch(self, made)
        return made

    def batch(self, records: list[Record]) -> Batch:
        return _BATCHES[id(records)] if id(records) in _BATCHES else Subject.batch(self, records)


def subject_of(case: Case, seed: int = 0) -> Subject:
    return Remembering(case.name, case.params, seed, case.decorate)


@pytest.mark.parametrize(("case", "claim"), _pairs(), ids=lambda v: getattr(v, "name", v))
def test_method_keeps_its_claim_or_breaks_a_waived_one(case: Case, claim: str) -> None:
    check = dict(checks_for(subject_of(case)))[claim]
    if claim in case.waive:
        assert any(_breaks(check, subject_of(case, seed)) for seed in range(10)), case.waive[claim]
    else:
        for seed in SEEDS.get(claim, (0, 1, 2)):
            check(subject_of(case, seed))


def _breaks(check: Check, subject: Subject) -> bool:
    try:
        check(subject)
    except CheckFailed:
        return True
    return False


def test_claims_with_one_seed_are_claims_of_the_battery() -> None:
    assert set(SEEDS) <= {claim for claim, _ in checks_for(subject_of(ALL[0]))}


def test_waivers_name_claims_that_apply() -> None:
    for case in ALL:
        assert set(case.waive) <= {claim for claim, _ in checks_for(subject_of(case))}, case.name


def test_check_method_returns_the_claims_it_tested() -> None:
    passed = ac.check_method("grpo")
    assert {"order of rollouts is irrelevant", "explain adds up to the credit"} <= set(passed)


def test_check_method_refuses_an_unknown_waiver() -> None:
    with pytest.raises(ac.AccreditError, match="no check 'nonsense'"):
        ac.check_method("grpo", waive={"nonsense": "why"})
