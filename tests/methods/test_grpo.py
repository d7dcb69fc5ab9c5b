"""grpo: the card's hand example, its forms, odd groups, several rewards, a slow oracle."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.errors import MissingSignal, ParamError
from tests.dear import dear
from tests.methods import outcome_oracles as slow
from tests.methods.outcome_oracles import run

TIES = [0.7, 1 / 3, 0.1 + 0.2, 0.3, 0.0, 1e9 / 3, -0.7]


def test_card_example() -> None:
    group = run([1, 0, 0, 1])
    expected = [0.8660, -0.8660, -0.8660, 0.8660]
    assert pytest.approx(expected, abs=5e-5) == ac.assign(group, "grpo").steps.tolist()
    assert [0.5, -0.5, -0.5, 0.5] == ac.assign(group, "dr-grpo").steps.tolist()


def test_card_example_of_pass_at_k() -> None:
    group = run([1, 0.5, 0.25])
    assert pytest.approx([1.3093, 0, 0], abs=5e-5) == ac.assign(group, "grpo-passk").steps.tolist()
    assert [0.5, 0, 0] == ac.assign(group, "grpo-passk", scale="none").steps.tolist()


def test_a_tie_for_the_best_gets_zero_under_pass_at_k() -> None:
    assert not ac.assign(run([0.3, 0.1 + 0.2, 0]), "grpo-passk").steps.any()


def test_eps_is_added_to_the_deviation() -> None:
    expected = 0.5 / (np.sqrt(1 / 3) + 0.25)
    assert pytest.approx(expected, rel=1e-12) == ac.assign(run([1, 0, 0, 1]), "grpo", eps=0.25).steps[0]


@pytest.mark.parametrize("p", [1, 3, 7])
def test_binary_rewards_give_the_closed_form(p: int) -> None:
    n, rate = 8, p / 8
    steps = ac.assign(run([1] * p + [0] * (n - p)), "grpo", eps=0).steps
    shrink = (n - 1) / n
    assert pytest.approx(np.sqrt((1 - rate) / rate * shrink), rel=1e-12) == steps[0]
    assert pytest.approx(-np.sqrt(rate / (1 - rate) * shrink), rel=1e-12) == steps[-1]


@pytest.mark.parametrize("reward", TIES)
@pytest.mark.parametrize("n", [2, 6, 8, 16])
@pytest.mark.parametrize("name", ["grpo", "dr-grpo", "grpo-passk", "grpo:scale=batch", "grpo:eps=0"])
def test_equal_rewards_get_exactly_zero(reward: float, n: int, name: str) -> None:
    assert [0.0] * n == ac.assign(run([reward] * n), name).steps.tolist()
    mixed = run([reward] * n) + run([1, 0], "h")
    assert [0.0] * n == ac.assign(mixed, name).steps[:n].tolist()


def test_a_group_of_one_gets_zero_or_its_raw_score() -> None:
    records = run([0.5]) + run([1, 0], "h")
    assert 0.0 == ac.assign(records, "grpo").steps[0]
    assert 0.5 / (1 + 1e-6) == ac.assign(records, "grpo", singleton="raw").steps[0]
    assert 0.5 == ac.assign(records, "dr-grpo", singleton="raw").steps[0]
    assert {"singleton": 1} == ac.assign(records, "grpo").fallbacks


def test_unscored_nan_and_rejected_rollouts_leave_the_statistics() -> None:
    odd = run([None, float("nan"), 5.0], "x")  # type: ignore[list-item]
    odd = [r | {"group": "g"} for r in odd]
    odd[2]["status"] = "rejected"
    credit = ac.assign(run([1, 0, 0, 1]) + odd, "dr-grpo")
    assert [0.5, -0.5, -0.5, 0.5, 0, 0, 0] == credit.steps.tolist()
    assert {"rejected": ("x2",), "unscored": ("x0", "x1")} == credit.uncounted


def test_a_group_without_any_score_gets_zero() -> None:
    credit = ac.assign(run([None, None]) + run([1, 0], "h"), "dr-grpo")  # type: ignore[list-item]
    assert [0, 0, 0.5, -0.5] == credit.steps.tolist()
    assert ("g0", "g1") == credit.uncounted["unscored"]


def test_rollouts_without_any_score_are_refused() -> None:
    with pytest.raises(MissingSignal, match="needs reward or rewards, which these rollouts lack"):
        ac.assign(run([None, None]), "grpo")  # type: ignore[list-item]


def test_truncated_rollouts_count_unless_dropped() -> None:
    records = run([1, 0, 0, 1])
    records[0]["truncated"] = True
    assert 0.5 == ac.assign(records, "dr-grpo").steps[0]
    dropped = ac.assign(records, "dr-grpo", truncated="drop")
    assert pytest.approx([0, -1 / 3, -1 / 3, 2 / 3]) == dropped.steps.tolist()
    assert {"truncated": ("g0",)} == dropped.uncounted


def test_incomplete_groups_count_unless_dropped() -> None:
    records = run([1, 0, 1], "a") + run([1, 0, 0], "b") + run([1, 0], "c")
    dropped = ac.assign(records, "dr-grpo", incomplete="drop")
    assert [0.0, 0.0] == dropped.steps[-2:].tolist()
    assert {"incomplete": ("c0", "c1")} == dropped.uncounted
    np.testing.assert_array_equal(ac.assign(records, "dr-grpo").steps[:6], dropped.steps[:6])


def test_a_rollout_in_several_rows_counts_once() -> None:
    records = run([1, 0, 0])
    rows = [records[0] | {"row": row} for row in range(3)]
    steps = ac.assign([*rows, *records[1:]], "dr-grpo").steps.tolist()
    assert pytest.approx([2 / 3] * 3 + [-1 / 3] * 2) == steps


def test_untrained_rollouts_count_and_their_tokens_get_zero() -> None:
    records = run([1, 0])
    records[0]["trainable"] = False
    credit = ac.assign(records, "dr-grpo")
    assert ([0.5, -0.5], [0.0, -0.5]) == (credit.steps.tolist(), credit.tokens.tolist())


def test_step_rewards_join_the_score() -> None:
    records = run([1, 0])
    records[1]["steps"] = [{"n_tokens": 1, "reward": 0.25}, {"n_tokens": 0}]
    credit = ac.assign(records, "dr-grpo")
    assert [0.375, -0.375, -0.375] == credit.steps.tolist()
    assert [0.375, -0.375] == credit.tokens.tolist()


def test_an_empty_rollout_counts_in_the_mean() -> None:
    records = [*run([1, 0]), {"id": "e", "group": "g", "reward": 0.5, "steps": []}]
    assert [0.5, -0.5] == ac.assign(records, "dr-grpo").steps.tolist()


# -- levels of centre and scale -------------------------------------------------------------------


def test_batch_scale_takes_the_deviation_of_all_scores() -> None:
    records = run([1, 0], "a") + run([10, 0, 5], "b")
    sd = np.std([1, 0, 10, 0, 5], ddof=1)
    expected = np.array([0.5, -0.5, 5, -5, 0]) / (sd + 1e-4)
    np.testing.assert_allclose(
        ac.assign(records, "grpo", compat="trl", scale="batch").steps, expected, rtol=1e-12
    )


def test_batch_centre_subtracts_the_mean_of_all_scores() -> None:
    records = run([1, 0], "a") + run([3, 4], "b")
    assert [-1, -2, 1, 2] == ac.assign(records, "grpo", centre="batch", scale="none").steps.tolist()


def test_no_centre_leaves_the_score() -> None:
    records = run([1, 0], "a") + run([3, 4], "b")
    assert [1, 0, 3, 4] == ac.assign(records, "grpo", centre="none", scale="none").steps.tolist()


# -- several rewards ------------------------------------------------------------------------------


def several(*rewards: dict[str, float | None], group: str = "g") -> list[dict[str, Any]]:
    return [
        {"id": f"{group}{i}", "group": group, "reward": 9.0, "rewards": r, "steps": [{"n_tokens": 1}]}
        for i, r in enumerate(rewards)
    ]


TWO = several(
    {"ok": 1, "style": 0.5}, {"ok": 0, "style": 0.25}, {"ok": 0, "style": 0}, {"ok": 1, "style": 0.25}
)


def test_one_reward_under_sum_then_normalize_is_plain_grpo() -> None:
    one = several({"ok": 1}, {"ok": 0}, {"ok": 0.25})
    expected = ac.assign(run([1, 0, 0.25]), "grpo").steps
    np.testing.assert_array_equal(expected, ac.assign(one, "grpo", combine="sum_then_normalize").steps)


def test_sum_then_normalize_weighs_and_sums() -> None:
    credit = ac.assign(TWO, "grpo", combine="sum_then_normalize", weights={"ok": 2, "style": 4})
    plain = ac.assign(run([4, 1, 0, 3]), "grpo")
    np.testing.assert_allclose(credit.steps, plain.steps, rtol=1e-12)
    assert {"ok", "style"} == set(credit.parts)
    np.testing.assert_allclose(sum(credit.parts.values()), credit.steps, rtol=1e-12)
    sd = np.std([4, 1, 0, 3], ddof=1) + 1e-6
    np.testing.assert_allclose(credit.parts["ok"], np.array([1, -1, -1, 1]) / sd, rtol=1e-12)


def test_unused_inputs_are_listed() -> None:
    credit = ac.assign(TWO, "grpo", combine="sum_then_normalize", weights={"ok": 1})
    assert ("rewards.style", "reward") == credit.result.unused
    assert ("rewards.ok", "rewards.style") == ac.assign(TWO, "grpo").result.unused


def test_normalize_then_sum_scales_each_reward_in_its_group_first() -> None:
    records = TWO + several({"ok": 10, "style": 0}, {"ok": 0, "style": 0}, group="h")
    credit = ac.assign(
        records, "grpo", combine="normalize_then_sum", weights={"ok": 1, "style": 0.5}, eps=1e-4
    )

    def z(values: list[float]) -> np.ndarray:
        x = np.array(values, float)
        return (x - x.mean()) / (x.std(ddof=1) + 1e-4)

    total = np.concatenate([z([1, 0, 0, 1]) + 0.5 * z([0.5, 0.25, 0, 0.25]), z([10, 0])])
    expected = (total - total.mean()) / (total.std(ddof=1) + 1e-4)
    np.testing.assert_allclose(credit.steps, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(sum(credit.parts.values()), credit.steps, rtol=1e-9, atol=1e-12)


def test_absent_rewards_are_left_out_and_counted() -> None:
    records = several(
        {"ok": 1, "style": None}, {"ok": 0, "style": 0.5}, {"ok": None}, {"ok": 1, "style": 0.5}
    )
    credit = ac.assign(records, "grpo", combine="sum_then_normalize", scale="none")
    mean = (1 + 0.5 + 1.5) / 3
    assert pytest.approx([1 - mean, 0.5 - mean, 0, 1.5 - mean], abs=1e-12) == credit.steps.tolist()
    assert 1 == credit.fallbacks["reward_absent"]
    assert {"unscored": ("g2",)} == credit.uncounted


def test_an_absent_reward_does_not_move_its_siblings_under_normalize_then_sum() -> None:
    records = several({"a": 1, "b": 3}, {"a": 0, "b": 1}, {"a": 1}, {"a": 0, "b": 2})
    credit = ac.assign(records, "grpo", combine="normalize_then_sum", eps=0)
    a = np.array([1, -1, 1, -1]) / np.std([1, 0, 1, 0], ddof=1) / 2
    total = a + np.array([1, -1, 0, 0])
    np.testing.assert_allclose(credit.steps, total / total.std(ddof=1), rtol=1e-9, atol=1e-12)


def test_a_gate_zeroes_the_combined_score() -> None:
    credit = ac.assign(TWO, "dr-grpo", combine="sum_then_normalize", gates={"ok": 0})
    gated = np.array([1.5, 0, 0, 1.25])
    np.testing.assert_allclose(credit.steps, gated - gated.mean(), rtol=1e-12)


def test_rewards_alone_are_enough_when_they_are_combined() -> None:
    bare = [{k: v for k, v in r.items() if k != "reward"} for r in TWO]
    assert ac.assign(bare, "grpo", combine="sum_then_normalize").steps.any()
    with pytest.raises(MissingSignal, match="no `reward`, only several `rewards`"):
        ac.assign(bare, "grpo")


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"weights": {"ok": 1}}, "weights is for several rewards"),
        ({"gates": {"ok": 0}}, "gates is for several rewards"),
        ({"combine": "sum_then_normalize", "weights": {"okay": 1}}, "weights names the reward 'okay'"),
        ({"combine": "sum_then_normalize", "gates": {"okay": 1}}, "gates names the reward 'okay'"),
        ({"combine": "sum_then_normalize", "weights": {}}, "weights names no reward"),
        (
            {"combine": "sum_then_normalize", "weights": {"ok": "1"}},
            "weights of 'ok' must be a finite number",
        ),
        ({"combine": "normalize_then_sum", "scale": "none"}, "normalize_then_sum"),
        ({"combine": "normalize_then_sum", "variant": "passk"}, "normalize_then_sum"),
        ({"variant": "passk", "centre": "batch"}, "centre='batch' has no meaning"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(params: dict[str, Any], words: str) -> None:
    with pytest.raises(ParamError, match=words):
        ac.assign(TWO, "grpo", **params)


def test_combining_needs_rewards() -> None:
    with pytest.raises(MissingSignal, match="needs `rewards`"):
        ac.assign(run([1, 0]), "grpo", combine="sum_then_normalize")


# -- explanations ---------------------------------------------------------------------------------

CASES: list[dict[str, Any]] = [
    {},
    {"scale": "none"},
    {"scale": "batch"},
    {"centre": "batch"},
    {"centre": "none"},
    {"variant": "passk"},
    {"singleton": "raw"},
    {"combine": "sum_then_normalize"},
    {"combine": "normalize_then_sum"},
]


@pytest.mark.parametrize("params", CASES, ids=str)
def test_the_terms_of_an_explanation_add_up(params: dict[str, Any]) -> None:
    records = (
        TWO
        + several({"ok": 0.7, "style": 0.1}, {"ok": 0.1, "style": 0.7}, group="tie")
        + several({"ok": 1}, group="one")
    )
    credit = ac.assign(records, "grpo", **params)
    for r, name in enumerate(credit.batch.ids):
        found = credit.explain(name, 0)
        assert credit.steps[r] == found.value
        assert pytest.approx(credit.steps[r], abs=1e-12) == sum(term.value for term in found.terms)


def test_an_explanation_can_be_recomputed() -> None:
    (term,) = ac.assign(run([1, 0, 0, 1]), "grpo").explain("g0", 0).terms
    x = term.inputs
    assert pytest.approx(term.value, rel=1e-12) == (x["score"] - x["mean"]) / (x["std"] + x["eps"])
    assert [1, 0, 0, 1] == [member.value for member in term.members]


# -- oracle and gradients -------------------------------------------------------------------------


@dear
@given(
    slow.ragged,
    slow.policies,
    st.sampled_from(["group", "batch", "none"]),
    st.sampled_from(["group", "batch", "none"]),
)
def test_a_plain_loop_gives_the_same(
    records: list[slow.Record], policies: dict[str, str], scale: str, centre: str
) -> None:
    batch = [slow.score(r) for r in records if slow.counts(r, records, policies)]
    expected = []
    for record in records:
        s, group = slow.score(record), slow.members(record, records, policies)
        level = {"group": group, "batch": batch, "none": []}
        if not slow.counts(record, records, policies):
            value = 0.0
        elif len(group) == 1:
            raw = s if scale == "none" else s / (1 + 1e-6)
            value = raw if policies["singleton"] == "raw" else 0.0
        else:
            value = s - (slow.mean(level[centre]) if level[centre] else 0.0)
            value = 0.0 if centre != "none" and slow.flat(level[centre]) else value
            sd = slow.std(level[scale])
            value = value if scale == "none" else value / (sd + 1e-6) if sd > 0 else 0.0
        expected.append(value)
    credit = ac.assign(records, "grpo", outcome_in_steps="no", scale=scale, centre=centre, **policies)
    np.testing.assert_allclose(credit.steps, slow.broadcast(records, expected), rtol=1e-9, atol=1e-7)


@dear
@given(slow.ragged, slow.policies)
def test_a_plain_loop_of_pass_at_k_gives_the_same(
    records: list[slow.Record], policies: dict[str, str]
) -> None:
    expected = []
    for record in records:
        s, group = slow.score(record), slow.members(record, records, policies)
        if not slow.counts(record, records, policies):
            value = 0.0
        elif len(group) == 1:
            value = s if policies["singleton"] == "raw" else 0.0
        else:
            second, best = sorted(group)[-2:]
            value = best - second if s == best and not slow.flat([best, second]) else 0.0
        expected.append(value)
    credit = ac.assign(records, "grpo-passk", outcome_in_steps="no", scale="none", **policies)
    np.testing.assert_allclose(credit.steps, slow.broadcast(records, expected), rtol=1e-9, atol=1e-9)


def bandit_gradient(method: str, n: int, **params: Any) -> np.ndarray:
    """The expected mean of A_i onehot(a_i) over groups of n, by enumeration of all groups."""
    chances, values = np.array([0.2, 0.3, 0.5]), [1.0, 0.25, 0.0]
    draws = list(itertools.product(range(3), repeat=n))
    records = [
        {"id": f"{g}-{i}", "group": g, "reward": values[a], "steps": [{"action": a}]}
        for g, draw in enumerate(draws)
        for i, a in enumerate(draw)
    ]
    credit = ac.assign(records, method, **params).steps.reshape(len(draws), n)
    weight = np.array([np.prod(chances[list(draw)]) for draw in draws])
    onehot = np.eye(3)[np.array(draws)]
    return np.einsum("g,gi,gia->a", weight, credit, onehot) / n


def exact_gradient() -> np.ndarray:
    chances, values = np.array([0.2, 0.3, 0.5]), np.array([1.0, 0.25, 0.0])
    return chances * (values - chances @ values)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_mean_only_form_is_the_policy_gradient_times_n_minus_1_over_n(n: int) -> None:
    np.testing.assert_allclose(bandit_gradient("dr-grpo", n), (n - 1) / n * exact_gradient(), atol=1e-12)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_the_deviation_turns_the_gradient(n: int) -> None:
    found, exact = bandit_gradient("grpo", n), exact_gradient()
    assert found @ exact / np.linalg.norm(found) / np.linalg.norm(exact) < 0.9999
