"""Scans over ragged rows equal a plain loop, whatever the rows and the factors."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.index import discounted_sum, segments


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
