"""Figures that the page states in words: agreement, concentration, health."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

import accredit as ac
from accredit.data import Batch
from accredit.views.contrast import contrast, rank_correlation
from accredit.views.headline import concentration
from accredit.views.health import health, histogram, zero_spread
from accredit.views.sheet import sheet_of
from tests.views.made import made, value_result

few = st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0])
pairs = st.lists(st.tuples(few, few, st.integers(0, 3)), min_size=1, max_size=30)


@given(pairs)
def test_quadrants_count_every_step_once(rows):
    a, b, g = (np.array(x) for x in zip(*rows, strict=True))
    found = contrast(a.astype(float), b.astype(float), g.astype(int), np.arange(len(a)))
    assert len(rows) == sum(found.quadrants)
    plain = [0] * 6
    for x, y, _ in rows:
        one = 4 if (x == 0) != (y == 0) else 5 if x == 0 else 2 * (x < 0) + (y < 0)
        plain[one] += 1
    assert tuple(plain) == found.quadrants


@given(pairs)
def test_rank_correlation_is_spearmans(rows):
    a, b, g = (np.array(x) for x in zip(*rows, strict=True))
    found = rank_correlation(a.astype(float), b.astype(float), g.astype(int))
    if len(set(a)) < 2 or len(set(b)) < 2:
        assert found is None
    else:
        assert found.value == pytest.approx(spearmanr(a, b).statistic, abs=1e-9)
        assert found.low is None or found.low <= found.high


def test_one_group_has_no_interval():
    found = rank_correlation(np.array([1.0, 2, 3]), np.array([1.0, 3, 2]), np.zeros(3, int))
    assert (found.low, found.high) == (None, None)


def test_groups_are_resampled_not_steps():
    """Ten copies of a step inside its group narrow nothing; they would if steps were resampled."""
    chance = np.random.default_rng(1)
    a, b, g = chance.normal(size=30), chance.normal(size=30), np.arange(30) // 3
    once = rank_correlation(a, b, g)
    often = rank_correlation(np.repeat(a, 10), np.repeat(b, 10), np.repeat(g, 10))
    assert often.high - often.low == pytest.approx(once.high - once.low, rel=0.05)


def test_the_worst_disagreements_come_first():
    a, b = np.array([1.0, 1, -1, 0.2]), np.array([1.0, -1, -0.5, 0.2])
    assert contrast(a, b, np.zeros(4, int), np.arange(4)).worst[0] == 1


@given(st.lists(few, min_size=1, max_size=25))
def test_concentration_is_the_fewest_steps_that_hold_half(values):
    size = sorted((abs(v) for v in values), reverse=True)
    found = concentration(np.array(values), np.zeros(len(values), int))
    if not any(size):
        assert found is None
        return
    n = next(k for k in range(1, len(size) + 1) if sum(size[:k]) >= sum(size) / 2 * (1 - 1e-9))
    assert found.value == pytest.approx(n / len(values))


def test_zero_spread_is_counted_by_kind():
    reward = np.array([1, 1, 0, 0, 0.5, 0.5, 1, 0, 1, 0.7])
    ok = np.array([1, 1, 1, 1, 1, 1, 1, 1, 1, 0], bool)
    group = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 5])
    assert zero_spread(reward, ok, group, 6) == {
        "mixed": 1, "all pass": 1, "all fail": 1, "tie": 1, "single": 1, "unscored": 1
    }  # fmt: skip


def test_eight_rewards_of_0_7_are_a_tie():
    assert zero_spread(np.full(8, 0.1 + 0.2 + 0.4), np.ones(8, bool), np.zeros(8, int), 1)["tie"] == 1


@given(st.lists(st.integers(0, 200), min_size=1, max_size=60))
def test_histograms_count_everything(values):
    found = histogram(np.array(values), whole=True)
    assert len(values) == sum(found["counts"]) == found["n"]


def test_health_links_a_finding_to_its_step_and_counts_shared_states():
    batch = made()
    found = health(sheet_of(value_result(batch)))
    assert found["findings"][0]["link"] == [0, 1]
    codes, rollout = batch.state_S, np.repeat(np.arange(len(batch)), np.diff(batch.step_start_R1))
    group = np.asarray(batch.group_R)[rollout]
    shared = sum(
        len({r for r, c, g in zip(rollout, codes, group, strict=True) if (c, g) == key}) > 1
        for key in zip(codes, group, strict=True)
    )
    assert shared == found["visits"]["shared"]


def test_what_the_reader_left_out_is_listed():
    rows = [{"id": "a", "group": "g", "reward": 1, "steps": [{"action": "x"}]}] * 2 + [
        {"id": "b", "group": "g", "reward": 0, "steps": [{"action": "y"}]}
    ]
    batch = Batch.from_records(rows)
    found = health(sheet_of(ac.assign(batch, "grpo")))
    assert len(batch.excluded) == found["excluded"]["n"]
    assert all(row["reason"] for row in found["excluded"]["rows"])
