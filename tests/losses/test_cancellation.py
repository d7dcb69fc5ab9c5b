"""Cancellation of what a group shares: the drift, and the two repairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.errors import DataError
from accredit.losses import drift, min_replace, orthogonal

rows = st.lists(
    st.tuples(st.integers(0, 2), st.floats(0, 3), st.sampled_from([-1.0, 0.0, 0.25, 2.0])),
    min_size=1,
    max_size=9,
)


def arrays(drawn: list[tuple[int, float, float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    group, weight, advantage = (np.array(x) for x in zip(*drawn, strict=True))
    dense = np.unique(group, return_inverse=True)[1]
    return weight.astype(float), advantage.astype(float), dense


@given(rows)
def test_drift_is_that_of_a_plain_loop(drawn: list[tuple[int, float, float]]) -> None:
    """Seen failing with the sum of absolute values taken over the whole batch."""
    w, A, g = arrays(drawn)
    expected = []
    for group in sorted(set(g.tolist())):
        products = [w[i] * A[i] for i in range(w.size) if g[i] == group]
        size = sum(map(abs, products))
        expected.append(abs(sum(products)) / size if size else 0.0)
    np.testing.assert_allclose(expected, drift(w, A, g), atol=1e-12)


@given(rows)
def test_orthogonal_weights_cancel_and_keep_groups_without_advantage(
    drawn: list[tuple[int, float, float]],
) -> None:
    w, A, g = arrays(drawn)
    found = orthogonal(w, A, g)
    np.testing.assert_allclose(np.bincount(g, found * A), 0.0, atol=1e-9)
    still = np.bincount(g, A**2)[g] == 0
    np.testing.assert_array_equal(w[still], found[still])


@given(rows)
def test_the_smallest_weight_lets_centred_advantages_cancel(drawn: list[tuple[int, float, float]]) -> None:
    w, A, g = arrays(drawn)
    A = A - (np.bincount(g, A) / np.bincount(g))[g]
    found = min_replace(w, A, g)
    assert (found <= w).all()
    np.testing.assert_allclose(np.bincount(g, found * A), 0.0, atol=1e-9)


def test_a_sequence_ratio_breaks_what_equal_weights_keep() -> None:
    A, g = np.array([1.5, -0.5, -0.5, -0.5]), np.zeros(4, int)
    assert drift(np.ones(4), A, g).tolist() == [0.0]
    assert drift(np.array([1.2, 1.0, 1.0, 1.0]), A, g)[0] == pytest.approx(0.3 / 3.3)


def test_lengths_and_odd_numbers_are_refused() -> None:
    with pytest.raises(DataError, match="shapes"):
        drift(np.ones(2), np.ones(3), np.zeros(3, int))
    with pytest.raises(DataError, match="finite"):
        orthogonal(np.array([np.nan]), np.ones(1), np.zeros(1, int))
