"""lambda-grpo: a slow oracle, factors that sum to the group's size, extremes of lambda."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from tests.dear import dear
from tests.methods.token_rollouts import BASE, base_of, before_masks, told


def rollouts(*lengths):
    return [
        {"id": f"r{i}", "group": "g", "reward": i % 2, "steps": [{"n_tokens": n}]}
        for i, n in enumerate(lengths)
    ]


def slow(lengths, lam, r):
    mean = sum(lengths) / len(lengths)
    std = math.sqrt(sum((n - mean) ** 2 for n in lengths) / len(lengths))
    height = [max(1 + r * (n - mean) / max(std, 1e-8), 1e-6) ** lam for n in lengths]
    power = [math.exp(h - max(height)) for h in height]
    return [len(lengths) * p / sum(power) for p in power]


@dear
@given(told(), st.floats(-4, 4), st.floats(0, 1))
def test_equals_the_slow_form(records, lam, r):
    batch = ac.Batch.from_records(records)
    credit = ac.assign(batch, "lambda-grpo", lam=lam, r=r)
    factor = credit.extras["factor"]
    lengths = np.diff(batch.token_start_S1[batch.step_start_R1])
    counts = [x.get("reward") is not None and x.get("status") != "rejected" for x in records]
    for group in {x["group"] for x in records}:
        own = [i for i, x in enumerate(records) if x["group"] == group and counts[i]]
        if own:
            np.testing.assert_allclose(factor[own], slow(lengths[own].tolist(), lam, r), rtol=1e-9)
            assert len(own) == pytest.approx(factor[own].sum())
    rows = np.repeat(np.arange(len(batch)), lengths)
    np.testing.assert_allclose(before_masks(credit), base_of(batch) * factor[rows], atol=1e-12)


@dear
@given(told())
def test_lambda_zero_is_the_base(records):
    np.testing.assert_allclose(
        ac.assign(records, BASE).tokens, ac.assign(records, "lambda-grpo").tokens, rtol=1e-12
    )


def test_negative_lambda_favours_short_and_positive_long_rollouts():
    short, long = (ac.assign(rollouts(2, 9), "lambda-grpo", lam=x).extras["factor"] for x in (-1, 1))
    assert short[0] > 1 > short[1]
    assert long[0] < 1 < long[1]


@pytest.mark.parametrize("lam", [-1e4, 1e4])
def test_extreme_lambdas_stay_finite(lam):
    factor = ac.assign(rollouts(1, 5, 90, 5), "lambda-grpo", lam=lam, r=5.0).extras["factor"]
    assert np.isfinite(factor).all()
    assert 4 == pytest.approx(factor.sum())


def test_a_group_of_one_and_equal_lengths_have_factor_one():
    assert [1.0] == ac.assign(rollouts(3), "lambda-grpo", lam=2).extras["factor"].tolist()
    assert [1.0, 1.0] == ac.assign(rollouts(4, 4), "lambda-grpo", lam=2).extras["factor"].tolist()
