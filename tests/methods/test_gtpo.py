"""gtpo and grpo-s: the card's hand example, slow oracles, positions, one-sided groups."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given

import accredit as ac
from tests.dear import dear
from tests.methods.token_rollouts import one, told, walk


def standard(values):
    mean = sum(values) / len(values)
    var = sum((x - mean) ** 2 for x in values) / len(values)
    return lambda x: 0.0 if max(values) == min(values) else (x - mean) / math.sqrt(var + 1e-8)


CARD = [one("a", 1.0, [1.0]), one("b", 1.0, [3.0]), one("c", 0.0, [0.5]), one("d", 0.0, [2.0])]


def test_card_example():
    credit = ac.assign(CARD, "gtpo")
    assert pytest.approx([1.05, 1.15, -1.16, -1.04]) == credit.extras["shaped"].tolist()
    assert pytest.approx([-1, 1, -1, 1], abs=1e-5) == credit.tokens.tolist()


def slow(batch, a1, a2):
    tokens = walk(batch)
    shaped = {}
    for t in tokens:
        if not t.counted:
            continue
        won = t.reward >= 0.5
        there = [
            u
            for u in tokens
            if u.counted and u.group == t.group and u.place == t.place and (u.reward >= 0.5) == won
        ]
        if won:
            share = t.entropy / (sum(u.entropy for u in there) + 1e-8)
            shaped[id(t)] = a1 * t.reward + a2 * share * len(there)
        else:
            share = 1 / (t.entropy + 1e-8) / sum(1 / (u.entropy + 1e-8) for u in there)
            shaped[id(t)] = -a1 - a2 * share * len(there)
    found = []
    for t in tokens:
        side = [
            shaped[id(u)]
            for u in tokens
            if u.counted and u.group == t.group and (u.reward >= 0.5) == (_won(t))
        ]
        found.append(standard(side)(shaped[id(t)]) if t.counted else 0.0)
    return [shaped.get(id(t), 0.0) for t in tokens], found


def _won(token):
    return token.reward is not None and token.reward >= 0.5


@dear
@given(told(rewards=(0.0, 1.0, 0.75)))
def test_equals_the_slow_form(records):
    records = [*records, one("x", 1.0, [0.5], group="g0"), one("y", 0.0, [0.25], group="g0")]
    batch = ac.Batch.from_records(records)
    credit = ac.assign(batch, "gtpo", alpha_2=0.3)
    shaped, expected = slow(batch, 1.0, 0.3)
    np.testing.assert_allclose(credit.extras["shaped"], shaped, rtol=1e-9)
    flat = np.abs(expected) < 1e-3  # sides that spread by rounding or the epsilon alone
    np.testing.assert_allclose(credit.tokens[~flat], np.array(expected)[~flat], rtol=1e-4)
    assert (np.abs(credit.tokens[flat]) < 2e-3).all()


def test_a_rollout_of_several_steps_is_one_row_of_positions():
    records = [one("a", 1.0, [1.0], [], [2.0]), one("b", 1.0, [3.0, 2.0])]
    credit = ac.assign(records, "gtpo")
    assert [0, 1, 0, 1] == credit.extras["position"].tolist()
    assert pytest.approx([1.05, 1.1, 1.15, 1.1]) == credit.extras["shaped"].tolist()


def test_separate_standardising_leaves_nothing_of_the_outcome_and_is_told():
    records = [one("a", 1.0, [1.0, 0.2]), one("b", 1.0, [3.0, 0.9]), one("c", 0.0, [0.5, 1.0])]
    credit = ac.assign(records, "gtpo")
    assert not credit.parts["outcome"].any()
    assert 0.0 == pytest.approx(credit.tokens[:4].sum())
    told_of = [f for f in credit.findings if f.code == "ACC443"]
    assert ["2 of 4 tokens of successes (50%) get a negative advantage"] == [f.message for f in told_of]


def test_equal_entropies_give_zero_and_graded_outcomes_stay():
    records = [one("a", 1.0, [1.0, 1.0]), one("b", 1.0, [1.0]), one("c", 0.0, [1.0])]
    assert np.abs(ac.assign(records, "gtpo").tokens).max() < 1e-4
    graded = [one("a", 1.0, [1.0]), one("b", 0.5, [1.0])]
    credit = ac.assign(graded, "gtpo")
    assert pytest.approx([1, -1], abs=1e-5) == credit.tokens.tolist() == credit.parts["outcome"].tolist()


def test_zero_entropies_share_nothing_in_successes_and_take_the_blame_in_failures():
    records = [one("a", 1.0, [0.0]), one("b", 1.0, [0.0]), one("c", 0.0, [0.0]), one("d", 0.0, [1.0])]
    shaped = ac.assign(records, "gtpo").extras["shaped"]
    assert pytest.approx([1.0, 1.0, -1.2, -1.0], abs=1e-6) == shaped.tolist()


def test_it_takes_no_base():
    with pytest.raises(ac.AccreditError, match="takes no base"):
        ac.assign(CARD, "gtpo", base="grpo")


# -- grpo-s --------------------------------------------------------------------------------------------


def test_grpo_s_by_hand():
    credit = ac.assign(CARD, "grpo-s")
    shaped = [1.05, 1.15, -1.16, -1.04]
    assert pytest.approx(shaped) == credit.extras["shaped"].tolist()
    assert pytest.approx([standard(shaped)(x) for x in shaped]) == credit.steps.tolist()
    assert 0.0 == pytest.approx(credit.steps.sum())


@dear
@given(told(rewards=(0.0, 1.0, 0.75)))
def test_grpo_s_equals_the_slow_form(records):
    records = [*records, one("x", 1.0, [0.5], group="g0"), one("y", 0.0, [0.25], group="g0")]
    batch = ac.Batch.from_records(records)
    credit = ac.assign(batch, "grpo-s")
    rows = {}
    for r, record in enumerate(records):
        own = [t.entropy for t in walk(batch) if t.r == r]
        if record.get("reward") is not None and record.get("status") != "rejected" and own:
            rows[r] = (record["group"], record["reward"], sum(own) / len(own))
    shaped = {}
    for r, (group, reward, mean) in rows.items():
        side = [m for g, x, m in rows.values() if g == group and (x >= 0.5) == (reward >= 0.5)]
        if reward >= 0.5:
            shaped[r] = reward + 0.1 * len(side) * mean / (sum(side) + 1e-8)
        else:
            shaped[r] = -1 - 0.1 * len(side) / (mean + 1e-8) / sum(1 / (m + 1e-8) for m in side)
    for r in range(len(batch)):
        expected = (
            standard([shaped[q] for q in rows if rows[q][0] == rows[r][0]])(shaped[r]) if r in rows else 0
        )
        for value in credit.by_rollout()[r]:
            assert pytest.approx(expected, rel=1e-4, abs=2e-3) == value


def test_a_rollout_without_tokens_joins_nothing():
    credit = ac.assign([*CARD, one("e", 1.0, [])], "grpo-s")
    assert 1 == credit.fallbacks["no_tokens"]
    assert ac.assign(CARD, "grpo-s").steps.tolist() == credit.steps.tolist()[:4]
    assert 0.0 == credit.steps[4]
