from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from accredit.oracle import solve
from accredit.worlds import Noise, make, make_policy, sample


def test_both_truths_and_the_success_rate_are_exact():
    task = make("rooms", seed=1)
    exact = solve(task, make_policy(task, 0.2))
    assert exact.residual < 1e-12
    assert 0.2 == pytest.approx(exact.success_rate, abs=1e-9)
    assert exact.value == pytest.approx(exact.success_rate)
    drawn = sample(task, groups=4, success_rate=0.2)
    code = exact.keys.code_HN[drawn.time_S, drawn.node_S]
    assert drawn.truth.advantage_key == pytest.approx(exact.A_key[code, drawn.action_S])


def test_the_mean_of_the_truth_by_key_under_the_policy_is_that_of_the_full_truth():
    task = make("rooms", seed=1)
    policy = make_policy(task, 0.5)
    exact = solve(task, policy, noise=Noise(alias=0.5))
    weight = exact.occupancy[:, :, None] * policy.probs_NA
    by_key = exact.A_key[exact.keys.code_HN]
    assert (weight * exact.A).sum((0, 1)) == pytest.approx((weight * by_key).sum((0, 1)), abs=1e-12)


def test_criticality_is_the_spread_over_allowed_actions():
    task = make("keydoor", seed=0)
    exact = solve(task, make_policy(task, 0.5))
    start = task.keys.index("Place 0: a key. You hold 0 of 1 keys.")
    assert 1.0 == pytest.approx(exact.spread[0, start])
    assert exact.critical[0, start]
    assert not exact.critical[1:][:, [s for s in range(task.n_states) if s != start]].any()


def test_each_role_has_its_own_truth():
    task = make("selfplay", seed=0)
    first, second = (solve(task, make_policy(task), role=role) for role in ("first", "second"))
    assert first.value == pytest.approx(-second.value)
    assert first.A == pytest.approx(-second.A)


def test_tables_that_do_not_solve_the_equations_are_refused():
    task = make("rooms", seed=1)
    broken = dataclasses.replace(task)
    broken.__dict__["matrix"] = task.matrix * (1 + 1e-6)
    with pytest.raises(ArithmeticError, match="Bellman"):
        solve(broken, make_policy(task))


def test_values_of_every_family_are_finite():
    for family in ("rooms", "team", "coop", "dag"):
        task = make(family, seed=0)
        exact = solve(task, make_policy(task, 0.5))
        assert np.isfinite(exact.V).all()
        assert np.isfinite(exact.A_key).all()
