"""rloo: the card's hand example, its reductions, unbiasedness by enumeration, a slow oracle."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from tests.dear import dear
from tests.methods import outcome_oracles as slow
from tests.methods.outcome_oracles import run

TIES = [0.7, 1 / 3, 0.1 + 0.2, 0.3, 0.0, 1e9 / 3]


def test_card_example() -> None:
    steps = ac.assign(run([1, 0.5, 0, 0]), "rloo").steps
    assert pytest.approx([5 / 6, 1 / 6, -0.5, -0.5], abs=1e-12) == steps.tolist()
    assert (
        pytest.approx([2 / 3, -2 / 3, -2 / 3, 2 / 3]) == ac.assign(run([1, 0, 0, 1]), "rloo").steps.tolist()
    )


@pytest.mark.parametrize("n", [2, 3, 5, 16])
def test_it_is_n_over_n_minus_1_times_dr_grpo(n: int) -> None:
    records = run(np.random.default_rng(n).normal(size=n).tolist())
    dr = ac.assign(records, "dr-grpo").steps
    np.testing.assert_allclose(ac.assign(records, "rloo").steps, n / (n - 1) * dr, rtol=1e-14)


@pytest.mark.parametrize("reward", TIES)
@pytest.mark.parametrize("n", [2, 6, 16])
@pytest.mark.parametrize("name", ["rloo", "rloo:normalise=true", "rloo:normalise=true,eps=0"])
def test_equal_rewards_get_exactly_zero(reward: float, n: int, name: str) -> None:
    assert [0.0] * n == ac.assign(run([reward] * n), name).steps.tolist()
    assert [0.0] * n == ac.assign(run([reward] * n) + run([1, 0.3], "h"), name).steps[:n].tolist()


def test_a_group_of_one_gets_zero_or_its_raw_score() -> None:
    records = run([0.5]) + run([1, 0], "h")
    assert [0, 1, -1] == ac.assign(records, "rloo").steps.tolist()
    for compat, expected in (("verl", 0.5), ("verl-vectorized", 0), ("trl", 0)):
        assert expected == ac.assign(records, "rloo", compat=compat).steps[0]


def test_an_unscored_sibling_leaves_the_baseline_and_its_divisor() -> None:
    records = run([1, 0, None, 0.5])  # type: ignore[list-item]
    assert [0.75, -0.75, 0, 0] == ac.assign(records, "rloo").steps.tolist()


def test_normalising_divides_by_the_deviation_over_the_batch() -> None:
    records = run([1, 0, 0]) + run([3, 5], "h") + run([7], "alone") + run([None], "none")  # type: ignore[list-item]
    plain = np.array([1, -0.5, -0.5, -2, 2])
    expected = [*(plain / (plain.std(ddof=1) + 1e-4)), 0, 0]
    found = ac.assign(records, "rloo", normalise=True).steps
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_normalising_centres_where_raw_scores_join() -> None:
    records = run([1, 0, 0]) + run([7], "alone")
    plain = np.array([1, -0.5, -0.5, 7])
    expected = (plain - plain.mean()) / (plain.std(ddof=1) + 1e-4)
    found = ac.assign(records, "rloo", normalise=True, singleton="raw").steps
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_several_rewards_sum_and_show_their_shares() -> None:
    records = [
        r | {"rewards": {"ok": ok, "style": style}}
        for r, ok, style in zip(run([0, 0, 0]), [1, 0, 0], [0.5, 0.5, 0], strict=True)
    ]
    for extra in ({}, {"normalise": True}):
        credit = ac.assign(
            records, "rloo", combine="sum_then_normalize", weights={"ok": 1, "style": 2}, **extra
        )
        np.testing.assert_allclose(ac.assign(run([2, 1, 0]), "rloo", **extra).steps, credit.steps, rtol=1e-12)
        np.testing.assert_allclose(sum(credit.parts.values()), credit.steps, rtol=1e-12)
    assert ["ok", "style"] == sorted(credit.parts)


def test_an_explanation_can_be_recomputed() -> None:
    (term,) = ac.assign(run([1, 0.5, 0, 0]), "rloo").explain("g1", 0).terms
    assert pytest.approx(term.value, rel=1e-12) == term.inputs["score"] - term.inputs["baseline"]
    assert "(score 0.5 - mean 0.333333 of the 3 others)" == term.formula
    (term,) = ac.assign(run([1, 0.5, 0, 0]), "rloo", normalise=True).explain("g1", 0).terms
    x = term.inputs
    expected = (x["score"] - x["baseline"] - x["batch_mean"]) / x["batch_scale"]
    assert pytest.approx(term.value, rel=1e-12) == expected


@dear
@given(slow.ragged, slow.policies, st.booleans())
def test_a_plain_loop_gives_the_same(
    records: list[slow.Record], policies: dict[str, str], normalise: bool
) -> None:
    plain: list[float | None] = []
    for record in records:
        s, group = slow.score(record), slow.members(record, records, policies)
        if not slow.counts(record, records, policies) or (
            len(group) == 1 and policies["singleton"] == "zero"
        ):
            plain.append(None)
        elif len(group) == 1:
            plain.append(s)
        else:
            plain.append(0.0 if slow.flat(group) else s - (sum(group) - s) / (len(group) - 1))
    inside = [value for value in plain if value is not None]
    expected = []
    for value in plain:
        if value is not None and normalise:
            sd = slow.std(inside)
            value = (value - slow.mean(inside)) / (sd + 1e-4)
        expected.append(value or 0.0)
    credit = ac.assign(records, "rloo", outcome_in_steps="no", normalise=normalise, **policies)
    np.testing.assert_allclose(credit.steps, slow.broadcast(records, expected), rtol=1e-9, atol=1e-8)


# -- unbiasedness, by enumeration -----------------------------------------------------------------

CHANCES, VALUES = np.array([0.2, 0.3, 0.5]), np.array([1.0, 0.25, 0.0])


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_the_expected_gradient_of_a_bandit_is_exact(n: int) -> None:
    draws = list(itertools.product(range(3), repeat=n))
    records = [
        {"id": f"{g}-{i}", "group": g, "reward": VALUES[a], "steps": [{"action": a}]}
        for g, draw in enumerate(draws)
        for i, a in enumerate(draw)
    ]
    credit = ac.assign(records, "rloo").steps.reshape(len(draws), n)
    weight = np.array([np.prod(CHANCES[list(draw)]) for draw in draws])
    found = np.einsum("g,gi,gia->a", weight, credit, np.eye(3)[np.array(draws)]) / n
    np.testing.assert_allclose(found, CHANCES * (VALUES - CHANCES @ VALUES), atol=1e-12)


def test_on_a_tree_the_expected_gradient_is_that_of_the_exact_step_advantages() -> None:
    """Two binary decisions; the policy gradient of each node's logits, over all pairs of rollouts."""
    root, below = np.array([0.3, 0.7]), np.array([[0.6, 0.4], [0.1, 0.9]])
    leaf = np.array([[1.0, 0.0], [0.5, -0.25]])
    q = (below * leaf).sum(axis=1)
    exact = [root * (q - root @ q)]
    exact += [root[a] * below[a] * (leaf[a] - q[a]) for a in range(2)]
    found = [np.zeros(2) for _ in range(3)]
    paths = list(itertools.product(range(2), repeat=2))
    for pair in itertools.product(paths, repeat=2):
        records: list[dict[str, Any]] = [
            {"id": str(i), "group": "g", "reward": leaf[a, b], "steps": [{"action": a}, {"action": b}]}
            for i, (a, b) in enumerate(pair)
        ]
        by_rollout = ac.assign(records, "rloo").by_rollout()
        chance = np.prod([root[a] * below[a, b] for a, b in pair])
        for (a, b), credit in zip(pair, by_rollout, strict=True):
            found[0] += chance / 2 * credit[0] * (np.eye(2)[a] - root)
            found[1 + a] += chance / 2 * credit[1] * (np.eye(2)[b] - below[a])
    np.testing.assert_allclose(np.array(found), np.array(exact), atol=1e-12)
