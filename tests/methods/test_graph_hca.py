"""graph-hca: the card's worked example, its properties and its reductions."""

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
    credit = ac.assign(EXAMPLE, "graph-hca", discount=0.5, floor=0.01)
    r1, r2, _, r4 = credit.by_rollout()
    assert near([0.4700, 0.6931, 1.3863]) == credit.extras["credit"][:3].tolist()
    assert near([1.1632]) == credit.extras["credit"][9:10].tolist()
    assert near([-3.2189]) == credit.extras["credit"][8:9].tolist()
    assert near([0.3660, 0.8660, 1.5731]) == r1.tolist()
    assert near([-1.3660, -0.8660, -1.5731]) == r2.tolist()
    assert near([2.3660, 1.5731]) == r4.tolist()


@dear
@given(walks(), st.sampled_from(["open", "state", "virtual"]))
def test_log_increments_telescope(rows: list[Record], terminal: str) -> None:
    credit = ac.assign(rows, "graph-hca", terminal=terminal)
    psi = np.log(np.maximum(credit.extras["state_values"], 0.01))
    end = np.log(np.maximum(credit.extras["next_values"], 0.01))
    for r in range(len(rows)):
        steps = credit.batch.steps_of(r)
        total = credit.extras["credit"][steps.start : steps.stop].sum()
        assert total == pytest.approx(end[steps[-1]] - psi[steps[0]], abs=1e-9)


@dear
@given(walks(clean=True), st.sampled_from([0.5, 0.95]))
def test_potential_is_the_value_of_crbc_on_clean_graphs(rows: list[Record], discount: float) -> None:
    phi = ac.assign(rows, "graph-hca", discount=discount).extras["state_values"]
    value = ac.assign(rows, "crbc", beta=discount).extras["state_values"]
    np.testing.assert_allclose(phi, value, atol=1e-10)


@dear
@given(walks(clean=True, deterministic=True))
def test_mean_ratio_of_a_state_is_one_over_the_discount(rows: list[Record]) -> None:
    credit = ac.assign(rows, "graph-hca", discount=0.9, floor=1e-9)
    phi = credit.extras["state_values"]
    ratio = np.divide(credit.extras["next_values"], phi, out=np.zeros_like(phi), where=phi > 1e-6)
    keys = [(r["group"], s["state"]) for r in rows for s in r["steps"]]
    dense = np.array([sorted(set(keys)).index(k) for k in keys])
    mean = np.bincount(dense, ratio) / np.bincount(dense)
    live = np.bincount(dense, phi) > 1e-6
    np.testing.assert_allclose(mean[live], 1 / 0.9, rtol=1e-6)


def test_step_weight_zero_is_grpo() -> None:
    credit = ac.assign(EXAMPLE, "graph-hca", step_weight=0)
    np.testing.assert_allclose(credit.steps, ac.assign(EXAMPLE, "grpo").steps)


def test_all_fail_group_gets_nothing_and_all_success_gets_progress() -> None:
    fail = [rollout("a", 0, "A go B go"), rollout("b", 0, "A up C go")]
    assert not ac.assign(fail, "graph-hca").steps.any()
    win = [rollout("a", 1, "A go B go C go"), rollout("b", 1, "A up C go")]
    assert near([-0.7071, 0.7071]) == ac.assign(win, "graph-hca").parts["step"][[0, 3]].tolist()


def test_goal_and_failure_in_one_state_is_a_goal() -> None:
    rows = [rollout("a", 1, "A go", final_state="X"), rollout("b", 0, "A up", final_state="X")]
    assert 1.0 == ac.assign(rows, "graph-hca").extras["next_values"][1]


def test_max_prefers_the_lucky_shortcut_and_mean_the_sure_way() -> None:
    rows = [rollout("lucky", 1, "A dash")] + [rollout(f"d{i}", 0, "A dash") for i in range(9)]
    rows += [rollout(f"s{i}", 1, "A walk B walk C walk") for i in range(10)]
    potentials = {
        kind: ac.assign(rows, "graph-hca", aggregator=kind).extras["state_values"][0]
        for kind in ("mean", "max")
    }
    assert potentials["max"] == pytest.approx(0.95)
    assert potentials["mean"] == pytest.approx(0.5 * 0.95 * 0.1 + 0.5 * 0.95**3)


def test_a_floor_above_the_reach_of_the_discount_is_a_finding() -> None:
    rows = [rollout("a", 1, "A go B go C go D go E go"), rollout("b", 0, "A go")]
    codes = {f.code for f in ac.assign(rows, "graph-hca", discount=0.3).findings}
    assert "ACC413" in codes
