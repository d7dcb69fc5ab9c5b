"""Influence and the spread of credit within a context, against plain loops and hand figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit import metrics

CODES = st.integers(0, 3)


@st.composite
def observations(draw):
    """Contexts, alternatives and next actions of some observations, in any order."""
    rows = draw(st.lists(st.tuples(st.integers(0, 2), CODES, CODES), min_size=1, max_size=30))
    return tuple(np.array(column) for column in zip(*rows, strict=True))


def _entropy(shares):
    return -sum(p * math.log(p) for p in shares if p > 0)


def _by_entropies(joint):
    """I(J; Y) = H(J) + H(Y) - H(J, Y), which shares no step with the code."""
    whole = sum(map(sum, joint))
    if whole == 0:
        return 0.0
    rows = [sum(row) / whole for row in joint]
    columns = [sum(column) / whole for column in zip(*joint, strict=True)]
    return _entropy(rows) + _entropy(columns) - _entropy([p / whole for row in joint for p in row])


@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_mutual_information_is_the_entropies_apart_less_the_joint_one(n_j, n_y, data):
    weights = st.integers(0, 5).map(float)
    joint = [data.draw(st.lists(weights, min_size=n_y, max_size=n_y)) for _ in range(n_j)]
    assert metrics.mutual_information(np.array(joint)) == pytest.approx(_by_entropies(joint), abs=1e-12)


@given(observations(), st.sampled_from([0.0, 1.0]), st.integers(1, 5))
def test_plug_in_equals_the_loop_over_contexts(drawn, smoothing, words):
    context, j, y = (column.tolist() for column in drawn)
    frequent = sorted(set(y), key=lambda v: (-y.count(v), v))[:words]
    found = []
    for c in set(context):
        seen = [(a, b) for where, a, b in zip(context, j, y, strict=True) if where == c]
        tried = sorted({a for a, _ in seen})
        if len(tried) < 2:
            continue
        joint = [[smoothing + seen.count((a, v)) for v in frequent] for a in tried]
        for a, row in zip(tried, joint, strict=True):
            row.append(smoothing + sum(1 for one, v in seen if one == a and v not in frequent))
        found.append(_by_entropies(joint))
    expected = None if not found else pytest.approx(float(np.mean(found)), abs=1e-12)
    actual = metrics.plug_in_information(*drawn, smoothing=smoothing, words=words)
    assert actual == expected if expected is not None else actual is None


def test_influence_by_hand_with_the_authors_smoothing():
    """Two alternatives, each followed twice by an action of its own: counts + 1 are 3 1 1 / 1 3 1 of 10."""
    j = np.array([0, 0, 1, 1])
    expected = 0.6 * math.log(0.3 / (0.5 * 0.4)) + 0.2 * math.log(0.1 / (0.5 * 0.4))
    actual = metrics.plug_in_information(np.zeros(4, int), j, j, smoothing=1.0)
    assert actual == pytest.approx(expected, abs=1e-12)


@given(observations())
def test_context_variance_is_the_mean_of_numpys(drawn):
    context, credit, _ = drawn
    spreads = [float(np.var(credit[context == c])) for c in set(context.tolist()) if (context == c).sum() > 1]
    actual = metrics.context_variance(credit.astype(float), context)
    assert actual is None if not spreads else actual == pytest.approx(float(np.mean(spreads)), abs=1e-12)


def test_context_variance_of_the_cards_example():
    """C3, n = c = 4: A = [.5, -.1667, .1667, -.5], mean 0, so the variance is the mean square."""
    credit = np.array([0.5, -1 / 6, 1 / 6, -0.5])
    assert metrics.context_variance(credit, np.zeros(4, int)) == pytest.approx((0.5 + 1 / 18) / 4)
