"""Each metric against a plain loop that says what it means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import minimize_scalar
from scipy.stats import kendalltau, pearsonr, spearmanr

from accredit import metrics

SMALL = st.integers(-3, 3).map(float)


@st.composite
def rollouts(draw):
    """Credit and truth with many ties, criticality, and the rollout of each step in order."""
    lengths = draw(st.lists(st.integers(0, 6), min_size=1, max_size=5))
    rollout_S = np.repeat(np.arange(len(lengths)), lengths)
    arrays = hnp.arrays(float, rollout_S.size, elements=SMALL)
    return draw(arrays), draw(arrays), rollout_S


def _each(rollout_S):
    for r in range(int(rollout_S.max(initial=-1)) + 1):
        yield np.flatnonzero(rollout_S == r)


def _mean(found):
    return None if not found else pytest.approx(float(np.mean(found)), abs=1e-9)


def _is(expected, actual):
    """`approx` of None is None."""
    return actual is None if expected is None else actual == expected


@given(rollouts())
def test_nmse_is_the_best_a_search_over_scales_finds(drawn):
    a, t, _ = drawn
    if not t.any():
        assert metrics.nmse(a, t) is None
        return
    best = minimize_scalar(lambda c: ((c * a - t) ** 2).sum(), bounds=(0, 1e3), method="bounded").fun
    assert metrics.nmse(a, t) == pytest.approx(min(best, (t**2).sum()) / (t**2).sum(), abs=1e-3)


@given(rollouts())
def test_affine_nmse_equals_least_squares_a_group(drawn):
    a, t, group_S = drawn
    rest = whole = 0.0
    for at in _each(group_S):
        if at.size < 3:
            continue
        whole += (t[at] ** 2).sum()
        slope = np.polyfit(a[at], t[at], 1)[0] if np.ptp(a[at]) else 0.0
        slope = max(0.0, slope)
        rest += (((slope * a[at] - t[at]) - (slope * a[at] - t[at]).mean()) ** 2).sum()
    expected = None if not whole else pytest.approx(rest / whole, abs=1e-9)
    assert _is(expected, metrics.affine_nmse(a, t, group_S))


@given(rollouts(), st.booleans(), st.booleans())
def test_sign_accuracy_equals_the_loop(drawn, weighted, odd_only):
    a, t, rollout_S = drawn
    keep = rollout_S % 2 == 1 if odd_only else np.ones(a.size, bool)
    hits = weights = 0.0
    for s in range(a.size):
        if keep[s] and abs(t[s]) > 0.05 * np.abs(t).max():
            w = abs(t[s]) if weighted else 1.0
            weights += w
            hits += w * (0.5 if a[s] == 0 else float((a[s] > 0) == (t[s] > 0)))
    expected = None if not weights else pytest.approx(hits / weights)
    assert _is(expected, metrics.sign_accuracy(a, t, keep_S=keep, weighted=weighted))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (metrics.kendall_within, kendalltau),
        (metrics.spearman_within, spearmanr),
        (metrics.pearson_within, pearsonr),
    ],
)
@given(drawn=rollouts())
def test_correlation_within_is_the_mean_of_scipys_and_constant_credit_counts_as_zero(ours, theirs, drawn):
    a, t, rollout_S = drawn
    found = [
        0.0 if np.ptp(a[at]) == 0 else theirs(a[at], t[at])[0]
        for at in _each(rollout_S)
        if at.size and np.ptp(t[at]) > 0
    ]
    assert _is(_mean(found), ours(a, t, rollout_S))


@given(rollouts(), st.data())
def test_across_alternatives_averages_equal_actions_then_ranks(drawn, data):
    a, t, state_S = drawn
    action_S = data.draw(hnp.arrays(np.int64, a.size, elements=st.integers(0, 3)))
    pooled, inside = [], []
    for at in _each(state_S):
        cells = [at[action_S[at] == x] for x in np.unique(action_S[at])]
        pairs = np.array([(a[c].mean(), t[c].mean()) for c in cells])
        if at.size and np.ptp(np.round(pairs[:, 1], 9)) > 0:
            pooled.append(pairs)
            flat = np.ptp(np.round(pairs[:, 0], 9)) == 0
            inside.append(0.0 if flat else spearmanr(np.round(pairs, 9))[0])
    found = metrics.across_alternatives(a, t, state_S, action_S)
    if not inside:
        assert found is None
        return
    assert found.per_state == pytest.approx(np.mean(inside), abs=1e-6)
    both = np.round(np.concatenate(pooled), 9)
    expected = 0.0 if np.ptp(both[:, 0]) == 0 else spearmanr(both)[0]
    assert found.pooled == pytest.approx(expected, abs=1e-6)
    assert found.n_states == len(inside)


@given(rollouts())
def test_auroc_and_top_hit_equal_the_loop_over_pairs(drawn):
    a, t, rollout_S = drawn
    critical = t > 0
    areas, hits = [], []
    for at in _each(rollout_S):
        yes, no = np.abs(a[at][critical[at]]), np.abs(a[at][~critical[at]])
        if not (yes.size and no.size):
            continue
        areas.append(np.mean([(y > n) + 0.5 * (y == n) for y in yes for n in no]))
        top = at[np.abs(a[at]) == np.abs(a[at]).max()]
        hits.append(critical[top].mean())
    assert _is(_mean(areas), metrics.auroc(a, critical, rollout_S))
    assert _is(_mean(hits), metrics.top_hit(a, critical, rollout_S))


@given(rollouts())
def test_first_error_and_pivot_distance_equal_the_loop(drawn):
    a, t, rollout_S = drawn
    same, away = [], []
    for at in _each(rollout_S):
        if (t[at] < -0.1).any():
            true = np.flatnonzero(t[at] < -0.1)[0]
            said = np.flatnonzero(a[at] < 0)
            same.append(bool(said.size and said[0] == true))
        spread = np.abs(t[at])
        if at.size and spread.any():
            pivots = np.flatnonzero(spread == spread.max())
            tops = np.flatnonzero(np.abs(a[at]) == np.abs(a[at]).max())
            away.append(np.mean([min(abs(x - p) for p in pivots) for x in tops]))
    assert _is(_mean(same), metrics.first_error(a, t, rollout_S))
    assert _is(_mean(away), metrics.pivot_distance(a, np.abs(t), rollout_S))


@given(st.data())
def test_softmax_gradient_equals_the_sum_of_scores(data):
    chance = np.array([0.2, 0.8, 0.5, 0.25, 0.25])
    state = np.array([0, 0, 1, 1, 1])
    cell = data.draw(hnp.arrays(np.int64, 6, elements=st.integers(0, 4)))
    credit = data.draw(hnp.arrays(float, 6, elements=SMALL))
    expected = np.zeros(5)
    for c, x in zip(cell, credit, strict=True):
        for other in np.flatnonzero(state == state[c]):
            expected[other] += x * ((other == c) - chance[other])
    assert np.allclose(expected, metrics.softmax_gradient(credit, cell, state, chance))


def test_gradient_quality_by_hand():
    found = metrics.gradient_quality(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), np.array([1.0, 1.0]))
    assert found.mean_cosine == pytest.approx(2 / 3 / np.sqrt(2))
    assert found.cosine_of_mean == pytest.approx(1.0)
    assert metrics.gradient_quality(np.ones((2, 2)), np.zeros(2)) is None


def test_moments_see_a_planted_bias_and_the_variance_of_noise():
    rng = np.random.default_rng(0)
    n_batches, truth = 400, np.array([1.0, -1.0, 0.5])
    cell = np.tile([0, 1, 2], n_batches)
    batch = np.repeat(np.arange(n_batches), 3)
    noise = rng.normal(0, 0.5, cell.size)
    found = metrics.moments(truth[cell] + noise + 0.3 * (cell == 2), truth[cell], cell, batch)
    spread = truth[cell].var()
    assert found.bias2 == pytest.approx(0.03 / spread, rel=0.25)
    assert found.variance == pytest.approx(0.25 / spread, rel=0.1)
    assert max(map(abs, found.z[:2])) < 4 < found.z[2]


def test_the_truth_scores_one_and_its_opposite_zero():
    rng = np.random.default_rng(1)
    t, rollout_S = rng.normal(size=60), np.repeat(np.arange(10), 6)
    assert metrics.nmse(3 * t, t) == pytest.approx(0, abs=1e-12)
    assert metrics.nmse(-t, t) == 1.0
    assert metrics.kendall_within(t, t, rollout_S) == pytest.approx(1)
    assert metrics.kendall_within(-t, t, rollout_S) == pytest.approx(-1)
    assert metrics.kendall_within(np.repeat(t[:10], 6), t, rollout_S) == 0
    assert metrics.sign_accuracy(t, t) == 1.0


def test_structure_by_hand():
    rollout_S = np.array([0, 0, 1])
    credit = np.array([0.5, 0.25, 0.0])
    residual = metrics.telescoping_residual(credit, rollout_S, np.array([1.0, 0.0]), np.array([0.25, 0.25]))
    assert residual == pytest.approx(0.125)
    assert metrics.signal_coverage(credit) == pytest.approx(2 / 3)


@given(rollouts())
def test_calibration_bins_equal_the_loop(drawn):
    a, t, _ = drawn
    found = metrics.calibration(a, t)
    if not t.any():
        assert found == ()
        return
    unit = np.sqrt((t**2).mean())
    said = metrics.scale_of(a, t) * a / unit
    for b in found:
        inside = [i for i in range(a.size) if sum(said[i] >= e for e in metrics.EDGES) == b.place]
        assert len(inside) == b.n
        assert b.said == pytest.approx(said[inside].mean(), abs=1e-9)
        assert b.true == pytest.approx(t[inside].mean() / unit, abs=1e-9)
    assert sum(b.n for b in found) == a.size
