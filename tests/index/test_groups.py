"""Dense codes and group statistics against plain loops."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.engine import missing_needs
from accredit.index import GroupStats, first_seen
from tests.dear import dear

codes = st.lists(st.integers(-9, 9), max_size=30)
far = st.lists(st.sampled_from([-(1 << 40), -1, 0, 7, 1 << 50]), max_size=30)


near = st.lists(st.integers(0, 3), max_size=8)  # often numbered already, or nearly


@given(st.one_of(codes, far, near))
def test_codes_are_numbered_by_first_appearance(values):
    order = list(dict.fromkeys(values))
    assert [order.index(v) for v in values] == first_seen(np.array(values, np.int64)).tolist()


@st.composite
def grouped(draw):
    size = draw(st.integers(1, 20))
    numbers = st.lists(st.sampled_from([-1.5, 0.0, 0.1, 0.7, 1.0, 3.25]), min_size=size, max_size=size)
    ids = st.lists(st.integers(0, 3), min_size=size, max_size=size)
    counted = st.none() | st.lists(st.booleans(), min_size=size, max_size=size)
    return draw(numbers), draw(ids), draw(counted)


@dear
@given(grouped())
def test_statistics_are_those_of_the_counted_values_of_each_group(drawn):
    values, ids, counted = drawn
    stats = GroupStats(
        np.array(values), np.array(ids), 4, None if counted is None else np.array(counted, bool)
    )
    use = [True] * len(values) if counted is None else counted
    for g in range(4):
        members = [v for v, i, u in zip(values, ids, use, strict=True) if i == g and u]
        tied = len(set(members)) < 2
        mean = sum(members) / len(members) if members else 0.0
        spread = 0.0 if tied else float(np.std(members, ddof=1))
        np.testing.assert_allclose(stats.size[g], len(members))
        np.testing.assert_allclose(stats.mean[g], mean, atol=1e-12)
        np.testing.assert_allclose(stats.std()[g], spread, rtol=1e-9, atol=1e-12)
        for k in (k for k, i in enumerate(ids) if i == g):
            expected = values[k] - mean if use[k] and not tied else 0.0
            np.testing.assert_allclose(stats.centred[k], expected, atol=1e-12)
            others = [values[j] for j, i in enumerate(ids) if i == g and use[j] and j != k]
            baseline = sum(others) / len(others) if others else 0.0
            np.testing.assert_allclose(stats.leave_one_out[k], baseline, atol=1e-12)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1.0, 1e100, 1e155, 1e200, 1e307, 2.0**1000])
def test_huge_values_are_standardised_like_small_ones(size):
    """The squares of values beyond 1e154 overflowed: the deviation was infinite and all credit 0."""
    small = np.array([1.0, 0.0, 0.5, 0.0, 1.0, -1.0])
    ids = np.array([0, 0, 0, 1, 1, 1])
    expected = GroupStats(small, ids, 2).standardised(0.0)
    np.testing.assert_allclose(GroupStats(size * small, ids, 2).standardised(0.0), expected, rtol=1e-12)
    mixed = GroupStats(np.where(ids, size, 1.0) * small, ids, 2)
    np.testing.assert_allclose(mixed.standardised(0.0), expected, rtol=1e-12)


def huge() -> list[dict[str, Any]]:
    """One step each, with rewards of 1e155 and more, and token signals."""
    step = {"state": "s", "agent": "a", "tokens": [1, 2], "value": 0.5, "entropies": [0.5, 1.5]}
    step |= {"logprobs": [-1.0, -2.0], "logprobs_hindsight": [-1.0, -1.0]}
    return [
        {
            "id": f"r{i}",
            "group": "g",
            "reward": reward,
            "reward_baseline": 0,
            "steps": [step | {"action": f"go {i}"}],
        }
        for i, reward in enumerate([1e155, -1e155, 1e200, 1e300])
    ]


FED = [card.id for card in ac.catalog() if not missing_needs(ac.Batch.from_records(huge()), card)]
OTHER_SIGNALS = {"prm", "ibpo"}  # needs that their cards cannot name


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", sorted(set(FED) - OTHER_SIGNALS))
def test_huge_rewards_are_never_silently_worth_nothing(method):
    """Rewards of 1e155 and more: exactly zero credit for all, and warnings of numpy."""
    records = huge()
    ac.check(records)
    if method in ("reinforce-pp", "treepo"):
        with pytest.raises(ac.AccreditError, match="too large to whiten"):
            ac.assign(records, method)
    else:
        assert ac.assign(records, method).steps.any()
