"""Figures that the page states in words: agreement, concentration, health."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import accredit as ac
from accredit.data import Batch
from accredit.views.contrast import contrasts, quadrants, worst
from accredit.views.decisive import decisions, decisive
from accredit.views.headline import concentration
from accredit.views.health import health, histogram, zero_spread
from accredit.views.scores import scores_of
from accredit.views.sheet import sheet_of
from tests.views.made import made, value_result

few = st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0])
pairs = st.lists(st.tuples(few, few), min_size=1, max_size=30)


@given(pairs)
def test_quadrants_count_every_step_once(rows):
    a, b = (np.array(x) for x in zip(*rows, strict=True))
    found = quadrants(a.astype(float), b.astype(float))
    assert len(rows) == sum(found)
    plain = [0] * 6
    for x, y in rows:
        one = 4 if (x == 0) != (y == 0) else 5 if x == 0 else 2 * (x < 0) + (y < 0)
        plain[one] += 1
    assert tuple(plain) == found


def test_the_report_says_of_two_methods_what_compare_says():
    batch = made(groups=5, rollouts=8)
    found = ac.compare(batch, ["grpo", "gigpo"])
    mine = contrasts(sheet_of(list(found.credits.values())))[0]
    pair = found.pairs[0]
    assert mine["rho"] == [pair.spearman.value, pair.spearman.low, pair.spearman.high]
    assert mine["quadrants"] == [pair.quadrants[k] for k in ("++", "+-", "-+", "--", "one zero", "both zero")]
    sheet = sheet_of(list(found.credits.values()))
    places = [
        (sheet.ids[sheet.rollout_S[s]], int(s - sheet.start_R1[sheet.rollout_S[s]])) for s in mine["worst"]
    ]
    assert [(d.rollout, d.step) for d in pair.worst] == places


def test_rollouts_that_a_method_left_out_are_not_compared():
    rows = [
        {"id": n, "group": "g", "reward": r, "steps": [{"action": "a"}]}
        for n, r in (("a", 1), ("b", 0), ("c", None))
    ]
    batch = Batch.from_records(rows)
    credits = [ac.assign(batch, "grpo"), ac.assign(batch, "rloo")]
    assert [c.uncounted != {} for c in credits] == [True, True]
    assert contrasts(sheet_of(credits))[0]["n"] == 2


def test_the_worst_disagreements_come_first():
    a, b = np.array([1.0, 1, -1, 0.2]), np.array([1.0, -1, -0.5, 0.2])
    assert worst(a, b, np.arange(4))[0] == 1
    assert worst(np.full(4, 2.0), np.array([1.0, 1, 1, -3]), np.zeros(4, int)) == [3, 0]


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
    assert (
        zero_spread(np.array([0.1 + 0.2 + 0.4, 0.7] * 4), np.ones(8, bool), np.zeros(8, int), 1)["tie"] == 1
    )


@example(list(range(49)))
@given(st.sets(st.integers(0, 500), min_size=1, max_size=80).map(sorted))
def test_histograms_count_everything(values):
    found = histogram(np.array(values), whole=True)
    assert len(values) == sum(found["counts"]) == found["n"]


def test_one_step_stands_for_its_repetitions():
    credit = np.array([2.0, 2.0, -3.0, 0.0, 1.0])
    rollouts, decisions_S = np.array([0, 1, 1, 1, 2]), np.array([7, 7, 0, 1, 2])
    assert decisive(credit, rollouts, decisions_S) == [(2, 1), (0, 2), (4, 1)]
    flat = np.ones(4)
    assert decisive(flat, np.array([0, 0, 1, 1]), np.arange(4)) == [(0, 1), (2, 1)]


def test_a_decision_is_group_state_action_and_credit():
    rows = [
        {"id": i, "group": g, "reward": r, "steps": [{"state": s, "action": "go"}]}
        for i, g, s, r in (("a", "x", "s", 1), ("b", "x", "s", 1), ("c", "x", "t", 0), ("d", "y", "s", 1))
    ]
    found = decisions(Batch.from_records(rows), np.array([0.5, 0.5, 0.5, 0.5]))
    assert found[0] == found[1]
    assert len(set(found.tolist())) == 3


def test_an_outcome_inside_the_step_rewards_is_counted_once():
    rows = [
        {"id": "a", "group": "g", "reward": 1.0, "steps": [{"reward": 0.25}, {"reward": 0.75}]},
        {"id": "b", "group": "g", "reward": 0.5, "steps": [{"reward": 0.5}, {}]},
    ]
    batch = Batch.from_records(rows)
    assert batch.outcome_in_steps
    assert scores_of(sheet_of(ac.assign(batch, "grpo"))).tolist() == [1.0, 0.5]
    said = ac.assign(batch, "grpo", outcome_in_steps="no")
    assert scores_of(sheet_of(said)).tolist() == [2.0, 1.0]
    rows[0]["steps"][1]["reward"] = 0.125
    batch = Batch.from_records(rows)
    assert not batch.outcome_in_steps
    assert scores_of(sheet_of(ac.assign(batch, "grpo"))).tolist() == [1.375, 1.0]


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
