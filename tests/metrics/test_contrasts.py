"""Diagnostics of alternatives: spread, fidelity, what outcomes tell, and the law of a contrast."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from accredit.metrics import context_variances, contrast_law, fidelity, outcome_information

Q = np.array([0.2, 0.5, 0.8, 0.6])


def test_worked_law_of_the_card() -> None:
    even = contrast_law(Q, Q * (1 - Q), np.full(4, 4.0))
    np.testing.assert_allclose(even.mean, [-0.4333, -0.0333, 0.3667, 0.1], atol=1e-4)
    np.testing.assert_allclose(even.variance, [0.05806, 0.07806, 0.05806, 0.07583], atol=1e-5)
    c = np.array([1.0, 2.0, 4.0, 1.0])
    plain, weighted = (contrast_law(Q, Q * (1 - Q), c, baseline=b) for b in ("loo", "weighted"))
    np.testing.assert_allclose(plain.variance, [0.2050, 0.1739, 0.0983, 0.2761], atol=1e-4)
    np.testing.assert_allclose(weighted.mean, [-0.4857, -0.1667, 0.35, -0.0286], atol=1e-4)
    np.testing.assert_allclose(weighted.variance, [0.1882, 0.1539, 0.0963, 0.2665], atol=1e-4)


@pytest.mark.parametrize("baseline", ["loo", "weighted"])
def test_the_law_is_what_simulation_gives(baseline: str) -> None:
    """Mean within 4.5 standard errors, variance within 5 %, of 60,000 draws."""
    rng, c = np.random.default_rng(0), np.array([1, 2, 4, 1])
    drawn = rng.binomial(c, Q, (60_000, 4)) / c
    weight = np.ones(4) if baseline == "loo" else c.astype(float)
    others = weight.sum() - weight
    credit = drawn - ((drawn @ weight)[:, None] - drawn * weight) / others
    law = contrast_law(Q, Q * (1 - Q), c.astype(float), baseline=baseline)
    np.testing.assert_array_less(abs(credit.mean(0) - law.mean), 4.5 * np.sqrt(law.variance / 60_000))
    np.testing.assert_allclose(credit.var(0), law.variance, rtol=0.05)


def test_at_a_fixed_budget_two_alternatives_have_the_least_noise() -> None:
    noise = [contrast_law(np.zeros(n), np.ones(n), np.full(n, 24 / n)).variance[0] for n in (2, 3, 4, 6, 8)]
    np.testing.assert_allclose(noise, [n * n / (24 * (n - 1)) for n in (2, 3, 4, 6, 8)])
    assert noise == sorted(noise)


credits = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12
)


@given(credits)
def test_spread_and_fidelity_equal_the_slow_loops(rows: list[tuple[int, int, int]]) -> None:
    """Seen failing with the unbiased variance."""
    context = np.unique([c for c, _, _ in rows], return_inverse=True)[1]
    credit, truth = (np.array([r[i] for r in rows], np.float64) for i in (1, 2))
    spread = context_variances(credit, context)
    for k in range(int(context.max()) + 1):
        inside = credit[context == k]
        assert spread[k] == pytest.approx(sum((x - inside.mean()) ** 2 for x in inside) / inside.size)
    if np.ptp(credit) == 0 or np.ptp(truth) == 0:
        assert fidelity(credit, truth, context) == 0
    else:
        assert fidelity(credit, truth, context) == pytest.approx(spearmanr(credit, truth).statistic)
    each = [
        0.0
        if np.ptp(credit[context == k]) == 0
        else spearmanr(credit[context == k], truth[context == k]).statistic
        for k in range(int(context.max()) + 1)
        if np.ptp(truth[context == k]) > 0
    ]
    want = sum(each) / len(each) if each else 0.0
    assert fidelity(credit, truth, context, how="per_context") == pytest.approx(want, abs=1e-9)


def coin(p: float) -> float:
    return -sum(x * math.log(x) for x in (p, 1 - p) if x > 0)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 5)), min_size=1, max_size=6))
def test_information_of_outcomes_equals_the_slow_sum(rows: list[tuple[float, int]]) -> None:
    q, c = (np.array([r[i] for r in rows], np.float64) for i in (0, 1))
    found = outcome_information(q, c)
    whole = sum(c)
    want = coin(sum(q * c) / whole) - sum(n * coin(p) for p, n in rows) / whole
    assert found.value == pytest.approx(want, abs=1e-9)
    assert 0 <= found.value <= math.log(2) + 1e-12
    assert found.bias == (len(rows) - 1) / (2 * whole)


def test_the_told_bias_is_about_what_simulation_gives() -> None:
    """Alternatives that differ in nothing, 4 of them with 8 continuations each."""
    rng = np.random.default_rng(1)
    found = [outcome_information(rng.binomial(8, 0.5, 4) / 8, np.full(4, 8.0)) for _ in range(3000)]
    mean = float(np.mean([f.value for f in found]))
    assert mean == pytest.approx(found[0].bias, rel=0.15)
    assert outcome_information(np.zeros(2), np.zeros(2)).value == 0.0
