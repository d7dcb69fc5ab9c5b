"""Outcomes of continuations: how records tell them, their spread, and what chance alone would earn."""

from __future__ import annotations

from math import comb
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.errors import DataError
from accredit.index.samples import Sampled, estimates_of, noise_floor, outcomes_of, spread_of_one


@pytest.mark.parametrize(
    ("k", "bonus", "accepted"), [(4, 0.137, 0.363), (8, 0.098, 0.402), (16, 0.070, 0.430), (32, 0.050, 0.450)]
)
def test_a_segment_of_no_worth_earns_what_the_card_says(k: int, bonus: float, accepted: float) -> None:
    assert (bonus, accepted) == tuple(round(x, 3) for x in noise_floor(k, k))


@given(st.integers(1, 6), st.integers(1, 6), st.floats(0, 1))
def test_the_floor_is_that_of_a_plain_loop(a: int, b: int, p: float) -> None:
    """Seen failing with a gain of 0 counted as accepted."""
    bonus = accepted = 0.0
    for x in range(b + 1):
        for y in range(a + 1):
            chance = comb(b, x) * p**x * (1 - p) ** (b - x) * comb(a, y) * p**y * (1 - p) ** (a - y)
            if x * a > y * b:
                bonus += chance * (x / b - y / a)
                accepted += chance
    assert (bonus, accepted) == pytest.approx(tuple(noise_floor(a, b, p)))


def test_outcomes_come_as_numbers_or_objects_and_only_cut_ones_may_lack_a_reward() -> None:
    told = [1, 0.5, {"reward": 0}, {"reward": None, "truncated": True}, {"reward": 2.0, "truncated": True}]
    assert (1.0, 0.5, 0.0, -0.25, 2.0) == outcomes_of(told, -0.25)
    assert () == outcomes_of(None) == outcomes_of([])


@pytest.mark.parametrize(
    "odd",
    [
        "1",
        [True],
        [None],
        [{"reward": None}],
        [{"r": 1}],
        [float("nan")],
        3,
        [[1]],
        [10**400],
        [0.5, 10**400],
    ],
)
def test_what_is_no_outcome_is_refused_with_its_place(odd: Any) -> None:
    """A whole number beyond the floats ended in an OverflowError of Python's."""
    with pytest.raises(DataError, match=r"ACC110.*rollout 'a'"):
        outcomes_of(odd, where="rollout 'a' step 0")


def test_no_spread_is_not_no_error() -> None:
    assert spread_of_one([1.0, 1.0]) == pytest.approx(0.75 * 0.25)
    assert spread_of_one([2.0]) == 0.25
    assert spread_of_one([0.5, 1.5]) == pytest.approx(0.5)
    assert Sampled.of([1.0, 0.0, 0.0, 1.0]).error == pytest.approx(0.25 / 4)


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]) | st.floats(-3, 3), max_size=4), max_size=5))
def test_many_lists_are_estimated_as_a_plain_loop_does(lists: list[list[float]]) -> None:
    """Seen failing with the spread of a list of one taken as 0."""
    found = estimates_of(lists)
    for i, own in enumerate(lists):
        one = (len(own), sum(own) / len(own), spread_of_one(own) / len(own)) if own else (0, 0.0, 0.0)
        assert one == pytest.approx((found.k[i], found.mean[i], found.error[i]), rel=1e-9, abs=1e-12)


def test_equal_outcomes_have_exactly_their_mean() -> None:
    assert estimates_of([[0.1] * 3, [0.7] * 7]).mean.tolist() == [0.1, 0.7]
