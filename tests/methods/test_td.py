"""td: it telescopes, it is gae at lambda 0, and gaps and ends are what was asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import accredit as ac
from accredit.errors import DataError, MissingSignal
from tests.dear import dear
from tests.strategies import records

FIELDS = ("reward", "step.reward", "status", "terminated", "final_value", "value", "n_tokens")
complete = records(
    fields=FIELDS,
    always=("reward", "value"),
    holes=False,
    odd_ids=False,
    branches=False,
    rows=False,
    min_rollouts=1,
    min_steps=1,
)


def rollout(values, reward=1.0, **fields):
    return {"id": "a", "group": "g", "reward": reward, "steps": [{"value": v} for v in values]} | fields


def test_card_example():
    credit = ac.assign([rollout([0.5, 0.4, 0.2])], "td")
    assert pytest.approx([-0.1, -0.2, 0.8]) == credit.steps.tolist()
    assert pytest.approx(0.5) == credit.steps.sum()


@dear
@given(complete)
def test_credit_of_a_rollout_sums_to_its_return_minus_the_first_value(drawn):
    credit = ac.assign(drawn, "td", outcome_in_steps="no")
    for record, steps in zip(drawn, credit.by_rollout(), strict=True):
        if record.get("status") == "rejected":
            continue
        cut = (record.get("status") == "truncated" and record.get("terminated") is not True) or (
            record.get("terminated") is False
        )
        paid = sum(step.get("reward") or 0.0 for step in record["steps"])
        end = (record.get("final_value") or 0.0) if cut else 0.0
        expected = record["reward"] + paid + end - record["steps"][0]["value"]
        assert pytest.approx(expected, rel=1e-9, abs=1e-6) == steps.sum()


@dear
@given(complete)
def test_td_is_gae_at_lambda_zero(drawn):
    kwargs = {"outcome_in_steps": "no", "gamma": 0.9}
    expected = ac.assign(drawn, "gae", lam=0, granularity="turn", **kwargs)
    np.testing.assert_array_equal(expected.steps, ac.assign(drawn, "td", **kwargs).steps)


def test_discounted_surprises_sum_to_the_discounted_return():
    credit = ac.assign([rollout([0.5, 0.4, 0.2])], "td", gamma=0.5)
    weights = 0.5 ** np.arange(3)
    assert pytest.approx(0.25 * 1.0 - 0.5) == (weights * credit.steps).sum()


def test_a_constant_on_all_values_and_the_end_changes_nothing():
    cut = {"status": "truncated"}
    before = ac.assign([rollout([0.5, 0.4], final_value=0.3, **cut)], "td").steps
    after = ac.assign([rollout([2.5, 2.4], final_value=2.3, **cut)], "td").steps
    np.testing.assert_allclose(before, after, rtol=1e-9)


def test_the_first_value_changes_only_the_first_credit():
    before = ac.assign([rollout([0.5, 0.4, 0.2])], "td").steps
    after = ac.assign([rollout([0.1, 0.4, 0.2])], "td").steps
    assert pytest.approx([0.4, 0.0, 0.0]) == (after - before).tolist()


def test_a_cut_off_rollout_is_worth_what_its_end_is_worth():
    cut = rollout([0.5, 0.4], 0.0, status="truncated", final_value=0.7)
    assert pytest.approx([-0.1, 0.3]) == ac.assign([cut], "td").steps.tolist()


@pytest.mark.parametrize(("terminated", "last"), [(True, -0.4), (None, 0.3), (False, 0.3)])
def test_terminated_says_whether_the_end_bootstraps(terminated, last):
    cut = rollout([0.5, 0.4], 0.0, status="truncated", final_value=0.7, terminated=terminated)
    assert pytest.approx([-0.1, last]) == ac.assign([cut], "td").steps.tolist()


def test_an_end_of_unknown_value_is_counted_and_follows_the_option():
    cut = [rollout([0.5, 0.4], 0.25, status="truncated")]
    terminal = ac.assign(cut, "td")
    assert pytest.approx([-0.1, -0.15]) == terminal.steps.tolist()
    assert [("ACC421", 1)] == [(f.code, f.count) for f in terminal.findings]
    assert 1 == terminal.fallbacks["unknown_end"]
    assert pytest.approx([-0.1, 0.0]) == ac.assign(cut, "td", truncation="drop").steps.tolist()


def test_a_missing_value_is_an_error_that_names_the_place():
    holes = [rollout([0.5, None, 0.2])]
    with pytest.raises(DataError, match=r"ACC420.*rollout 'a' step 1"):
        ac.assign(holes, "td")


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_an_error_that_names_the_place(bad):
    with pytest.raises(DataError, match=r"ACC420.*rollout 'a' step 1"):
        ac.assign([rollout([0.5, bad, 0.2])], "td")


def test_carry_back_gives_no_surprise_where_the_value_is_missing():
    credit = ac.assign([rollout([0.5, None, None])], "td", missing="carry-back")
    assert pytest.approx([0.5, 0.0, 0.0]) == credit.steps.tolist()
    assert 2 == credit.fallbacks["missing_value"]
    assert 1 / 3 == credit.coverage["steps"]


def test_interpolation_is_linear_and_flat_before_the_first_known_value():
    credit = ac.assign([rollout([None, 0.6, None, 0.2])], "td", missing="interpolate")
    assert pytest.approx([0.6, 0.6, 0.4, 0.2]) == credit.extras["values"].tolist()
    trailing = ac.assign([rollout([0.6, None, None])], "td", missing="interpolate")
    assert pytest.approx([0.6, 0.4, 0.2]) == trailing.extras["values"].tolist()
    bare = [rollout([None, None]), rollout([0.6]) | {"id": "b"}]
    assert [0.0, 0.0, 0.6] == ac.assign(bare, "td", missing="interpolate").extras["values"].tolist()


def test_an_unscored_rollout_has_no_credit_unless_the_outcome_is_ignored():
    unscored = rollout([0.5, 0.4], None)
    unscored["steps"][0]["reward"] = 1.0
    both = [unscored, rollout([0.5]) | {"id": "b"}]
    assert [0.0, 0.0, 0.5] == ac.assign(both, "td").steps.tolist()
    assert pytest.approx([0.9, -0.4, -0.5]) == ac.assign(both, "td", outcome="ignore").steps.tolist()


def test_without_any_reward_the_option_is_named():
    with pytest.raises(MissingSignal, match="outcome='ignore'"):
        ac.assign([{"id": "a", "group": "g", "steps": [{"value": 1.0}]}], "td")


def test_values_of_tokens_serve_where_steps_have_none():
    steps = [{"token_values": [0.5, 9.0]}, {"token_values": [0.25, 9.0, 9.0]}]
    credit = ac.assign([{"id": "a", "group": "g", "reward": 1, "steps": steps}], "td")
    assert [-0.25, 0.75] == credit.steps.tolist()
    assert [-0.25] * 2 + [0.75] * 3 == credit.tokens.tolist()


def test_equal_values_and_rewards_get_exactly_zero():
    assert [0.0, 0.0, 0.0] == ac.assign([rollout([0.7, 0.7, 0.7], 0.7)], "td").steps.tolist()


def test_explain_shows_the_arithmetic():
    found = ac.assign([rollout([0.5, 0.4, 0.2])], "td", gamma=0.9).explain("a", 1)
    term = found.terms[0]
    again = term.inputs["r"] + term.inputs["gamma"] * term.inputs["next"] - term.inputs["value"]
    assert pytest.approx(term.value) == again
    assert "gamma 0.9 x next value 0.2 - value 0.4" in found.text()
