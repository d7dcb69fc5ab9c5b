"""Rewards: scored, tied, on what scale, and step rewards against the outcome."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.findings import zero_spread
from tests.findings.planted import clean


def _kinds(*groups, counted=None):
    score = np.array([r for g in groups for r in g], float)
    codes = np.repeat(np.arange(len(groups)), [len(g) for g in groups])
    use = np.ones(score.size, bool) if counted is None else np.array(counted, bool)
    found = zero_spread(score, codes, len(groups), use)
    names = found.__dataclass_fields__
    return [next(n for n in names if getattr(found, n)[g]) for g in range(len(groups))]


def test_eight_rewards_of_0_7_are_a_tie():
    assert ["tie", "mixed"] == _kinds([0.7] * 8, [0.0, 1.0])


def test_rewards_apart_by_rounding_are_a_tie():
    assert ["tie", "mixed"] == _kinds([0.1 + 0.2, 0.3], [0.0, 1.0])


def test_all_pass_is_the_batch_highest_and_positive():
    assert ["all_pass", "mixed"] == _kinds([1, 1], [0, 1])
    assert ["tie", "all_fail"] == _kinds([-1, -1], [-2, -2])


def test_all_fail_is_the_batch_lowest_and_not_positive():
    assert ["all_fail", "mixed"] == _kinds([0, 0], [0, 1])
    assert ["tie", "all_pass"] == _kinds([0.5, 0.5], [1, 1])


def test_a_batch_of_one_value_passes_only_at_1():
    assert ["all_pass"] == _kinds([1, 1])
    assert ["all_fail"] == _kinds([0, 0])
    assert ["tie"] == _kinds([0.7, 0.7])
    assert ["tie"] == _kinds([10, 10])


def test_uncounted_rollouts_have_no_say():
    assert ["all_pass", "single"] == _kinds([1, 1, 0], [0, 5], counted=[1, 1, 0, 1, 0])
    assert ["empty", "mixed"] == _kinds([1, 1], [0, 1], counted=[0, 0, 1, 1])


_LEVELS = st.sampled_from([-1.0, 0.0, 0.3, 0.1 + 0.2, 1.0])
_TIES = st.builds(lambda level, n: [level] * n, _LEVELS, st.integers(1, 3))


@given(st.lists(_TIES | st.lists(_LEVELS, min_size=1, max_size=4), min_size=1, max_size=4))
def test_every_group_is_of_one_kind_and_equals_the_plain_rule(groups):
    values = [r for g in groups for r in g]
    assert [_plain_kind(g, max(values), min(values)) for g in groups] == _kinds(*groups)


def _plain_kind(group, top, bottom):
    def near(a, b):
        return abs(a - b) <= 1e-12 * max(1, abs(a), abs(b))

    if len(group) == 1:
        return "single"
    if not near(max(group), min(group)):
        return "mixed"
    if near(group[0], top) and top > 0 and (not near(top, bottom) or near(top, 1)):
        return "all_pass"
    return "all_fail" if near(group[0], bottom) and bottom <= 0 else "tie"


def test_a_dropped_rollout_can_leave_a_tie():
    records = clean()
    for r in (1, 3):
        records[r]["status"] = "truncated"
    assert "ACC212" not in ac.check(records, method="grpo").by_code()
    assert "ACC212" in ac.check(records, method="grpo:truncated=drop").by_code()


def test_step_rewards_decide_ties_too():
    records = clean()
    for i, record in enumerate(records):
        record["reward"] = 0.0
        record["steps"][0]["reward"] = float(i)
    found = ac.check(records).by_code()
    assert "ACC212" not in found
    assert "ACC215" not in found


def test_step_rewards_alone_are_no_outcome():
    records = [r | {"reward": None} for r in clean()]
    records[0]["steps"][0]["reward"] = 1.0
    (found,) = ac.check(records).by_code()["ACC204"]
    assert "Step rewards alone are no outcome" in found.hint


def test_components_without_an_outcome_are_scored_for_methods_that_combine_them():
    records = [r | {"reward": None, "rewards": {"answer": float(i % 2)}} for i, r in enumerate(clean())]
    assert "ACC204" in ac.check(records).by_code()
    assert "ACC204" not in ac.check(records, method="grpo:combine=sum_then_normalize").by_code()


def test_a_few_rewards_are_no_scale():
    records = clean()
    records[1]["reward"] = 1000.0
    assert "ACC216" in ac.check(records).by_code()
    assert "ACC216" not in ac.check(records[:4]).by_code()


@pytest.mark.parametrize("level", [1e308, -1e308, 1e-300])
def test_extreme_rewards_are_no_trouble(level):
    records = [r | {"reward": level * r["reward"]} for r in clean()]
    assert 16 == ac.check(records).summary["reward"]["n"]
