"""The distances under shear: exact, bounded from below, and the same with and without pruning."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance_nd

from accredit.methods._transport import (
    EXACT,
    Cloud,
    Solver,
    distances,
    dual_bound,
    nearest,
    one_sided,
    sinkhorn,
    wasserstein,
)
from tests.dear import dear


def clouds(rows: st.SearchStrategy[int], d: int = 2) -> st.SearchStrategy[np.ndarray]:
    # float32, as stored: squares of smaller differences would underflow.
    value = st.floats(-8, 8, width=16)
    return rows.flatmap(lambda n: hnp.arrays(np.float64, (n, d), elements=value))


some = clouds(st.integers(1, 9))


@dear
@given(some, some)
def test_exact_distance_is_scipy_s(x: np.ndarray, y: np.ndarray) -> None:
    wanted = wasserstein_distance_nd(x, y)
    assert wanted == pytest.approx(wasserstein(distances(x, y)), rel=1e-7, abs=1e-7)


@pytest.mark.parametrize(("n", "m"), [(20, 20), (20, 10), (20, 15), (20, 19), (17, 5), (1, 7), (30, 29)])
def test_exact_distance_is_scipy_s_at_every_kind_of_length(n: int, m: int) -> None:
    """Assignment, assignment of repeated rows, the linear program, one row."""
    rng = np.random.default_rng(n * m)
    x, y = rng.normal(size=(n, 5)), rng.normal(size=(m, 5)) + 0.3
    assert wasserstein_distance_nd(x, y) == pytest.approx(wasserstein(distances(x, y)), rel=1e-9)


@given(some, some)
def test_distances_are_cdist_s_and_exact_for_equal_rows(x: np.ndarray, y: np.ndarray) -> None:
    np.testing.assert_allclose(distances(x, y), cdist(x, y), rtol=1e-9, atol=1e-12)
    assert not np.diag(distances(x, x)).any()


def test_distances_keep_their_digits_far_from_the_origin() -> None:
    rng = np.random.default_rng(0)
    x = 1e4 + rng.normal(size=(8, 64))
    y = np.vstack([x[:3], x[3:] + 1e-3 * rng.normal(size=(5, 64))])
    np.testing.assert_allclose(distances(x, y), cdist(x, y), rtol=1e-6)
    assert [0.0, 0.0, 0.0] == np.diag(distances(x, y))[:3].tolist()


@settings(deadline=None)
@given(some, some)
def test_bounds_lie_below_the_distance(x: np.ndarray, y: np.ndarray) -> None:
    cost = distances(x, y)
    exact = wasserstein(cost)
    whole = [Cloud(z, np.array([0]), np.array([len(z)])) for z in (x, y)]
    slack = 1e-9 * (1 + exact)
    assert np.linalg.norm(x.mean(axis=0) - y.mean(axis=0)) <= exact + slack
    assert np.maximum(*one_sided(cost, *whole)).item() <= exact + slack
    assert dual_bound(cost) <= exact + slack


def test_a_translate_is_as_far_as_its_mean() -> None:
    x = np.random.default_rng(0).normal(size=(12, 3))
    assert pytest.approx(np.sqrt(14)) == wasserstein(distances(x, x + np.array([1.0, 2.0, 3.0])))


def test_the_dual_bound_is_tight_and_gives_up_where_costs_are_too_far_apart() -> None:
    rng = np.random.default_rng(0)
    cost = distances(rng.normal(size=(40, 16)), rng.normal(size=(37, 16)))
    assert 0.98 * wasserstein(cost) < dual_bound(cost) <= wasserstein(cost)
    assert 0.0 == dual_bound(np.zeros((3, 4)))
    far = np.array([[1.0, 1.0, 1e9], [1.0, 1.0, 1e9], [1e9, 1e9, 1e9]])
    assert 0.0 <= dual_bound(far) <= wasserstein(far)


@dear
@given(some, some)
def test_sinkhorn_is_at_least_exact(x: np.ndarray, y: np.ndarray) -> None:
    cost = distances(x, y)
    assert sinkhorn(cost, 0.1) >= wasserstein(cost) - 1e-4 * (1 + cost.max())


def test_sinkhorn_is_the_value_of_its_problem() -> None:
    """For two points a side the plan is [[p, 1/2 - p], [1/2 - p, p]]: minimise over p by search."""
    cost = np.array([[1.0, 2.0], [3.0, 1.5]])
    eps = 0.4 * float(np.median(cost))
    p = np.linspace(1e-6, 0.5 - 1e-6, 200_001)
    value = p * (cost[0, 0] + cost[1, 1]) + (0.5 - p) * (cost[0, 1] + cost[1, 0])
    value += eps * 2 * (p * np.log(4 * p) + (0.5 - p) * np.log(4 * (0.5 - p)))
    assert value.min() == pytest.approx(sinkhorn(cost, 0.4), rel=1e-6)


def spanned(rows: np.ndarray, window: int, stride: int) -> Cloud:
    first = np.arange(0, max(len(rows) - window, 0) + stride, stride)
    return Cloud(rows, first, np.minimum(first + window, len(rows)))


@dear
@given(
    st.lists(clouds(st.integers(4, 12)), min_size=1, max_size=3),
    st.lists(clouds(st.integers(4, 12)), min_size=1, max_size=3),
)
def test_pruning_changes_nothing_and_both_sides_are_served(
    here: list[np.ndarray], there: list[np.ndarray]
) -> None:
    sides = [[spanned(rows, 4, 3) for rows in side] for side in (here, there)]
    pruned, whole = nearest(*sides), nearest(*sides, prune=False)
    turned = nearest(sides[1], sides[0])
    for a, b, c in ((pruned.here, whole.here, turned.there), (pruned.there, whole.there, turned.here)):
        for x, y, z in zip(a, b, c, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(x, z, rtol=1e-9, atol=1e-9)
    assert whole.solved == whole.pairs == pruned.pairs >= pruned.solved


def test_each_minimum_is_over_every_span_of_every_cloud() -> None:
    rng = np.random.default_rng(0)
    here, there = (
        [spanned(rng.normal(size=(n, 3)), 5, 2) for n in sizes] for sizes in ((9, 12), (8, 11, 14))
    )
    found = nearest(here, there)
    for cloud, got in zip(here, found.here, strict=True):
        for a, b, d in zip(cloud.first, cloud.stop, got, strict=True):
            every = [
                wasserstein_distance_nd(cloud.points[a:b], other.points[p:q])
                for other in there
                for p, q in zip(other.first, other.stop, strict=True)
            ]
            assert min(every) == pytest.approx(d, rel=1e-9)


def test_clear_structure_needs_few_solutions() -> None:
    rng = np.random.default_rng(0)
    topics = 5 * rng.normal(size=(6, 16))
    rows = [
        np.repeat(topics[rng.integers(0, 6, 10)], 20, axis=0) + rng.normal(size=(200, 16)) for _ in range(4)
    ]
    sides = [[spanned(r, 20, 10) for r in side] for side in (rows[:2], rows[2:])]
    asked: list[tuple[int, int]] = []

    def counted(cost: np.ndarray) -> float:
        asked.append(cost.shape)
        return wasserstein(cost)

    found = nearest(*sides, Solver(counted, EXACT.dear))
    assert len(asked) == found.solved < 0.3 * found.pairs
