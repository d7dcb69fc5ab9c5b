"""Every registered method passes the battery, or waives a claim that it really breaks."""

from __future__ import annotations

import pytest

import accredit as ac
from accredit.battery import Check, CheckFailed, Subject, checks_for
from tests.methods.waivers import CASES, Case

_NAMED = {case.name for case in CASES}
ALL = (*CASES, *(Case(card.id) for card in ac.catalog() if card.id not in _NAMED))


def _pairs() -> list[tuple[Case, str]]:
    return [(case, claim) for case in ALL for claim, _ in checks_for(_subject(case))]


def _subject(case: Case, seed: int = 0) -> Subject:
    return Subject(case.name, case.params, seed, case.decorate)


@pytest.mark.parametrize(("case", "claim"), _pairs(), ids=lambda v: getattr(v, "name", v))
def test_method_keeps_its_claim_or_breaks_a_waived_one(case: Case, claim: str) -> None:
    check = dict(checks_for(_subject(case)))[claim]
    if claim in case.waive:
        assert any(_breaks(check, _subject(case, seed)) for seed in range(10)), case.waive[claim]
    else:
        for seed in (0, 1, 2):
            check(_subject(case, seed))


def _breaks(check: Check, subject: Subject) -> bool:
    try:
        check(subject)
    except CheckFailed:
        return True
    return False


def test_waivers_name_claims_that_apply() -> None:
    for case in ALL:
        assert set(case.waive) <= {claim for claim, _ in checks_for(_subject(case))}, case.name


def test_check_method_returns_the_claims_it_tested() -> None:
    passed = ac.check_method("grpo")
    assert {"order of rollouts is irrelevant", "explain adds up to the credit"} <= set(passed)


def test_check_method_refuses_an_unknown_waiver() -> None:
    with pytest.raises(ac.AccreditError, match="no check 'nonsense'"):
        ac.check_method("grpo", waive={"nonsense": "why"})
