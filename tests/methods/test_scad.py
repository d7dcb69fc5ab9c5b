"""scad: the card's worked example, its properties and edge cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import accredit as ac


def near(values: Any) -> Any:
    return pytest.approx(values, abs=6e-5)


def plan(subtask: str, report: str | None) -> dict[str, Any]:
    return {"agent": "planner", "action": subtask, "report": report, "n_tokens": 1}


def work(delta: float) -> dict[str, Any]:
    return {"agent": "worker", "logprobs": [-1.0], "logprobs_teacher": [-1.0 + delta]}


def rollout(name: str, reward: float, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"id": name, "group": "g", "reward": reward, "steps": list(steps)}


EXAMPLE = [
    rollout("r1", 1, plan("a", "r"), work(0.2), plan("c", None)),
    rollout("r2", 1, plan("a", "other"), work(0.2), plan("c", None)),
    rollout("r3", 0, plan("a", "r"), work(0.2), plan("d", None)),
    rollout("r4", 0, plan("b", "r"), work(0.2)),
]


def test_card_example() -> None:
    credit = ac.assign(EXAMPLE, "scad")
    r1, r2, r3, _ = credit.by_rollout()
    assert near([-0.5774, 0.2, -1.7321]) == r3.tolist()
    assert near(0.8660 + 0.2) == r1[1]
    assert near(0.8660) == r2[2]
    raw = ac.assign(EXAMPLE, "scad", tree_scale="raw").extras["tree_credit"]
    assert near([0.1667, 0, 0.5]) == raw[:3].tolist()
    assert near(-0.5) == raw[9]


def test_tree_credit_sums_to_zero_at_a_branching_node_without_shrinkage() -> None:
    raw = ac.assign(EXAMPLE, "scad", tree_scale="raw", kappa=0).extras["tree_credit"]
    assert raw[[0, 3, 6, 9]].sum() == pytest.approx(0, abs=1e-12)
    assert raw[[2, 8]].sum() == pytest.approx(0, abs=1e-12)


def test_without_tree_and_teacher_it_is_grpo_and_its_positive_part() -> None:
    credit = ac.assign(EXAMPLE, "scad", tree_weight=0, teacher_weight=0)
    grpo = ac.assign(EXAMPLE, "grpo").steps
    worker = [1, 4, 7, 10]
    np.testing.assert_allclose(np.delete(credit.steps, worker), np.delete(grpo, worker))
    np.testing.assert_allclose(credit.steps[worker], np.maximum(grpo[worker], 0))


def test_a_negative_outcome_never_lowers_the_teacher() -> None:
    rows = [rollout("a", 1, plan("x", "r"), work(-9.0)), rollout("b", 0, plan("y", "r"), work(0.4))]
    credit = ac.assign(rows, "scad")
    assert near(0.4) == credit.by_rollout()[1][1]
    assert near(0.7071 - 5.0) == credit.by_rollout()[0][1]


def test_no_teacher_is_a_finding() -> None:
    rows = [rollout("a", 1, plan("x", "r")), rollout("b", 0, plan("y", "r"))]
    assert {"ACC416"} == {f.code for f in ac.assign(rows, "scad").findings}


def test_a_missing_report_is_never_shared() -> None:
    rows = [
        rollout("a", 1, plan("x", None), plan("c", None)),
        rollout("b", 0, plan("x", None), plan("d", None)),
    ]
    assert not ac.assign(rows, "scad").extras["tree_credit"].any()


def test_a_report_that_is_shared_opens_the_comparison() -> None:
    rows = [
        rollout("a", 1, plan("x", "same"), plan("c", None)),
        rollout("b", 0, plan("x", "same"), plan("d", None)),
    ]
    tree = ac.assign(rows, "scad", tree_scale="raw").extras["tree_credit"]
    assert near([0, 0.5, 0, -0.5]) == tree.tolist()


def test_parents_prior_is_hierarchical_shrinkage() -> None:
    group, parent = (
        ac.assign(EXAMPLE, "scad", tree_scale="raw", prior=p, kappa=3).extras["tree_credit"][2]
        for p in ("group", "parent")
    )
    root = (2 + 3 * 0.5) / 7
    assert near(1 - (1 + 3 * 0.5) / 5) == group
    assert near(1 - (1 + 3 * root) / 5) == parent


def test_other_roles_get_grpo_and_role_names_are_ours_to_choose() -> None:
    rows = [
        rollout("a", 1, {"agent": "boss", "action": "x"}),
        rollout("b", 0, {"agent": "boss", "action": "y"}),
    ]
    np.testing.assert_allclose(ac.assign(rows, "scad").steps, ac.assign(rows, "grpo").steps)
    assert ac.assign(rows, "scad", planner="boss").extras["tree_credit"].any()


def test_on_a_two_stage_problem_tree_credit_goes_to_q_minus_v() -> None:
    rng = np.random.default_rng(0)
    success = {"x": 0.8, "y": 0.2}
    rows = []
    for i in range(4000):
        subtask = "x" if rng.random() < 0.25 else "y"
        rows.append(rollout(str(i), float(rng.random() < success[subtask]), plan(subtask, "r")))
    tree = ac.assign(rows, "scad", tree_scale="raw").extras["tree_credit"]
    value = 0.25 * 0.8 + 0.75 * 0.2
    for subtask, q in success.items():
        got = tree[[row["steps"][0]["action"] == subtask for row in rows]][0]
        assert got == pytest.approx(q - value, abs=4 * 0.5 / 1000**0.5)
