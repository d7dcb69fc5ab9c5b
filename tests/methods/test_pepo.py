"""pepo and proximal entropy: the card's hand example, a slow oracle, propositions, edge cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.methods.pepo import proximal_entropy
from tests.dear import dear
from tests.methods.token_rollouts import BASE, RAW, base_of, before_masks, one, told, walk

H = [0.0, 1.0, 0.0, 2.0, 0.0]
E = [0.155362, 0.576117, 0.090031, 0.786986, 0.063379]
C = [0.464635, 1.722967, 0.269250, 2.353603, 0.189545]
heights = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 40))
rows = st.lists(st.lists(heights, max_size=9), min_size=1, max_size=4)


def near(values):
    return pytest.approx(values, abs=1e-6)


def test_card_example():
    assert near(E) == proximal_entropy(H, 3).tolist()
    assert near(C) == ac.assign([one("a", 1.0, H)], "pepo", window=3, base=RAW).tokens.tolist()
    assert [-1.0] * 5 == ac.assign([one("a", -1.0, H)], "pepo", window=3, base=RAW).tokens.tolist()
    assert (
        near(C) == ac.assign([one("a", 1.0, [h + 3 for h in H])], "pepo", window=3, base=RAW).tokens.tolist()
    )


def slow(row, width, temperature):
    """Numpy's own mirror, one token after the other."""
    half = width // 2
    if not row:
        return []
    padded = np.pad(np.array(row), half, mode="reflect") if half else np.array(row)
    found = []
    for t, h in enumerate(row):
        window = padded[t : t + 2 * half + 1]
        found.append(1 / sum(math.exp(min((x - h) / temperature, 700)) for x in window))
    return found


@given(rows, st.integers(1, 25), st.sampled_from([0.5, 1.0, 3.0]))
def test_equals_the_slow_form_in_every_row(rows, width, temperature):
    """Rows shorter than the window, of one token and empty; spreads for running sums and for direct ones."""
    start = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    flat = np.array([h for row in rows for h in row])
    found = proximal_entropy(flat, width, temperature=temperature, start=start)
    expected = [e for row in rows for e in slow(row, width, temperature)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@given(st.lists(st.floats(0, 8), min_size=1, max_size=300), st.sampled_from([3, 51, 101]))
def test_running_sums_equal_direct_ones_in_long_rows(row, width):
    np.testing.assert_allclose(proximal_entropy(row, width), slow(row, width, 1.0), rtol=1e-9)


@given(st.lists(st.floats(0, 8), min_size=1, max_size=40), st.floats(-50, 1000))
def test_a_constant_shift_of_a_row_changes_nothing(row, shift):
    np.testing.assert_allclose(
        proximal_entropy(np.array(row) + shift, 9), proximal_entropy(row, 9), rtol=1e-9
    )


def test_a_slow_trend_changes_it_by_at_most_its_size_in_the_window():
    rng = np.random.default_rng(0)
    row, slope = rng.exponential(1, 500), 1e-4
    first, second = proximal_entropy(row, 101), proximal_entropy(row + slope * np.arange(500), 101)
    assert 0 < np.abs(second / first - 1).max() <= 1.1 * slope * 50


@given(st.lists(st.floats(0, 8), min_size=1, max_size=40), st.sampled_from([1, 3, 9, 101]))
def test_it_is_a_share_below_its_bound_and_reverses_with_the_row(row, width):
    e = proximal_entropy(row, width)
    bound = [1 / (1 + 2 * (width // 2) * math.exp(min(row) - h)) for h in row]
    assert (e > 0).all()
    assert (e <= np.array(bound) * (1 + 1e-9)).all()
    np.testing.assert_allclose(e[::-1], proximal_entropy(row[::-1], width), rtol=1e-9)


def test_edge_rows():
    assert [] == proximal_entropy([], 101).tolist()
    assert [1 / 101] == pytest.approx(proximal_entropy([5.0], 101).tolist())
    assert [1.0, 1.0] == proximal_entropy([5.0, 1.0], 1).tolist()
    assert [1 / 5] * 4 == pytest.approx(proximal_entropy([0.3] * 4, 5).tolist())
    huge = proximal_entropy([0.0, 5000.0, 0.0], 3)
    assert [0.0, 1.0, 0.0] == pytest.approx(huge.tolist())


@pytest.mark.parametrize(
    ("row", "more", "says"),
    [
        ([1.0], {"W": 0}, "W must be at least 1"),
        ([1.0], {"temperature": 0.0}, "temperature above 0"),
        ([math.nan], {}, "finite numbers"),
        ([[1.0]], {}, "one row of finite numbers"),
    ],
)
def test_what_is_no_window_or_entropy_is_refused(row, more, says):
    with pytest.raises(ac.AccreditError, match=says):
        proximal_entropy(row, **more)


# -- the method ---------------------------------------------------------------------------------------


def slow_method(batch, width, scope, apply_to, base):
    tokens, advantage = walk(batch), base_of(batch, base)
    found = []
    for token, a in zip(tokens, advantage, strict=True):
        same = [t for t in tokens if t.s == token.s or (scope == "rollout" and t.r == token.r)]
        e = dict(zip(map(id, same), slow([t.entropy for t in same], width, 1.0), strict=True))
        counted = [e[id(t)] for t in same if t.counted]
        applied = {"all": True, "positive_advantage": a > 0, "success": token.reward == 1.0}[apply_to]
        found.append(a * e[id(token)] * len(counted) / sum(counted) if token.counted and applied else a)
    return found


@dear
@given(
    told(),
    st.integers(1, 9),
    st.sampled_from(["rollout", "step"]),
    st.sampled_from(["success", "positive_advantage", "all"]),
    st.sampled_from([BASE, "gigpo:singleton=zero"]),
)
def test_equals_the_slow_form(records, width, scope, apply_to, base):
    batch = ac.Batch.from_records(records)
    credit = ac.assign(batch, "pepo", window=width, window_scope=scope, apply_to=apply_to, base=base)
    np.testing.assert_allclose(
        before_masks(credit), slow_method(batch, width, scope, apply_to, base), rtol=1e-9, atol=1e-12
    )


@dear
@given(told())
def test_a_success_keeps_its_sum_and_a_failure_its_tokens(records):
    batch = ac.Batch.from_records(records)
    credit, base, tokens = ac.assign(batch, "pepo"), base_of(batch), walk(batch)
    values = before_masks(credit)
    for r in range(len(batch)):
        own = np.array([t.r == r and t.counted for t in tokens], bool)
        np.testing.assert_allclose(values[own].sum(), base[own].sum(), atol=1e-9)
        if batch.records and any(t.r == r and t.reward != 1.0 for t in tokens):
            np.testing.assert_array_equal(base[own], values[own])
    np.testing.assert_array_equal(np.sign(base), np.sign(values))


@dear
@given(told())
def test_a_window_of_one_is_the_base(records):
    np.testing.assert_array_equal(
        ac.assign(records, BASE).tokens, ac.assign(records, "pepo", window=1).tokens
    )


def codes(credit):
    return {finding.code for finding in credit.findings}


def test_an_even_window_is_told_and_counts_as_the_next_odd_one():
    even, odd = (ac.assign([one("a", 1.0, H)], "pepo", window=w, base=RAW) for w in (2, 3))
    np.testing.assert_array_equal(odd.tokens, even.tokens)
    assert ("ACC440" in codes(even), "ACC440" in codes(odd)) == (True, False)


def test_graded_rewards_are_told_unless_another_rule_is_chosen():
    records = [one(n, r, [0.0, 1.0]) for n, r in (("a", 0.0), ("b", 0.5), ("c", 0.75))]
    credit = ac.assign(records, "pepo")
    assert "ACC441" in codes(credit)
    assert any("positive_advantage" in finding.hint for finding in credit.findings)
    np.testing.assert_array_equal(ac.assign(records, "grpo").tokens, credit.tokens)
    other = ac.assign(records, "pepo", apply_to="positive_advantage")
    assert "ACC441" not in codes(other)
    assert other.tokens[5] > other.tokens[4] > 0
