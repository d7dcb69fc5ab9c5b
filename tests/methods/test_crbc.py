"""crbc: the card's worked example, its properties and its reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from tests.dear import dear
from tests.index.graph_worlds import Record, walks
from tests.methods.test_gigpo import EXAMPLE, rollout


def near(values: Any) -> Any:
    return pytest.approx(values, abs=6e-5)


def assign(rows: list[Record], **params: Any) -> Any:
    return ac.assign(rows, "crbc", **params)


def test_card_example() -> None:
    credit = assign(EXAMPLE, beta=0.5, step_weight=1)
    r1, r2, _, r4 = credit.by_rollout()
    assert near([0.7098, 0.8660, 1.8660]) == r1.tolist()
    assert near([-1.0223, -0.8660, -1.8660]) == r2.tolist()
    assert near([1.3348, 1.8660]) == r4.tolist()
    assert near([0.078125, 0.125, 0.25]) == credit.extras["state_values"][:3].tolist()
    assert near([0.0625, 0.125, 0.5]) == credit.extras["action_values"][:3].tolist()


def test_card_example_without_depth() -> None:
    credit = assign(EXAMPLE, beta=0.5, depth=0)
    assert near(0.0833) == credit.extras["state_values"][1]
    assert near([0.125, 0.0]) == credit.extras["action_values"][[1, 4]].tolist()


@dear
@given(walks(), st.sampled_from([0.5, 0.98]), st.sampled_from([None, 0, 1, 3]))
def test_unnormalised_credit_sums_to_zero_at_each_state(
    rows: list[Record], beta: float, depth: int | None
) -> None:
    credit = assign(rows, beta=beta, depth=depth, normalise="none", grpo_weight=0, step_weight=1)
    codes = np.array([hash((r["group"], s["state"])) for r in rows for s in r["steps"]])
    dense = np.unique(codes, return_inverse=True)[1]
    np.testing.assert_allclose(np.bincount(dense, credit.steps), 0, atol=1e-10)


@dear
@given(walks(), st.sampled_from([0.5, 0.9]))
def test_depth_zero_averages_the_step_part_of_gigpo(rows: list[Record], beta: float) -> None:
    credit = assign(rows, beta=beta, depth=0, normalise="none", grpo_weight=0, step_weight=1)
    part = ac.assign(rows, "returns", gamma=beta, singleton="zero").steps
    keys = [(r["group"], s["state"], s["action"]) for r in rows for s in r["steps"]]
    dense = np.array([sorted(set(keys)).index(k) for k in keys])
    mean = (np.bincount(dense, part) / np.bincount(dense))[dense]
    actions = {k[:2]: {b[2] for b in keys if b[:2] == k[:2]} for k in keys}
    gate = np.array([len(actions[k[:2]]) >= 2 for k in keys])
    np.testing.assert_allclose(credit.steps, np.where(gate, beta * mean, 0), atol=1e-10)


@dear
@given(walks(clean=True, deterministic=True))
def test_equals_the_one_step_form_of_graft_on_clean_deterministic_data(rows: list[Record]) -> None:
    ours = assign(rows, beta=0.9, normalise="none", grpo_weight=0, step_weight=1)
    graft = ac.assign(rows, "graft", gamma=0.9, lam=0, normalise=False)
    keys = [(r["group"], s["state"], s["action"]) for r in rows for s in r["steps"]]
    many = {k[:2] for k in keys if len({b[2] for b in keys if b[:2] == k[:2]}) >= 2}
    gate = np.array([k[:2] in many for k in keys])
    np.testing.assert_allclose(ours.steps, np.where(gate, graft.extras["td"], 0), atol=1e-10)


def test_step_weight_zero_is_grpo() -> None:
    np.testing.assert_allclose(assign(EXAMPLE, step_weight=0).steps, ac.assign(EXAMPLE, "grpo").steps)


@dear
@given(walks())
def test_duplicating_every_rollout_leaves_the_step_part(rows: list[Record]) -> None:
    twice = [*rows, *({**r, "id": f"copy {r['id']}"} for r in rows)]
    once = assign(rows).parts["step"]
    np.testing.assert_allclose(assign(twice).parts["step"], np.concatenate([once, once]), atol=1e-9)


def test_all_fail_group_gets_nothing_and_one_action_gets_nothing() -> None:
    rows = [rollout("a", 0, "A go B go"), rollout("b", 0, "A up C go")]
    assert not assign(rows).steps.any()
    same = [rollout("a", 1, "A go B go"), rollout("b", 0, "A go C go")]
    assert not assign(same).parts["step"].any()


def test_all_success_group_prefers_the_shorter_way() -> None:
    rows = [rollout("a", 1, "A go B go C go"), rollout("b", 1, "A up C go")]
    step = assign(rows).parts["step"]
    assert step[3] > 0 > step[0]


def test_a_cut_off_may_lead_on() -> None:
    rows = [
        rollout("a", 1, "A go B go"),
        rollout("b", 0, "A up", final_state="B", status="truncated"),
    ]
    closed, opened = (assign(rows, truncated=t).extras["action_values"][2] for t in ("failure", "open"))
    assert (closed, opened) == (0.0, pytest.approx(0.98**2))


def test_more_than_two_outcomes_are_a_finding_and_may_be_the_boundary() -> None:
    rows = [rollout("a", 2, "A go"), rollout("b", 0, "A up"), rollout("c", 0.5, "A no")]
    assert "ACC410" in {f.code for f in assign(rows).findings}
    credit = assign(rows, boundary="reward", beta=1, normalise="none", grpo_weight=0, step_weight=1)
    assert near([2 - 2.5 / 3, -2.5 / 3, 0.5 - 2.5 / 3]) == credit.steps.tolist()
    assert {"ACC411"} == {f.code for f in credit.findings}


def test_reward_boundary_keeps_rewards_on_the_way() -> None:
    rows = [rollout("a", 0, "A go B go"), rollout("b", 0, "A up B go")]
    rows[0]["steps"][0]["reward"] = 1.0
    credit = assign(rows, boundary="reward", beta=0.5, normalise="none", grpo_weight=0, step_weight=1)
    assert near([0.5, 0, -0.5, 0]) == credit.steps.tolist()
