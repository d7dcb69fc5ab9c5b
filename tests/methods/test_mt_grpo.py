"""mt-grpo: the card's examples, what it reduces to, ragged rollouts, a slow loop."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.errors import MissingSignal
from tests.strategies import records

NO = {"outcome_in_steps": "no"}
PLAIN = {"odd_ids": False, "branches": False, "rows": False, "min_rollouts": 1}


def rollout(name, turns, outcome, group="g", **fields):
    steps = [{} if r is None else {"reward": r} for r in turns]
    return {"id": name, "group": group, "reward": outcome, "steps": steps} | fields


def called(name, answers, turn_reward, outcome):
    steps = [{"tool": answer} for answer in answers]
    return {"id": name, "group": "g", "reward": outcome, "turn_reward": turn_reward, "steps": steps}


CARD = [
    called("a", ["error", "result", "none"], 0.7, 1.5),
    called("b", ["result", "none"], 0.2, 0.0),
    called("c", ["error", "none"], 0.0, 0.5),
]


def test_card_example_of_the_code():
    got = ac.assign(CARD, "mt-grpo", variant="code").steps
    expected = [2.2000, 2.2000, 1.0909, -1.1501, -0.8728, -0.4326, -0.4326]
    assert pytest.approx(expected, abs=1e-4) == got.tolist()


def test_card_example_of_the_paper():
    pair = [rollout("a", [1, 0, None], 1), rollout("b", [0, 1, None], 0)]
    got = ac.assign(pair, "mt-grpo", alpha=0.5, **NO).steps
    expected = [0.5303, -0.3535, 0.7070, -0.5303, 0.3535, -0.7070]
    assert pytest.approx(expected, abs=1e-4) == got.tolist()


def z(values, eps):
    """Standardised by mean and sample deviation; 0 where nothing spreads."""
    if len(values) < 2 or max(values) - min(values) <= 1e-12 * max(1.0, *map(abs, values)):
        return [0.0] * len(values)
    mean, std = statistics.fmean(values), statistics.stdev(values)
    return [(v - mean) / (std + eps) for v in values]


def slow_paper(everyone, alpha, align, eps=1e-4):
    """The card's formula, turn by turn."""
    counted = [r for r in everyone if r.get("reward") is not None and r.get("status") != "rejected"]
    turn, outcome = {}, {}
    for group in sorted({r["group"] for r in counted}):
        same = [r for r in counted if r["group"] == group]
        outcome |= dict(zip([r["id"] for r in same], z([r["reward"] for r in same], eps), strict=True))
        sets = {}
        for r in same:
            for t, step in enumerate(r["steps"][:-1]):
                key = t if align == "turn" else step.get("state", (r["id"], t))
                sets.setdefault(key, []).append((r["id"], t, step.get("reward") or 0.0))
        for members in sets.values():
            for (name, t, _), value in zip(members, z([m[2] for m in members], eps), strict=True):
                turn[name, t] = value
    found = []
    for r in everyone:
        last = len(r["steps"]) - 1
        for k in range(len(r["steps"])):
            ahead = sum(alpha ** (j - k) * turn.get((r["id"], j), 0.0) for j in range(k, last))
            found.append(ahead + alpha ** (last - k) * outcome.get(r["id"], 0.0))
    return found


@given(
    records(fields=("reward", "step.reward", "status"), always=("reward", "step.reward"), **PLAIN),
    st.floats(0, 1),
)
def test_paper_equals_the_slow_loop(drawn, alpha):
    if any(r.get("reward") is not None for r in drawn):
        got = ac.assign(drawn, "mt-grpo", alpha=alpha, singleton="zero", **NO).steps
        np.testing.assert_allclose(got, slow_paper(drawn, alpha, "turn"), rtol=1e-9, atol=1e-9)


def test_paper_by_states_equals_the_slow_loop():
    rng = np.random.default_rng(0)
    everyone = []
    for i in range(12):
        steps = [
            {"state": str(rng.integers(3)), "reward": float(rng.random())} for _ in range(rng.integers(1, 6))
        ]
        everyone.append({"id": f"r{i}", "group": f"g{i % 2}", "reward": float(rng.random()), "steps": steps})
    got = ac.assign(everyone, "mt-grpo", alpha=0.7, align="state", **NO).steps
    np.testing.assert_allclose(got, slow_paper(everyone, 0.7, "state"), rtol=1e-9, atol=1e-12)


def test_constant_turn_rewards_with_alpha_one_give_grpo():
    four = [rollout(f"r{i}", [0.5] * (i + 1), r) for i, r in enumerate([1.0, 0.0, 0.5, 1.0])]
    plain = [r | {"steps": [{} for _ in r["steps"]]} for r in four]
    expected = ac.assign(plain, "grpo", eps=1e-4).steps
    np.testing.assert_allclose(ac.assign(four, "mt-grpo", **NO).steps, expected, rtol=1e-9)
    assert [True] * 10 == (ac.assign(four, "mt-grpo", **NO).parts["turn"] == 0).tolist()


def test_weight_zero_of_the_code_gives_grpo_where_a_tool_answered():
    got = ac.assign(CARD, "mt-grpo", variant="code", turn_advantage_coef=0).steps
    expected = ac.assign(CARD, "grpo", eps=1e-4).steps
    np.testing.assert_allclose(got[:5], expected[:5], rtol=1e-9)
    np.testing.assert_allclose(ac.assign(CARD, "grpo-or").steps, expected, rtol=1e-9)


def test_merged_is_grpo_on_the_sum():
    summed = [r | {"reward": r["reward"] + r["turn_reward"]} for r in CARD]
    expected = ac.assign(summed, "grpo", eps=1e-4).steps
    np.testing.assert_allclose(ac.assign(CARD, "grpo-mr").steps, expected, rtol=1e-9)


def test_alpha_zero_lets_a_turn_see_only_itself_and_the_last_one_the_outcome():
    pair = [rollout("a", [1, 0, None], 1), rollout("b", [0, 1, None], 0)]
    got = ac.assign(pair, "mt-grpo", alpha=0, eps=0, **NO).steps
    h = 0.5**0.5
    assert pytest.approx([h, -h, h, -h, h, -h]) == got.tolist()


def test_shift_and_scale_of_turn_rewards_change_nothing_but_what_eps_does():
    rng = np.random.default_rng(1)
    turns = rng.random((5, 3))
    base = [rollout(f"r{i}", turns[i].tolist(), float(i % 2)) for i in range(5)]
    moved = [rollout(f"r{i}", (7 + 3 * turns[i]).tolist(), float(i % 2)) for i in range(5)]
    np.testing.assert_allclose(
        ac.assign(base, "mt-grpo", eps=0, **NO).steps,
        ac.assign(moved, "mt-grpo", eps=0, **NO).steps,
        rtol=1e-9,
    )


def test_each_term_sums_to_zero_over_its_set():
    rng = np.random.default_rng(2)
    ragged = [rollout(f"r{i}", rng.random(1 + i % 3).tolist(), float(i % 2)) for i in range(7)]
    credit = ac.assign(ragged, "mt-grpo", **NO)
    position = np.concatenate([np.arange(len(r["steps"])) for r in ragged])
    sums = np.bincount(position, credit.parts["turn"])
    assert pytest.approx([0.0] * 3, abs=1e-12) == sums.tolist()
    first = np.array([steps[0] for steps in credit.by_rollout()])
    assert pytest.approx(0.0, abs=1e-9) == first.sum()


def test_a_turn_that_only_one_rollout_goes_on_from_has_no_turn_term():
    pair = [rollout("a", [1, 5, None], 1), rollout("b", [0, None], 0)]
    parts = ac.assign(pair, "mt-grpo", **NO).parts
    assert 0.0 == parts["turn"][1]
    assert 0.0 != parts["turn"][0]


def test_a_group_of_one_gets_zero_and_is_counted():
    alone = [rollout("a", [1, 0], 1, "x"), rollout("b", [1, 0], 1), rollout("c", [0, 0], 0)]
    credit = ac.assign(alone, "mt-grpo", **NO)
    assert [0.0, 0.0] == credit.by_rollout()[0].tolist()
    assert 1 == credit.fallbacks["singleton"]


def test_turns_without_a_reward_count_as_zero_and_are_counted():
    pair = [rollout("a", [None, None], 1), rollout("b", [1, None], 0)]
    credit = ac.assign(pair, "mt-grpo", **NO)
    assert 1 == credit.fallbacks["no_turn_reward"]
    assert credit.parts["turn"][0] < 0 < credit.parts["turn"][2]


def test_a_reward_on_the_last_turn_is_not_used_and_a_finding_says_so():
    pair = [rollout("a", [1, 9], 1), rollout("b", [0, 0], 0)]
    credit = ac.assign(pair, "mt-grpo", **NO)
    assert ["ACC422"] == [f.code for f in credit.findings]
    plain = [rollout("a", [1, None], 1), rollout("b", [0, None], 0)]
    np.testing.assert_array_equal(credit.steps, ac.assign(plain, "mt-grpo", **NO).steps)


def test_one_turn_gets_the_outcome_alone():
    pair = [rollout("a", [5], 1), rollout("b", [0], 0)]
    assert pytest.approx([0.70701, -0.70701], abs=1e-4) == ac.assign(pair, "mt-grpo", **NO).steps.tolist()


def test_code_without_tool_names_the_field():
    with pytest.raises(MissingSignal, match="tool"):
        ac.assign([rollout("a", [1], 1), rollout("b", [1], 0)], "mt-grpo", variant="code")


def test_states_are_named_where_they_are_needed():
    with pytest.raises(MissingSignal, match="state"):
        ac.assign([rollout("a", [1], 1), rollout("b", [1], 0)], "mt-grpo", align="state")


def test_an_unknown_answer_is_no_result_and_a_finding_says_so():
    odd = [called("a", ["ok", "none"], 0.5, 1.0), called("b", ["result", "none"], 0.1, 0.0)]
    credit = ac.assign(odd, "mt-grpo", variant="code")
    assert ["ACC427"] == [f.code for f in credit.findings]
    assert credit.parts["merged"][0] > 0


def test_sum_of_step_rewards_stands_in_for_the_turn_reward():
    summed = [r | {"turn_reward": None} for r in CARD]
    for record, parts in zip(summed, ([0.5, 0.2], [0.2], []), strict=True):
        for step, reward in zip(record["steps"], parts, strict=False):
            step["reward"] = reward
    expected = ac.assign(CARD, "mt-grpo", variant="code").steps
    np.testing.assert_allclose(ac.assign(summed, "mt-grpo", variant="code", **NO).steps, expected, rtol=1e-9)


@pytest.mark.parametrize("variant", ["paper", "code"])
def test_explain_can_be_recomputed(variant):
    everyone = CARD if variant == "code" else [rollout("a", [1, 0, None], 1), rollout("b", [0, 1, None], 0)]
    credit = ac.assign(everyone, "mt-grpo", variant=variant, alpha=0.5, **NO)
    for r, name in enumerate(credit.batch.ids):
        for t, value in enumerate(credit.by_rollout()[r]):
            found = credit.explain(name, t)
            assert pytest.approx(value, abs=1e-12) == sum(term.value for term in found.terms)
            for term in found.terms:
                n = term.inputs
                if "std" in n:
                    own = n.get("score", n.get("turn reward"))
                    again = n["weight"] * (own - n["mean"]) / (n["std"] + n["eps"])
                    assert pytest.approx(term.value, abs=1e-12) == again
