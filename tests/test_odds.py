"""The odds of a group without signal: formulas against enumeration, chance and other fits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import beta as beta_law
from scipy.stats import betabinom

from accredit.errors import ParamError
from accredit.odds import fit_rates, posterior_rate, share_span, subgroup_ties, tie_probability

UNIT = st.floats(0, 1, allow_subnormal=False)


@given(UNIT, st.integers(1, 200))
def test_at_one_rate_the_chance_is_that_of_all_or_none(p, n):
    assert p**n + (1 - p) ** n == pytest.approx(float(tie_probability(p, n)), rel=1e-9)


@given(st.floats(1, 20), st.floats(1, 20), st.integers(2, 24))
@settings(max_examples=40)
def test_over_a_beta_law_it_is_the_integral(a, b, n):
    def passed(p):
        return p**n

    def failed(p):
        return (1 - p) ** n

    expected = sum(beta_law.expect(f, (a, b)) for f in (passed, failed))
    found = float(tie_probability(a / (a + b), n, 1 / (a + b + 1)))
    assert expected == pytest.approx(found, rel=1e-5)
    assert found == pytest.approx(float(betabinom.pmf(0, n, a, b) + betabinom.pmf(n, n, a, b)), rel=1e-9)


@given(UNIT, UNIT, st.integers(1, 60))
def test_it_falls_with_the_size_and_rises_with_the_spread(m, rho, n):
    now = float(tie_probability(m, n, rho))
    assert float(tie_probability(m, n + 1, rho)) <= now + 1e-12
    assert now <= float(tie_probability(m, n, min(1.0, rho + 0.1))) + 1e-12
    assert 1.0 == pytest.approx(float(tie_probability(m, n, 1.0)), rel=1e-12)


def test_it_is_what_simulated_groups_do():
    rng = np.random.default_rng(3)
    for a, b, n in [(0.5, 1.0, 8), (4.0, 4.0, 4), (1.0, 9.0, 16)]:
        passed = rng.binomial(n, rng.beta(a, b, 40_000))
        tied = int(((passed == 0) | (passed == n)).sum())
        low, high = share_span(tied / 40_000, 40_000)[1:]
        pad = (high - low) / 2  # twice the width of a 95 % interval: about four deviations
        assert low - pad < float(tie_probability(a / (a + b), n, 1 / (a + b + 1))) < high + pad


@pytest.mark.parametrize("bad", [{"mean": -0.1}, {"mean": 1.1}, {"spread": 2.0}, {"size": 0}])
def test_numbers_out_of_range_are_refused(bad):
    with pytest.raises(ParamError):
        tie_probability(**{"mean": 0.5, "size": 4, "spread": 0.0, **bad})


# -- the fit --------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.floats(0.3, 4), st.floats(0.3, 4))
@settings(max_examples=25)
def test_the_fit_is_the_greatest_likelihood_of_another_optimiser(seed, a, b):
    rng = np.random.default_rng(seed)
    size = rng.integers(2, 17, 40)
    passed = rng.binomial(size, rng.beta(a, b, 40))
    fit = fit_rates(passed, size)
    if fit.beta is None:
        return

    def loss(v):
        return -betabinom.logpmf(passed, size, *np.exp(np.clip(v, -12, 12))).sum()

    other = minimize(loss, np.log(fit.beta) + 0.3, method="Nelder-Mead", options={"maxiter": 4000})
    assert loss(np.log(fit.beta)) <= other.fun + 1e-6


def test_counts_that_fit_no_beta_law_say_so():
    size = np.full(12, 8)
    assert "one_rate" == fit_rates(np.full(12, 4), size).kind
    assert "split" == fit_rates(np.tile([0, 8], 6), size).kind
    assert "one_outcome" == fit_rates(np.zeros(12, int), size).kind
    assert "one_outcome" == fit_rates(size, size).kind
    assert fit_rates(np.array([0, 1]), np.array([1, 1])) is None


@pytest.mark.parametrize("passed", [np.zeros(12, int), np.full(12, 8), np.tile([0, 8], 6), np.full(12, 4)])
def test_where_no_law_fits_the_interval_still_says_how_little_is_known(passed):
    tie = fit_rates(passed, np.full(12, 8)).tie(8)
    assert tie.low <= tie.value <= tie.high
    assert tie.high - tie.low > 0.005
    more = fit_rates(np.tile(passed, 20), np.full(240, 8)).tie(8)
    assert more.high - more.low < tie.high - tie.low


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """300 simulated files of 25 groups of 8; 95 % intervals, so 270 hits are four deviations too few."""
    rng = np.random.default_rng(11)
    hits = {4: 0, 16: 0}
    for _ in range(300):
        a, b = rng.uniform(0.4, 3, 2)
        fit = fit_rates(rng.binomial(8, rng.beta(a, b, 25)), np.full(25, 8))
        for n in hits:
            truth = float(tie_probability(a / (a + b), n, 1 / (a + b + 1)))
            hits[n] += fit.tie(n).low <= truth <= fit.tie(n).high
    assert all(270 <= n for n in hits.values()), hits


# -- groups drawn down, shares, rates of tasks ---------------------------------------------------------


def _drawn_slowly(groups, n):
    """Every way to draw n of a group's rollouts, counted one by one."""
    chances = []
    for rewards in groups:
        if len(rewards) >= n:
            drawn = [len(set(some)) == 1 for some in itertools.combinations(rewards, n)]
            chances.append(sum(drawn) / len(drawn))
    return sum(chances) / len(chances) if chances else None


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=7), min_size=1, max_size=5), st.integers(1, 7)
)
def test_groups_drawn_down_are_all_draws_counted(groups, n):
    found = subgroup_ties([np.unique(g, return_counts=True)[1] for g in groups], n)
    expected = _drawn_slowly(groups, n)
    if expected is None:
        assert found is None
    else:
        assert expected == pytest.approx(found.value, rel=1e-9, abs=1e-12)
        assert 0 <= found.low <= found.value <= found.high <= 1


@given(st.integers(1, 60), st.data())
def test_the_interval_of_a_share_is_exact(n, data):
    k = data.draw(st.integers(0, n))
    span = share_span(k / n, n)
    if k:
        tail = sum(math.comb(n, i) * span.low**i * (1 - span.low) ** (n - i) for i in range(k, n + 1))
        assert 0.025 == pytest.approx(tail, rel=1e-6)
    if k < n:
        tail = sum(math.comb(n, i) * span.high**i * (1 - span.high) ** (n - i) for i in range(k + 1))
        assert 0.025 == pytest.approx(tail, rel=1e-6)


def test_the_rate_of_a_task_is_its_posterior():
    a, b, k, n = 1.5, 2.5, 3, 8
    weight = quad(lambda p: beta_law.pdf(p, a, b) * p**k * (1 - p) ** (n - k), 0, 1)[0]
    mean = quad(lambda p: p * beta_law.pdf(p, a, b) * p**k * (1 - p) ** (n - k), 0, 1)[0] / weight
    found = posterior_rate(k, n, (a, b))
    assert mean == pytest.approx(found.value, rel=1e-6)
    assert found.low < found.value < found.high
    assert posterior_rate(0, 8, None).low >= 0
