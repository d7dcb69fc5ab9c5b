"""remax: the card's hand example, step rewards, missing baselines, a slow oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import accredit as ac
from accredit.errors import MissingSignal, ParamError
from tests.dear import dear
from tests.methods import outcome_oracles as slow
from tests.methods.outcome_oracles import run


def test_card_example() -> None:
    steps = ac.assign(run([1, 0.5, 0, 0]), "remax", reward_baselines={"g": 0.5}).steps
    assert [0.5, 0, -0.5, -0.5] == steps.tolist()


def test_a_step_has_the_rewards_from_it_on() -> None:
    record = {"id": "a", "group": "g", "reward": 1.0}
    record["steps"] = [{"n_tokens": 2, "reward": 0.5}, {"n_tokens": 0, "reward": 0.25}, {"n_tokens": 1}]
    credit = ac.assign([record], "remax", reward_baselines={"g": 0.75})
    assert [1.0, 0.5, 0.25] == credit.steps.tolist()
    assert [1.0, 1.0, 0.25] == credit.tokens.tolist()
    assert [-0.75] * 3 == credit.parts["baseline"].tolist()


def test_equal_rewards_are_zero_only_at_the_baseline() -> None:
    assert [0.0] * 3 == ac.assign(run([0.7] * 3), "remax", reward_baselines={"g": 0.7}).steps.tolist()
    assert ac.assign(run([0.7] * 3), "remax", reward_baselines={"g": 0.5}).steps.all()


def test_baselines_may_stand_in_the_records() -> None:
    records = [r | {"reward_baseline": 0.5} for r in run([1, 0])]
    assert [0.5, -0.5] == ac.assign(records, "remax").steps.tolist()
    del records[1]["reward_baseline"]
    with pytest.raises(MissingSignal, match="rollout 'g1' of group 'g' has no reward_baseline"):
        ac.assign(records, "remax")


def test_a_group_without_a_baseline_is_named() -> None:
    with pytest.raises(ParamError, match="reward_baselines has no group 'task 7'"):
        ac.assign(run([1], "task 6") + run([1], "task 7"), "remax", reward_baselines={"task 6": 1})


def test_numbers_as_groups_match_their_text() -> None:
    records = [r | {"group": 7} for r in run([1, 0])]
    assert [0.5, -0.5] == ac.assign(records, "remax", reward_baselines={"7": 0.5}).steps.tolist()


def test_no_baselines_at_all_says_what_to_give() -> None:
    with pytest.raises(MissingSignal, match="needs reward_baselines"):
        ac.assign(run([1]), "remax")


def test_a_baseline_that_is_no_number_is_named() -> None:
    with pytest.raises(ParamError, match="reward_baselines of 'g' must be a finite number"):
        ac.assign(run([1]), "remax", reward_baselines={"g": None})


def test_an_explanation_can_be_recomputed() -> None:
    record = {"id": "a", "group": "g", "reward": 1.0, "steps": [{"reward": 0.5}, {"reward": 0.25}, {}]}
    credit = ac.assign([record], "remax", reward_baselines={"g": 0.75})
    own, baseline = credit.explain("a", 1).terms
    assert (own.value, baseline.value) == (sum(m.value for m in own.members), -0.75)
    assert [(1, 0.25), (2, 1.0)] == [(m.step, m.value) for m in own.members]


@dear
@given(slow.ragged, slow.policies)
def test_a_plain_loop_gives_the_same(records: list[slow.Record], policies: dict[str, str]) -> None:
    given_params = policies | {"incomplete": "keep"}
    baselines = {"g0": 0.25, "g1": -1.0, "g2": 3.0}
    expected = []
    for record in records:
        rewards = [step.get("reward") or 0.0 for step in record["steps"]]
        for t in range(len(rewards)):
            to_go = sum(rewards[t:]) + (record.get("reward") or 0.0)
            counted = slow.counts(record, records, given_params)
            expected.append(to_go - baselines[record["group"]] if counted else 0.0)
    credit = ac.assign(
        records,
        "remax",
        outcome_in_steps="no",
        truncated=policies["truncated"],
        reward_baselines=baselines,
    )
    np.testing.assert_allclose(credit.steps, expected, rtol=1e-9, atol=1e-9)
