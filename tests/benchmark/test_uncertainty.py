"""Intervals and comparisons over task seeds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import bootstrap

from accredit.agreement import interval
from accredit.benchmark.uncertainty import difference, holm
from tests.dear import dear


def test_bca_interval_is_near_scipys():
    values = np.random.default_rng(3).exponential(size=20)
    theirs = bootstrap((values,), np.mean, n_resamples=20_000, method="BCa", rng=1).confidence_interval
    ours = interval(values)
    assert ours.low == pytest.approx(theirs.low, abs=0.05)
    assert ours.high == pytest.approx(theirs.high, abs=0.08)


def test_interval_covers_the_mean_about_95_times_in_100():
    rng = np.random.default_rng(0)
    hits = [
        (found := interval(rng.exponential(size=25), seed)).low <= 1.0 <= found.high for seed in range(300)
    ]
    assert 0.88 <= np.mean(hits) <= 0.99


def test_no_winner_from_three_seeds():
    assert difference(np.array([5.0, 6, 7]), np.zeros(3)).p == 0.25


def test_equal_numbers_have_no_difference_whatever_their_rounding():
    found = difference(np.array([0.1 + 0.2] * 20), np.array([0.3] * 20))
    assert (found.value, found.p) == (0.0, 1.0)


@dear
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_equals_the_definition(p):
    order = sorted(range(len(p)), key=lambda i: (p[i], str(i)))
    expected, running = {}, 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (len(p) - rank) * p[i]))
        expected[str(i)] = running
    found = holm(p)
    assert {k: pytest.approx(v, abs=1e-9) for k, v in expected.items()} == found
