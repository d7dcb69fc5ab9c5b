"""empg: a slow oracle, the mean of the factors, where there is no bonus, and its opposites."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from tests.dear import dear
from tests.methods.token_rollouts import BASE, base_of, before_masks, one, told, walk


def slow(batch, k, k_future, zeta, base):
    tokens = walk(batch)
    means = {}
    for s in range(batch.n_steps):
        own = [t.entropy for t in tokens if t.s == s and t.counted]
        if own:
            means[s] = sum(own) / len(own)
    low, high = (min(means.values()), max(means.values())) if means else (0, 0)
    height = {s: (m - low) / (high - low) if high > low else 0.0 for s, m in means.items()}
    scale = sum(math.exp(-k * h) for h in height.values()) / max(len(height), 1)
    ends = {int(x) - 1 for x in batch.step_start_R1[1:]}
    found = []
    for token, a in zip(tokens, base_of(batch, base), strict=True):
        value = a
        if token.counted:
            value = a * math.exp(-k * height[token.s]) / scale
            if a and token.s not in ends and token.s + 1 in height:
                value += zeta * math.exp(-k_future * height[token.s + 1])
        found.append(value)
    return found


@dear
@given(
    told(),
    st.floats(0, 3),
    st.floats(0, 3),
    st.sampled_from([0.0, 0.1]),
    st.sampled_from([BASE, "gigpo:singleton=zero"]),
)
def test_equals_the_slow_form(records, k, k_future, zeta, base):
    batch = ac.Batch.from_records(records)
    credit = ac.assign(batch, "empg", k=k, k_future=k_future, zeta=zeta, base=base)
    np.testing.assert_allclose(
        before_masks(credit), slow(batch, k, k_future, zeta, base), rtol=1e-9, atol=1e-9
    )


def test_by_hand():
    records = [one("a", 1.0, [0.0], [1.0]), one("b", 0.0, [0.5])]
    credit = ac.assign(records, "empg")
    mean = (1 + math.exp(-1) + math.exp(-0.5)) / 3
    assert (
        pytest.approx([1 / mean, math.exp(-1) / mean, math.exp(-0.5) / mean])
        == credit.extras["factor"].tolist()
    )
    assert pytest.approx([0.1 * math.exp(-1), 0, 0]) == credit.extras["bonus"].tolist()
    assert 1.0 == pytest.approx(credit.extras["factor"].mean())


@dear
@given(told())
def test_without_slope_and_bonus_it_is_the_base(records):
    np.testing.assert_allclose(
        ac.assign(records, BASE).tokens, ac.assign(records, "empg", k=0, zeta=0).tokens, rtol=1e-12
    )


def test_a_tie_has_no_bonus_and_equal_entropies_keep_the_base():
    tie = [one("a", 1.0, [0.1], [0.9]), one("b", 1.0, [0.5], [0.2])]
    assert not ac.assign(tie, "empg").tokens.any()
    equal = [one("a", 1.0, [0.5], [0.5]), one("b", 0.0, [0.5])]
    credit = ac.assign(equal, "empg", zeta=0)
    np.testing.assert_allclose(ac.assign(equal, "grpo").tokens, credit.tokens)


def test_centring_takes_the_mean_over_steps_away():
    records = [one("a", 1.0, [0.0, 0.3], [1.0]), one("b", 0.0, [0.5])]
    plain, centred = (ac.assign(records, "empg", centre=c).steps for c in (False, True))
    np.testing.assert_allclose(plain - plain.mean(), centred)
