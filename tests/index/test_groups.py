"""Dense codes and group statistics against plain loops."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from accredit.index import GroupStats, first_seen

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
