"""Rank agreement and its intervals against loops, scipy and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import kendalltau, spearmanr

from accredit.agreement import Estimate, concordance, draw_weights, estimate, kendall, spearmans
from tests.dear import dear


@st.composite
def tied_pairs(draw):
    """Two arrays with many ties, the group of each entry (some groups may be empty), resamples."""
    n = draw(st.integers(2, 25))
    values = hnp.arrays(float, n, elements=st.integers(0, 4).map(float))
    group_S = draw(hnp.arrays(np.int64, n, elements=st.integers(0, 3)))
    return draw(values), draw(values), group_S


@dear
@given(tied_pairs())
def test_concordance_equals_the_loop_over_pairs(drawn):
    a, b, _ = drawn
    expected = [
        [
            sum(np.sign(a[i] - a[j]) * np.sign(b[i] - b[j]) for j in range(a.size)),
            sum(a[i] != a[j] for j in range(a.size)),
            sum(b[i] != b[j] for j in range(a.size)),
        ]
        for i in range(a.size)
    ]
    assert np.array_equal(np.array(expected, float).T, np.stack(concordance(a, b)))


@dear
@given(tied_pairs())
def test_both_correlations_equal_scipy_with_ties(drawn):
    a, b, group_S = drawn
    weights = draw_weights(4, 0, 0)
    rho, tau = spearmans([a, b], group_S, weights)[0], kendall(a, b, group_S, weights)
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        assert (rho, tau) == (None, None)
        return
    assert rho.value == pytest.approx(spearmanr(a, b)[0], abs=1e-9)
    assert tau.value == pytest.approx(kendalltau(a, b)[0], abs=1e-9)


def _repeated(group_S, row):
    """The entries of a resample, each as often as its group was drawn."""
    return np.concatenate([np.repeat(np.flatnonzero(group_S == g), int(n)) for g, n in enumerate(row)])


@dear
@given(tied_pairs(), st.integers(0, 99))
def test_spearman_of_a_resample_is_that_of_the_repeated_rows(drawn, seed):
    a, b, group_S = drawn
    weights = draw_weights(4, 5, seed)
    found = spearmans([a, b], group_S, weights)[0]
    rhos = []
    for row in weights:
        at = _repeated(group_S, row)
        if at.size and np.ptp(a[at]) and np.ptp(b[at]):
            rhos.append(spearmanr(a[at], b[at])[0])
    if found is None or found.low is None:
        assert len(rhos) * 2 <= 5 or found is None
        return
    expected = np.percentile(rhos, [2.5, 97.5])
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=1e-9)


def test_kendall_interval_is_close_to_the_full_bootstrap():
    rng = np.random.default_rng(5)
    group_S = np.repeat(np.arange(30), 8)
    a = rng.normal(size=30)[group_S] + rng.normal(size=240)
    b = a + rng.normal(size=240)
    weights = draw_weights(30, 400, 0)
    full = [kendalltau(a[at], b[at])[0] for at in (_repeated(group_S, row) for row in weights)]
    found = kendall(a, b, group_S, weights)
    assert np.percentile(full, [2.5, 97.5]) == pytest.approx([found.low, found.high], abs=0.02)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_monotone_credits_agree_fully_in_every_resample(sign):
    a = np.arange(12.0)
    group_S = np.repeat(np.arange(4), 3)
    weights = draw_weights(4, 200, 1)
    expected = pytest.approx([sign, sign, sign])
    for found in (
        spearmans([a, sign * a**3], group_S, weights)[0],
        kendall(a, sign * a**3, group_S, weights),
    ):
        assert expected == [found.value, found.low, found.high]


def test_the_interval_covers_the_known_correlation():
    """Bivariate normal steps with a group effect: rho of Spearman is 6/pi asin(r/2)."""
    r, inside = 0.6, 0
    truth = 6 / np.pi * np.arcsin(r / 2)
    group_S = np.repeat(np.arange(40), 5)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        shared, own = rng.normal(size=(2, 40))[:, group_S], rng.normal(size=(2, 200))
        x, y = np.sqrt(0.5) * shared + np.sqrt(0.5) * own
        found = spearmans([x, r * x + np.sqrt(1 - r * r) * y], group_S, draw_weights(40, 300, seed))[0]
        inside += found.low <= truth <= found.high
    assert 52 <= inside  # 95 % of 60 is 57; 52 or fewer has probability 0.02


def test_copies_inside_a_group_do_not_narrow_the_interval():
    """Steps of a rollout repeat each other: they must not count as new evidence."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 20))
    once = spearmans([a, b], np.arange(20), draw_weights(20, 500, 0))[0]
    many = spearmans([a.repeat(10), b.repeat(10)], np.arange(20).repeat(10), draw_weights(20, 500, 0))[0]
    assert (many.low, many.high) == pytest.approx((once.low, once.high), abs=0.02)


def test_one_group_has_no_interval():
    a = np.arange(4.0)
    assert spearmans([a, a], np.zeros(4, int), draw_weights(1, 100, 0)) == [Estimate(pytest.approx(1.0))]


def test_draws_that_are_undefined_are_dropped_and_mostly_undefined_means_no_interval():
    nan = np.nan
    assert estimate(0.5, np.array([0.4, 0.6, nan])) == Estimate(
        0.5, pytest.approx(0.405), pytest.approx(0.595)
    )
    assert estimate(0.5, np.array([0.4, nan, nan])) == Estimate(0.5)
    assert estimate(nan, np.array([0.4])) is None


def test_equal_seeds_give_equal_draws_that_sum_to_the_groups():
    weights = draw_weights(7, 50, 3)
    assert np.array_equal(weights, draw_weights(7, 50, 3))
    assert not np.array_equal(weights, draw_weights(7, 50, 4))
    assert set(weights.sum(axis=1)) == {7.0}
