"""Scans over ragged rows equal a plain loop, whatever the rows and the factors."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from accredit.index import discounted_sum, row_any, row_sum, segment_extremes, segment_sum, segments


def loop(values, start, factors):
    """The recurrence as it is written down."""
    found = [0.0] * len(values)
    for a, b in pairwise(start):
        after = 0.0
        for k in range(b - a):
            after = values[b - 1 - k] + factors[b - 1 - k] * after
            found[b - 1 - k] = after
    return found


@st.composite
def rows(draw):
    counts = draw(st.lists(st.integers(0, 5), max_size=8))
    start = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)
    numbers = st.lists(st.floats(-10, 10), min_size=int(start[-1]), max_size=int(start[-1]))
    factors = st.lists(st.floats(0, 1), min_size=int(start[-1]), max_size=int(start[-1]))
    return start, np.array(draw(numbers)), np.array(draw(factors))


@given(rows(), st.integers(1, 4))
def test_scan_equals_the_loop_in_pieces_of_any_size(drawn, piece):
    start, values, factors = drawn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "_PIECE", piece)
        got = discounted_sum(values, start, factors)
        same = discounted_sum(values, start, 0.9)
    np.testing.assert_allclose(got, loop(values, start, factors), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(same, loop(values, start, [0.9] * values.size), rtol=1e-9, atol=1e-12)


def test_scan_is_exact_over_long_rows():
    rng = np.random.default_rng(0)
    start = np.array([0, 70_000, 70_000, 70_001, 200_000])
    values = rng.normal(size=200_000)
    got = discounted_sum(values, start, 1.0)
    np.testing.assert_allclose(got, loop(values, start, np.ones(200_000)), rtol=1e-9)


def test_nothing_flows_from_a_row_into_the_row_before_it():
    got = discounted_sum(np.array([1.0, 1e300, 1.0]), np.array([0, 1, 2, 3]), 1.0)
    assert [1.0, 1e300, 1.0] == got.tolist()


def test_scan_of_nothing_is_nothing():
    assert [] == discounted_sum(np.zeros(0), np.array([0, 0]), 0.5).tolist()
    assert [] == discounted_sum(np.zeros(0), np.array([0]), np.zeros(0)).tolist()


@given(rows())
@example((np.array([0, 0, 1, 1, 3, 3]), np.array([1.0, 1.0, -1.0]), None))
def test_a_row_has_any_where_a_plain_loop_finds_one(drawn):
    start, values, _ = drawn
    flags = values > 0
    assert [any(flags[a:b]) for a, b in pairwise(start)] == row_any(flags, start).tolist()
    wanted = [sum(values[a:b].tolist()) for a, b in pairwise(start)]
    np.testing.assert_allclose(row_sum(values, start), wanted, rtol=1e-12, atol=1e-12)
    assert [flags[a:b].sum() for a, b in pairwise(start)] == row_sum(flags, start).tolist()


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.floats(-10, 10, width=32)), max_size=8),
    st.sampled_from([np.float64, np.float32, bool]),
    st.sampled_from([1, 2, 1 << 14]),
)
def test_sums_and_extremes_by_id_equal_a_plain_loop_whether_runs_are_taken_at_once(runs, kind, many):
    """Ids may come back after others; some have no value."""
    ids = np.array([i for i, n, _ in runs for _ in range(n)], np.int64)
    values = np.array([x + k for _, n, x in runs for k in range(n)], kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "_MANY", many)
        patch.setattr(segments, "_RUN", 2)
        total, (low, high) = segment_sum(values, ids, 5), segment_extremes(values, ids, 5)
    for i in range(5):
        mine = values[ids == i].astype(float).tolist()
        assert sum(mine) == pytest.approx(total[i], rel=1e-12, abs=1e-12)
        assert (min(mine, default=np.inf), max(mine, default=-np.inf)) == (low[i], high[i])
    assert np.float64 == total.dtype


def test_a_sum_that_overflows_is_infinite_without_a_word():
    assert [np.inf] == row_sum(np.full(2, 1e308), np.array([0, 2])).tolist()
    assert [np.inf] == segment_sum(np.full(1 << 14, 1e308), np.zeros(1 << 14, np.int64), 1).tolist()
