"""graft: the card's worked example, its properties and its reductions."""

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


def test_card_example() -> None:
    credit = ac.assign(EXAMPLE, "graft", gamma=0.5, lam=1)
    td = credit.extras["td"]
    assert near([-0.015625, 0.0, 0.25]) == td[:3].tolist()
    assert near([0.046875, 0.25]) == td[9:].tolist()
    np.testing.assert_allclose(td, credit.extras["graph_gae"], atol=1e-12)
    r1, r2, r3, r4 = credit.by_rollout()
    assert near([-0.5, 0, 0.7071]) == r1.tolist()
    assert near([-0.5, 0, -0.7071]) == r2.tolist()
    assert near([-0.5, 0, -0.7071]) == r3.tolist()
    assert near([1.5, 0.7071]) == r4.tolist()


@dear
@given(walks(), st.sampled_from(["open", "state", "virtual"]))
def test_one_step_credit_telescopes_along_a_rollout(rows: list[Record], terminal: str) -> None:
    gamma = 0.9
    credit = ac.assign(rows, "graft", gamma=gamma, lam=0, normalise=False, terminal=terminal)
    value, after = credit.extras["state_values"], credit.extras["next_values"]
    for r in range(len(rows)):
        steps = list(credit.batch.steps_of(r))
        total = sum(gamma**t * credit.steps[s] for t, s in enumerate(steps))
        expected = gamma ** len(steps) * after[steps[-1]] - value[steps[0]]
        assert total == pytest.approx(expected, abs=1e-9)


@dear
@given(walks(clean=True), st.sampled_from([0.3, 1.0]))
def test_graph_gae_is_a_no_op_on_clean_graphs_and_says_so(rows: list[Record], lam: float) -> None:
    credit = ac.assign(rows, "graft", lam=lam, normalise=False)
    np.testing.assert_allclose(credit.extras["td"], credit.extras["graph_gae"], atol=1e-12)
    assert ["Graph GAE changes nothing here: at exact values the mean residual of a state is 0"] == [
        f.message for f in credit.findings if f.code == "ACC412"
    ]


def test_graph_gae_acts_where_a_cut_off_state_is_left_by_others() -> None:
    rows = [
        rollout("a", 1, "A go B go C go", final_state="WIN"),
        rollout("b", 0, "A go", final_state="B", status="truncated"),
    ]
    paper = ac.assign(rows, "graft", compat="paper", normalise=False)
    assert np.abs(paper.extras["td"] - paper.extras["graph_gae"]).max() > 0.1
    ours = ac.assign(rows, "graft", normalise=False)
    np.testing.assert_allclose(ours.extras["td"], ours.extras["graph_gae"], atol=1e-12)


def test_a_single_step_keeps_its_sign_and_noise_gets_nothing() -> None:
    rows = [rollout("a", 1, "A go B go"), rollout("b", 0, "A up C go")]
    credit = ac.assign(rows, "graft", gamma=0.9)
    assert 0.0 == credit.steps[1]
    assert near([0.7071, -0.7071]) == credit.steps[[0, 2]].tolist()
    stay = [
        rollout("a", 1, "A go B go", final_state="B", status="truncated"),
        rollout("b", 0, "B no", final_state="END"),
    ]
    assert near(1.0) == abs(ac.assign(stay, "graft", compat="paper").steps[0])


def test_distinct_edges_give_each_edge_one_vote() -> None:
    rows = [rollout(f"w{i}", 1, "A go B x") for i in range(3)] + [rollout("l", 0, "A up C x")]
    by_step = ac.assign(rows, "graft").steps[[0, 6]]
    by_edge = ac.assign(rows, "graft", group="distinct_edges").steps[[0, 6]]
    assert near([0.5, -1.5]) == by_step.tolist()
    assert near([0.7071, -0.7071]) == by_edge.tolist()


def test_uniform_action_weights_average_actions_not_visits() -> None:
    rows = [rollout(f"w{i}", 1, "A go") for i in range(3)] + [rollout("l", 0, "A up")]
    kwargs: dict[str, Any] = {"gamma": 1.0, "normalise": False, "lam": 0}
    assert 0.75 == ac.assign(rows, "graft", **kwargs).extras["state_values"][0]
    uniform = ac.assign(rows, "graft", action_weight="uniform", **kwargs)
    assert 0.5 == uniform.extras["state_values"][0]


def test_all_fail_and_equal_groups_get_nothing() -> None:
    rows = [rollout("a", 0, "A go B go"), rollout("b", 0, "A up C go")]
    assert not ac.assign(rows, "graft").steps.any()


def test_a_failed_rollouts_good_early_step_gets_positive_credit() -> None:
    rows = [
        rollout("a", 1, "A good B win"),
        rollout("b", 0, "A good B lose"),
        rollout("c", 0, "A bad C lose"),
    ]
    assert ac.assign(rows, "graft").by_rollout()[1][0] > 0
