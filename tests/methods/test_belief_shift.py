"""Belief-shift: global and local advantage of the nodes of a forest."""

from __future__ import annotations

import math
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given

import accredit as ac
from tests.dear import dear
from tests.methods.tree_oracles import Path, Record, Slow, grown


def slow(t: Slow) -> list[list[float]]:
    value = t.leaf_mean(t.reward)

    def credit(n: Path) -> float:
        mu = fmean(t.siblings(n, value, t.reward))
        return ((value[n] - value[n[:2]]) + (value[n] - mu)) / math.sqrt(len(t.leaves(n)))

    return t.steps(credit)


@dear
@given(records=grown())
def test_credit_equals_the_slow_loop(records: list[Record]) -> None:
    """Seen failing with mu weighted by leaves."""
    credit = ac.assign(records, "belief-shift")
    for found, want in zip(credit.by_rollout(), slow(Slow(records)), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-9)


def chains(rewards: list[list[float]], fork: int = 1, steps: int = 3) -> list[Record]:
    """One chain a row, forked at one step into the row's other rollouts."""
    found: list[Record] = []
    for c, row in enumerate(rewards):
        for i, reward in enumerate(row):
            record: Record = {"id": f"{c}.{i}", "group": "g", "reward": reward, "steps": [{}] * steps}
            found.append(record | ({"parent": f"{c}.0", "fork_step": fork} if i else {}))
    return found


def test_worked_example_of_the_card() -> None:
    rows = ac.assign(chains([[1, 1, 0], [0, 0, 0]]), "belief-shift").by_rollout()
    third = round(-1 / 3, 4)
    assert [round(float(r[0]), 4) for r in rows] == [0.3849] * 3 + [-0.3849] * 3
    assert [round(float(r[1]), 4) for r in rows] == [1.0, 1.0, -1.0] + [third] * 3
    assert all(r[1] == r[2] for r in rows)


def test_local_credit_sums_to_zero_at_each_fork() -> None:
    credit = ac.assign(chains([[1, 0.5, 0], [0, 0.25, 0]]), "belief-shift")
    local = credit.parts["local"].reshape(6, 3)
    assert local[:3, 2].sum() == pytest.approx(0)
    assert local[3:, 2].sum() == pytest.approx(0)


def test_without_forks_it_is_twice_the_centred_outcome() -> None:
    rewards = [1.0, 0.0, 0.25, 0.5]
    credit = ac.assign(chains([[r] for r in rewards]), "belief-shift").by_rollout()
    for row, r in zip(credit, rewards, strict=True):
        np.testing.assert_allclose(row, 2 * (r - fmean(rewards)))


def test_a_chain_that_was_not_forked_is_one_node() -> None:
    """Its value is its outcome, its siblings are the other chains' beginnings."""
    rows = ac.assign(chains([[1, 0], [1]]), "belief-shift").by_rollout()
    alone = (1 - 2 / 3) + (1 - 0.75)
    np.testing.assert_allclose(rows[2], alone)
    np.testing.assert_allclose(rows[0][0], ((0.5 - 2 / 3) + (0.5 - 0.75)) / math.sqrt(2))


def test_forks_at_the_start_hang_under_the_root() -> None:
    fresh = ac.assign(chains([[1, 0, 0]], fork=0), "belief-shift")
    apart = ac.assign(chains([[1], [0], [0]]), "belief-shift")
    np.testing.assert_allclose(fresh.steps, apart.steps)


def test_equal_outcomes_have_no_credit() -> None:
    assert not ac.assign(chains([[1, 1, 1], [1, 1, 1]]), "belief-shift").steps.any()
