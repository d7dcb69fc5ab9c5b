"""gae: the card's example, its properties one by one, options, a slow loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.errors import MissingSignal, ParamError
from tests.dear import dear
from tests.methods import value_oracles as slow
from tests.strategies import records

FIELDS = ("reward", "step.reward", "status", "terminated", "final_value", "value", "n_tokens")
PLAIN = {"odd_ids": False, "branches": False, "rows": False, "min_rollouts": 1, "min_steps": 1}
rates = {"gamma": st.floats(0, 1), "lam": st.floats(0, 1)}
options = st.fixed_dictionaries(
    {
        **rates,
        "missing": st.sampled_from(["carry-back", "interpolate"]),
        "truncation": st.sampled_from(["terminal", "drop"]),
        "outcome": st.sampled_from(["include", "ignore"]),
    }
)


def rollout(values, reward=1.0, name="a", **fields):
    steps = [{"value": v} for v in values]
    return {"id": name, "group": "g", "reward": reward, "steps": steps} | fields


def by_tokens(tokens, reward=1.0, **fields):
    return {
        "id": "a",
        "group": "g",
        "reward": reward,
        "steps": [{"token_values": v} for v in tokens],
    } | fields


def steps_of(record, **params):
    return ac.assign([record], "gae", **params).steps.tolist()


@pytest.mark.parametrize(
    ("lam", "expected"), [(0, [-0.1, -0.2, 0.8]), (1, [0.5, 0.6, 0.8]), (0.9, [0.368, 0.52, 0.8])]
)
def test_card_example(lam, expected):
    assert pytest.approx(expected) == steps_of(rollout([0.5, 0.4, 0.2]), lam=lam)


def _has_values_and_rewards(drawn):
    scored = any(record.get("reward") is not None for record in drawn)
    return scored and any(step.get("value") is not None for record in drawn for step in record["steps"])


@dear
@given(records(fields=FIELDS, always=("reward", "value"), **PLAIN).filter(_has_values_and_rewards), options)
def test_turns_equal_the_slow_loop(drawn, params):
    got = ac.assign(drawn, "gae", granularity="turn", outcome_in_steps="no", **params).by_rollout()
    for record, steps in zip(drawn, got, strict=True):
        np.testing.assert_allclose(steps, slow.turns(record, params), rtol=1e-9, atol=1e-6)


@dear
@given(
    records(
        fields=("reward", "step.reward", "status", "final_value", "token_values", "n_tokens"),
        always=("reward", "token_values", "n_tokens"),
        holes=False,
        **PLAIN,
    ),
    st.fixed_dictionaries({**rates, "truncation": st.sampled_from(["terminal", "drop"])}),
)
def test_tokens_equal_the_slow_loop(drawn, params):
    credit = ac.assign(drawn, "gae", granularity="token", outcome_in_steps="no", **params)
    for record, steps in zip(drawn, credit.tokens_by_rollout(), strict=True):
        got = np.concatenate(steps)
        np.testing.assert_allclose(got, slow.tokens(record, params), rtol=1e-9, atol=1e-6)


@dear
@given(records(fields=FIELDS, always=("reward", "value"), holes=False, **PLAIN))
def test_lambda_one_is_the_return_minus_the_value(drawn):
    credit = ac.assign(drawn, "gae", lam=1, gamma=0.9, outcome="ignore", outcome_in_steps="no")
    moved = [
        record | {"steps": [step | {"value": step["value"] + 1.0} for step in record["steps"]]}
        for record in drawn
    ]
    other = ac.assign(moved, "gae", lam=1, gamma=0.9, outcome="ignore", outcome_in_steps="no")
    np.testing.assert_allclose(credit.extras["returns"], other.extras["returns"], rtol=1e-9, atol=1e-6)


def test_the_groups_mean_as_value_gives_dr_grpo():
    outcomes = [1.0, 0.0, 0.25, 1.0]
    mean = sum(outcomes) / 4
    batch = [rollout([mean] * (i + 1), r, f"r{i}") for i, r in enumerate(outcomes)]
    expected = ac.assign(batch, "dr-grpo").steps
    np.testing.assert_allclose(ac.assign(batch, "gae", lam=1).steps, expected, rtol=1e-9, atol=1e-12)


def test_the_mean_of_the_others_as_value_gives_rloo():
    outcomes = [1.0, 0.0, 0.25, 1.0]
    batch = [rollout([(sum(outcomes) - r) / 3] * 2, r, f"r{i}") for i, r in enumerate(outcomes)]
    expected = ac.assign(batch, "rloo").steps
    np.testing.assert_allclose(ac.assign(batch, "gae", lam=1).steps, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.95, 1.0])
def test_an_error_of_the_values_spreads_as_the_formula_says(lam):
    value, error = np.array([0.5, 0.4, 0.2, 0.6]), np.array([0.3, -0.1, 0.2, 0.05])
    right = np.array(steps_of(rollout(value.tolist()), lam=lam))
    wrong = np.array(steps_of(rollout((value + error).tolist()), lam=lam))
    later = [sum(lam ** (i - t - 1) * error[i] for i in range(t + 1, 4)) for t in range(4)]
    np.testing.assert_allclose(wrong, right - error + (1 - lam) * np.array(later), rtol=1e-9)


def _lottery():
    """Every path of a two-step lottery, its probability, and the exact values of its states.

    Action a in {0, 1} with probability (.5, .5), then a coin that pays 1 with probability (.8, .2).
    """
    for a in (0, 1):
        for won in (0, 1):
            chance = 0.5 * (0.8 if a == 0 else 0.2) if won else 0.5 * (0.2 if a == 0 else 0.8)
            yield a, won, chance, [0.5, 0.8 if a == 0 else 0.2]


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_exact_values_give_the_exact_advantage_in_the_mean(lam):
    mean, by_action = np.zeros(2), {0: 0.0, 1: 0.0}
    for a, won, chance, values in _lottery():
        steps = np.array(steps_of(rollout(values, float(won)), lam=lam))
        mean += chance * steps
        by_action[a] += chance / 0.5 * steps[0]
    assert pytest.approx([0.0, 0.0], abs=1e-12) == mean.tolist()
    assert pytest.approx({0: 0.3, 1: -0.3}) == by_action


def test_variance_grows_with_lambda():
    def variance(lam):
        return sum(p * steps_of(rollout(v, float(won)), lam=lam)[0] ** 2 for _, won, p, v in _lottery())

    assert variance(0.0) < variance(0.5) < variance(1.0)


def test_observations_change_nothing_by_default():
    bare = by_tokens([[0.1, 0.5], [0.3]])
    seen = by_tokens([[0.1, 0.5], [0.3]])
    for step in seen["steps"]:
        step["context_tokens"] = [7, 8, 9]
    assert ac.assign([bare], "gae").tokens.tolist() == ac.assign([seen], "gae").tokens.tolist()


def test_reset_cuts_the_credit_where_an_observation_follows():
    steps = [
        {"token_values": [0.1, 0.5], "context_tokens": [1]},
        {"token_values": [0.3], "context_tokens": []},
        {"token_values": [0.7], "context_tokens": [5]},
    ]
    record = {"id": "a", "group": "g", "reward": 1.0, "steps": steps}
    credit = ac.assign([record], "gae", observation="reset", lam=1)
    assert pytest.approx([0.4 - 0.2 + 0.4, -0.2 + 0.4, 0.4, 0.3]) == credit.tokens.tolist()
    assert pytest.approx([0.6, 0.4, 0.3]) == credit.steps.tolist()


def test_reset_cuts_at_every_turn_where_context_is_not_recorded():
    credit = ac.assign([by_tokens([[0.1, 0.5], [0.3], [0.7]])], "gae", observation="reset", lam=1)
    assert pytest.approx([0.2, -0.2, 0.4, 0.3]) == credit.tokens.tolist()


def test_step_credit_of_tokens_at_lambda_zero_is_the_sum_of_its_tokens():
    credit = ac.assign([by_tokens([[0.1, 0.5], [], [0.3], []])], "gae", granularity="token", lam=0)
    sums = [float(np.sum(tokens)) for tokens in credit.tokens_by_rollout()[0]]
    assert pytest.approx(sums) == credit.steps.tolist()
    assert pytest.approx(0.9) == credit.steps.sum()


def test_step_credit_of_tokens_at_lambda_one_is_its_first_tokens():
    credit = ac.assign([by_tokens([[0.1, 0.5], [0.3, 0.2]])], "gae", granularity="token", lam=1)
    assert pytest.approx([credit.tokens[0], credit.tokens[2]]) == credit.steps.tolist()


def test_reward_of_a_step_without_tokens_moves_to_the_token_before_it_or_the_first_after():
    steps = [
        {"token_values": [], "reward": 0.25},
        {"token_values": [0.0, 0.0]},
        {"token_values": [], "reward": 0.5},
    ]
    record = {"id": "a", "group": "g", "reward": 1.0, "steps": steps}
    credit = ac.assign([record], "gae", granularity="token", lam=0)
    assert [0.25, 1.5] == credit.tokens.tolist()
    assert [0.0, 1.75, 0.0] == credit.steps.tolist()


def test_a_rollout_without_policy_tokens_is_counted_by_tokens():
    credit = ac.assign([by_tokens([[0.1]]), by_tokens([[]]) | {"id": "b"}], "gae", granularity="token")
    assert 1 == credit.fallbacks["no_policy_tokens"]
    assert 0.0 == credit.steps[1]


def test_turns_broadcast_to_the_tokens_of_the_turn():
    steps = [{"value": 0.5, "n_tokens": 2}, {"value": 0.25, "n_tokens": 1}]
    credit = ac.assign([{"id": "a", "group": "g", "reward": 1, "steps": steps}], "gae", lam=0)
    assert [-0.25, -0.25, 0.75] == credit.tokens.tolist()
    halves = ac.assign(
        [{"id": "a", "group": "g", "reward": 1, "steps": steps}], "gae", lam=0, spread="divide"
    )
    assert [-0.125, -0.125, 0.75] == halves.tokens.tolist()


def test_equal_pairs_of_the_two_levels_give_the_plain_scan():
    record = by_tokens([[0.1, 0.5], [0.3, 0.2, 0.9], [0.7]])
    pairs = {"gamma_tok": 0.9, "gamma_turn": 0.9, "lam_tok": 0.8, "lam_turn": 0.8}
    expected = ac.assign([record], "gae", gamma=0.9, lam=0.8).tokens
    np.testing.assert_allclose(ac.assign([record], "gae", levels=2, **pairs).tokens, expected, rtol=1e-9)


def test_two_levels_by_hand():
    record = by_tokens([[0.1, 0.5], [0.3, 0.2]])
    credit = ac.assign([record], "gae", levels=2, lam_tok=0.5, lam_turn=0.25)
    second = [-0.1 + 0.5 * 0.8, 0.8]
    first_last = -0.2 + 0.25 * second[0]
    assert pytest.approx([0.4 + 0.5 * first_last, first_last, *second]) == credit.tokens.tolist()


def test_lambda_turn_zero_cuts_all_turns_apart():
    credit = ac.assign([by_tokens([[0.1, 0.5], [0.3, 0.2]])], "gae", levels=2, lam_turn=0)
    alone = ac.assign([by_tokens([[0.3, 0.2]])], "gae", granularity="token", lam=1)
    assert pytest.approx([0.2, -0.2]) == credit.tokens[:2].tolist()
    np.testing.assert_allclose(credit.tokens[2:], alone.tokens, rtol=1e-9)


def test_two_levels_need_tokens():
    with pytest.raises(ParamError, match="granularity"):
        steps_of(rollout([0.5]), levels=2, granularity="turn")
    with pytest.raises(MissingSignal, match="token_values"):
        steps_of(rollout([0.5]), levels=2)


def test_auto_prefers_the_values_of_steps():
    steps = [{"value": 0.5, "token_values": [0.1, 0.2]}]
    record = {"id": "a", "group": "g", "reward": 1.0, "steps": steps}
    assert [0.5, 0.5] == ac.assign([record], "gae").tokens.tolist()
    assert not ac.assign([record], "gae").per_token
    token_run = ac.assign([record], "gae", granularity="token", lam=1)
    assert pytest.approx([0.9, 0.8]) == token_run.tokens.tolist()


def test_whitening_is_over_all_policy_tokens_and_keeps_returns_raw():
    pair = [by_tokens([[0.1, 0.5], [0.3]]), by_tokens([[0.2, 0.6]], 0.0) | {"id": "b"}]
    raw, white = ac.assign(pair, "gae"), ac.assign(pair, "gae", whiten=True)
    expected = (raw.tokens - raw.tokens.mean()) / np.sqrt(raw.tokens.var(ddof=1) + 1e-8)
    np.testing.assert_allclose(white.tokens, expected, rtol=1e-9)
    np.testing.assert_array_equal(raw.extras["returns"], white.extras["returns"])
    held = [pair[0], pair[1] | {"trainable": False}]
    some = ac.assign(held, "gae", whiten=True).tokens
    np.testing.assert_allclose(some, [*expected[:3], 0.0, 0.0], rtol=1e-9)


def test_whitening_of_turns_weighs_them_by_their_tokens():
    steps = [{"value": 0.5, "n_tokens": 3}, {"value": 0.25, "n_tokens": 1}]
    unscored = {"id": "b", "group": "g", "reward": None, "steps": steps}
    batch = [{"id": "a", "group": "g", "reward": 1, "steps": steps}, unscored]
    raw = np.repeat(ac.assign(batch, "gae").steps[:2], [3, 1])
    expected = (raw - raw.mean()) / np.sqrt(raw.var(ddof=1) + 1e-8)
    got = ac.assign(batch, "gae", whiten=True)
    np.testing.assert_allclose(got.tokens[:4], expected, rtol=1e-9)
    assert [0.0, 0.0] == got.steps[2:].tolist()


def test_whitening_one_token_gives_zero():
    assert [0.0] == ac.assign([by_tokens([[0.5]])], "gae", whiten=True).tokens.tolist()


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("granularity", ["turn", "token"])
def test_explain_can_be_recomputed(granularity, whiten):
    steps = [{"value": v, "token_values": [v, 0.3]} for v in (0.5, 0.4, 0.2)]
    record = {"id": "a", "group": "g", "reward": 1.0, "steps": steps}
    credit = ac.assign([record], "gae", granularity=granularity, whiten=whiten, gamma=0.9)
    for t in range(3):
        found = credit.explain("a", t)
        terms = {term.name: term for term in found.terms}
        n = terms["surprise"].inputs
        assert pytest.approx(terms["surprise"].value) == n["r"] + n["gamma"] * n["next"] - n["value"]
        if "later" in terms:
            n = terms["later"].inputs
            assert pytest.approx(terms["later"].value) == n["carry"] * n["next_credit"]
            assert 2 - t == len(terms["later"].members)
        if whiten:
            n = terms["whitening"].inputs
            again = (n["raw"] - n["mean"]) / (n["var"] + n["eps"]) ** 0.5 - n["raw"]
            assert pytest.approx(terms["whitening"].value) == again
        assert pytest.approx(credit.steps[t]) == sum(term.value for term in found.terms)


def test_presets_name_what_other_code_does():
    record = by_tokens([[0.1, 0.5], [0.3]])
    expected = ac.assign([record], "gae", granularity="token", lam=1, whiten=True).tokens
    np.testing.assert_array_equal(ac.assign([record], "gae", compat="verl").tokens, expected)
    assert 0.99 == ac.assign([rollout([0.5])], "gae", compat="sb3").params["gamma"]
