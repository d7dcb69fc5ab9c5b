"""prm: the card's examples, sources and rules, what they reduce to, odd cases, slow loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.errors import DataError, MissingSignal, ParamError
from tests.dear import dear
from tests.methods import process_oracles as slow
from tests.strategies import records

NO = {"outcome_in_steps": "no"}
PLAIN = {"odd_ids": False, "branches": False, "rows": False, "min_rollouts": 1, "min_steps": 1}
FIELDS = ("reward", "status", "n_tokens")


def rollout(name, steps, reward=1.0, group="g", **fields):
    return {"id": name, "group": group, "reward": reward, "steps": steps} | fields


def scored(name, scores, reward=1.0, **fields):
    return rollout(name, [{"step_score": p, "n_tokens": 1} for p in scores], reward, **fields)


def potential(name, values, reward=1.0, **fields):
    return rollout(name, [{"potential": v} for v in values], reward, **fields)


def ratios(name, lists, reward=1.0, **fields):
    return rollout(name, [{"prm_logratio": v} for v in lists], reward, **fields)


def has_scored(drawn):
    return any(r.get("reward") is not None for r in drawn)


# -- worked examples of the card --------------------------------------------------------------------


def test_card_example_of_grpo_process():
    pair = [rollout("a", [{"reward": 0.9}, {"reward": 0.2}]), rollout("b", [{"reward": 0.5}], 0)]
    credit = ac.assign(pair, "prm", **NO)
    assert pytest.approx([0.0949, -0.9492, -0.0949], abs=1e-4) == credit.steps.tolist()
    assert ["ACC423"] == [f.code for f in credit.findings]


def test_card_example_of_pure():
    # A second rollout whose rewards are 0 makes the baseline 0.
    three = [scored("a", [0.9, 0.3, 0.8]), scored("b", [0.5])]
    credit = ac.assign(three, "prm", rule="pure", reward_mode="PRM")
    assert pytest.approx([0.0, -0.4, 0.0], abs=1e-4) == credit.extras["weighted_rewards"][:3].tolist()
    assert pytest.approx([-0.3999, -0.3999, 0.0], abs=1e-4) == credit.steps[:3].tolist()


def test_card_example_of_pbrs_and_immediate():
    # The group's baseline is left out in the card: a rollout that returns 1 and one that loses 0.5.
    one = [potential("a", [0.5, 0.4, 0.2])]
    assert pytest.approx([-0.1, -0.2, 0.8]) == ac.assign(one, "prm", source="potential").steps.tolist()
    shaped = ac.assign(one, "pbrs")
    assert pytest.approx([-0.1, -0.2, -0.2]) == shaped.extras["shaping_rewards"].tolist()
    assert pytest.approx([0.5, 0.6, 0.8]) == (shaped.steps + 0.5).tolist()


# -- slow loops ----------------------------------------------------------------------------------


@dear
@given(
    records(fields=(*FIELDS, "step.reward"), always=("reward", "step.reward"), **PLAIN).filter(has_scored),
    st.floats(0, 2),
)
def test_grpo_process_equals_the_slow_loop(drawn, weight):
    if not any(s.get("reward") is not None for r in drawn for s in r["steps"]):
        return
    credit = ac.assign(drawn, "grpo-process", source="reward", outcome_weight=weight, **NO)
    expected = slow.pooled(drawn, lambda s: s.get("reward"), weight, 1e-6)
    for got, want in zip(credit.by_rollout(), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-7)


@dear
@given(
    records(fields=(*FIELDS, "prm_logits"), always=("reward", "prm_logits", "n_tokens"), **PLAIN).filter(
        has_scored
    ),
    st.fixed_dictionaries(
        {
            "tau": st.sampled_from([0.05, 0.1, 1.0]),
            "weighted": st.booleans(),
            "baseline": st.sampled_from(["token", "step"]),
            "separator": st.integers(0, 2),
            "verifier_coef": st.floats(0, 2),
        }
    ),
)
def test_pure_equals_the_slow_loop(drawn, params):
    drawn = [r | {"steps": [s | {"n_tokens": s.get("n_tokens") or 0} for s in r["steps"]]} for r in drawn]
    if not any(s.get("prm_logits") for r in drawn for s in r["steps"]):
        return
    credit = ac.assign(drawn, "pure", **params)
    for got, want in zip(credit.by_rollout(), slow.pure(drawn, params), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-9)


@dear
@given(
    records(fields=(*FIELDS, "prm_logratio"), always=("reward", "prm_logratio", "n_tokens"), **PLAIN).filter(
        has_scored
    ),
    st.floats(0, 1),
)
def test_prime_equals_the_slow_loop(drawn, gamma):
    drawn = [
        r
        | {
            "steps": [
                s | {"n_tokens": s.get("n_tokens") or len(s.get("prm_logratio") or [])} for s in r["steps"]
            ]
        }
        for r in drawn
    ]
    if not any(s.get("prm_logratio") is not None for r in drawn for s in r["steps"]):
        return
    credit = ac.assign(drawn, "prime", gamma=gamma, beta=0.5)
    expected = slow.prime(drawn, 0.5, gamma)
    for got, want in zip(credit.tokens_by_rollout(), expected, strict=True):
        np.testing.assert_allclose(np.concatenate(got), want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("norm", ["batch", "none"])
def test_prime_code_equals_the_slow_loop(norm):
    rng = np.random.default_rng(0)
    everyone = []
    for i in range(8):
        # Sixty-fourths are exact in the stored float32.
        lists = [(rng.integers(-40, 40, rng.integers(1, 4)) / 64).tolist() for _ in range(3)]
        steps = [{"prm_logratio": x, "n_tokens": len(x)} for x in lists]
        everyone.append(rollout(f"r{i}", steps, float(i % 2), f"g{i % 2 if i < 6 else 0}"))
    credit = ac.assign(everyone, "prm", rule="prime-code", gamma=0.9, verifier_gamma=0.8, prime_norm=norm)
    returns = np.concatenate(slow.prime_code_returns(everyone, 0.9, 0.8, norm=norm == "batch"))
    np.testing.assert_allclose(credit.extras["returns"], returns, rtol=1e-9, atol=1e-12)
    white = (returns - returns.mean()) / np.sqrt(returns.var(ddof=1) + 1e-8)
    np.testing.assert_allclose(credit.tokens, white, rtol=1e-9, atol=1e-12)


# -- reductions ----------------------------------------------------------------------------------


def test_prime_without_log_ratios_is_rloo():
    four = [ratios(f"r{i}", [[0.0, 0.0], [0.0]], r) for i, r in enumerate([1.0, 0.0, 0.25, 1.0])]
    expected = ac.assign(four, "rloo")
    np.testing.assert_allclose(ac.assign(four, "prime").tokens, expected.tokens, rtol=1e-9, atol=1e-12)
    white = ac.assign(four, "prm", rule="prime-code").tokens
    raw = expected.tokens
    np.testing.assert_allclose(white, (raw - raw.mean()) / np.sqrt(raw.var(ddof=1) + 1e-8), rtol=1e-9)


def test_a_cold_pure_sums_to_the_worst_step_and_a_hot_one_to_the_mean():
    both = [scored("a", [0.9, 0.3, 0.8]), scored("b", [0.6, 0.7], 0)]
    cold = ac.assign(both, "pure", tau=1e-6).extras["weighted_rewards"]
    assert pytest.approx([-0.4, 0.2]) == [cold[:3].sum(), cold[3:].sum()]
    mean = ac.assign(both, "pure", weighted=False)
    for tau in (1e9, float("inf")):
        hot = ac.assign(both, "pure", tau=tau)
        np.testing.assert_allclose(hot.steps, mean.steps, rtol=1e-6, atol=1e-8)


def test_pbrs_without_potential_is_mean_centred_grpo():
    three = [potential("a", [0.0, 0.0], 1), potential("b", [0.0], 0), potential("c", [0.0] * 3, 0.5)]
    np.testing.assert_allclose(
        ac.assign(three, "pbrs").steps, ac.assign(three, "dr-grpo").steps, rtol=1e-9, atol=1e-12
    )


def test_immediate_credit_telescopes_to_the_outcome_minus_the_first_potential():
    credit = ac.assign([potential("a", [0.5, 0.1, 0.9], 0.25)], "prm", rule="immediate")
    assert pytest.approx(0.25 - 0.5) == credit.steps.sum()


def test_immediate_credit_with_exact_values_is_the_advantage_in_the_mean():
    # Two actions; a coin then pays 1 with probability .8 or .2.
    credit = {
        (a, won): ac.assign([potential("a", [0.5, v], float(won))], "prm", rule="immediate").steps
        for a, v in ((0, 0.8), (1, 0.2))
        for won in (0, 1)
    }
    for a, v in ((0, 0.8), (1, 0.2)):
        mean = v * credit[a, 1] + (1 - v) * credit[a, 0]
        assert pytest.approx([v - 0.5, 0.0]) == mean.tolist()


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=6), st.floats(0, 1))
def test_shaping_rewards_telescope(values, gamma):
    shaping = ac.assign([potential("a", values)], "pbrs", gamma=gamma).extras["shaping_rewards"]
    total = float(gamma ** np.arange(len(values)) @ shaping)
    assert pytest.approx(-values[0], rel=1e-9, abs=1e-9) == total


def test_a_self_loop_shapes_by_what_the_discount_takes():
    loop = [potential("a", [0.5, 0.5])]
    assert 0.0 == ac.assign(loop, "pbrs").extras["shaping_rewards"][0]
    assert pytest.approx(-0.05) == ac.assign(loop, "pbrs", gamma=0.9).extras["shaping_rewards"][0]


def test_sums_of_log_ratios_telescope_over_steps():
    pair = [ratios("a", [[0.5, 0.25], [1.0]]), ratios("b", [[0.1], [0.2]], 0)]
    rewards = ac.assign(pair, "grpo-process", source="logratio").extras["step_rewards"]
    assert pytest.approx([0.05 * 0.75, 0.05], rel=1e-6) == rewards[:2].tolist()


# -- sources ---------------------------------------------------------------------------------------


def test_auto_takes_the_first_source_that_is_there():
    everything = [
        {"prm_logratio": [0.1], "step_score": 0.5, "reward": 0.3},
        {"prm_logratio": [0.2], "step_score": 0.4, "reward": 0.1},
    ]
    pair = [rollout("a", everything), rollout("b", everything, 0)]
    drop = ["prm_logratio", "step_score"]
    expected = [("logratio", "prime"), ("scores", "pure"), ("reward", "grpo-process")]
    for i, (source, rule) in enumerate(expected):
        left = [
            r | {"steps": [{k: v for k, v in s.items() if k not in drop[:i]} for s in r["steps"]]}
            for r in pair
        ]
        got = ac.assign(left, "prm", **NO).steps
        np.testing.assert_array_equal(got, ac.assign(left, "prm", source=source, rule=rule, **NO).steps)


def test_a_missing_source_names_its_columns():
    with pytest.raises(MissingSignal, match="prm_logratio"):
        ac.assign([rollout("a", [{}])], "prm")
    with pytest.raises(MissingSignal, match=r"prm_logits_S, prm_prob_S, step_score_S"):
        ac.assign([rollout("a", [{"reward": 0.5}])], "prm", source="scores")
    with pytest.raises(MissingSignal, match=r"potential_S, progress_S, progress_R"):
        ac.assign([rollout("a", [{"reward": 0.5}])], "pbrs")


def test_a_rule_that_cannot_work_on_the_source_is_refused():
    with pytest.raises(ParamError, match="'pure' cannot work on source 'reward'"):
        ac.assign([rollout("a", [{"reward": 0.5}])], "prm", source="reward", rule="pure")


def test_an_outcome_weight_is_refused_where_the_rule_has_the_outcome():
    with pytest.raises(ParamError, match="outcome_weight"):
        ac.assign([potential("a", [0.5])], "pbrs", outcome_weight=1)


def test_scores_come_as_logits_or_probabilities():
    p = [0.9, 0.3]
    by_logits = [
        rollout(n, [{"prm_logits": [0.0, float(np.log(q / (1 - q)))]} for q in p], r)
        for n, r in (("a", 1), ("b", 0))
    ]
    for field in ("step_score", "prm_prob"):
        pair = [rollout(n, [{field: q} for q in p], r) for n, r in (("a", 1), ("b", 0))]
        np.testing.assert_allclose(
            ac.assign(pair, "prm").steps, ac.assign(by_logits, "prm").steps, rtol=1e-9, atol=1e-12
        )


def test_a_score_that_is_no_probability_is_an_error_that_names_the_place():
    with pytest.raises(DataError, match=r"ACC426.*rollout 'a' step 1"):
        ac.assign([scored("a", [0.5, 1.5])], "pure")


def test_solution_scores_are_product_and_minimum():
    extras = ac.assign([scored("a", [0.9, 0.5, 1.0]), scored("b", [])], "pure").extras
    assert pytest.approx([0.45, 0.0]) == extras["solution_product"].tolist()
    assert [0.5, 0.0] == extras["solution_minimum"].tolist()


PHI = [0.0, 0.5, 0.25, 1.0]


def test_progress_comes_as_a_list_an_object_or_columns():
    listed = [rollout("a", [{}, {}, {}], progress=PHI), rollout("b", [{}], 0, progress=[0.0, 0.5])]
    told = [r | {"progress": {"values": r["progress"]}} for r in listed]
    by_step = [
        r | {"steps": [{"progress": phi} for phi in r["progress"][1:]], "progress": None, "progress0": 0.0}
        for r in listed
    ]
    expected = ac.assign(listed, "prm")
    assert pytest.approx([0.5, -0.25, 0.75, 0.5]) == expected.extras["step_rewards"].tolist()
    for same in (told, by_step):
        np.testing.assert_array_equal(expected.steps, ac.assign(same, "prm").steps)


def test_milestone_adds_the_outcome_to_the_pool():
    pair = [rollout("a", [{}, {}, {}], progress=PHI), rollout("b", [{}], 0, progress=[0.0, 0.5])]
    process = ac.assign(pair, "grpo-process")
    both = ac.assign(pair, "prm")
    np.testing.assert_allclose(both.parts["process"], process.steps)
    assert pytest.approx([0.7071] * 3 + [-0.7071], abs=1e-4) == both.parts["outcome"].tolist()


def test_a_first_milestone_pays_once_and_takes_nothing_back():
    checks = [[False, False], [True, False], [False, False], [True, True]]
    told = {"values": [0, 0.75, 0, 1], "checks": checks, "weights": [3, 1]}
    pair = [
        rollout("a", [{}, {}, {}], progress=told),
        rollout("b", [{}], 0, progress={"values": [0, 0], "checks": [[0, 0], [0, 0]]}),
    ]
    first = ac.assign(pair, "prm", milestone="first").extras["step_rewards"]
    assert [0.75, 0.0, 0.25, 0.0] == first.tolist()
    again = ac.assign(pair, "prm").extras["step_rewards"]
    assert [0.75, -0.75, 1.0, 0.0] == again.tolist()


def test_first_milestones_need_the_single_checks():
    with pytest.raises(MissingSignal, match="checks"):
        ac.assign([rollout("a", [{}], progress=[0, 1])], "prm", milestone="first")


def test_progress_that_does_not_fit_counts_as_none_and_a_finding_says_so():
    pair = [rollout("a", [{}, {}], progress=[0.0, 1.0]), rollout("b", [{}, {}], 0, progress=[0.0, 0.5, 0.25])]
    credit = ac.assign(pair, "prm")
    assert ["ACC424"] == [f.code for f in credit.findings]
    assert [0.0, 0.0] == credit.parts["process"][:2].tolist()
    assert 1 == credit.fallbacks["unannotated"]


def test_progress_serves_as_a_potential():
    one = [rollout("a", [{}, {}], 1.0, progress=[0.25, 0.5, 0.9])]
    assert pytest.approx([0.25, 0.5]) == ac.assign(one, "prm", rule="immediate").steps.tolist()
    shaping = ac.assign(one, "pbrs").extras["shaping_rewards"]
    assert pytest.approx([0.25, -0.5]) == shaping.tolist()


# -- odd cases -----------------------------------------------------------------------------------


def test_a_group_of_one_has_no_baseline():
    alone = [ratios("a", [[0.5]]), ratios("b", [[0.5]], group="h"), ratios("c", [[0.1]], 0, group="h")]
    for rule in ("prime", "prime-code"):
        parts = ac.assign(alone, "prm", rule=rule).parts
        assert 0.0 == parts["process"][0] == parts["outcome"][0]
    pure = [scored("a", [0.9, 0.2])]
    assert [0.0, 0.0] == ac.assign(pure, "pure").steps.tolist()
    assert 1 == ac.assign(pure, "pure").fallbacks["singleton"]


def test_immediate_and_the_pool_act_in_a_group_of_one():
    assert ac.assign([potential("a", [0.5, 0.4])], "prm", rule="immediate").steps.any()
    one = [rollout("a", [{}, {}], progress=[0.0, 0.2, 1.0])]
    assert ac.assign(one, "prm").parts["process"].any()
    assert not ac.assign(one, "prm").parts["outcome"].any()


def test_equal_step_rewards_get_exactly_zero():
    same = [rollout(n, [{"reward": 0.7}] * 3, 0.1) for n in "ab"]
    assert not ac.assign(same, "prm", **NO).steps.any()


def test_the_process_part_acts_in_an_all_fail_group_and_its_share_is_told():
    failed = [rollout("a", [{}, {}], 0, progress=[0, 0.5, 0.5]), rollout("b", [{}], 0, progress=[0, 0])]
    credit = ac.assign(failed, "prm")
    assert credit.steps.any()
    assert [("ACC425", 1)] == [(f.code, f.count) for f in credit.findings]
    assert "100.0%" in credit.findings[0].message


def test_a_rollout_without_annotation_is_out_of_the_pool_and_counted():
    bare = rollout("c", [{}, {}], 1)
    pair = [rollout("a", [{}, {}], progress=[0, 0.5, 0.5]), rollout("b", [{}], 0, progress=[0, 0.25])]
    credit = ac.assign([*pair, bare], "grpo-process")
    assert [0.0, 0.0] == credit.by_rollout()[2].tolist()
    assert 1 == credit.fallbacks["unannotated"]
    np.testing.assert_array_equal(ac.assign(pair, "grpo-process").steps, credit.steps[:3])


def test_a_step_without_a_score_gets_no_reward_and_is_out_of_the_pool():
    holes = [rollout("a", [{"reward": 1.0}, {}, {"reward": 0.0}]), rollout("b", [{"reward": 0.5}], 0)]
    credit = ac.assign(holes, "prm", **NO)
    assert credit.steps[1] == credit.steps[2]
    assert 1 == credit.fallbacks["missing_steps"]


def test_a_score_that_is_not_finite_is_missing():
    nan = [scored("a", [0.9, float("nan")]), scored("b", [0.4], 0)]
    assert 1 == ac.assign(nan, "pure").fallbacks["missing_steps"]
    logits = [rollout("a", [{"prm_logits": [float("nan"), 1.0]}, {"prm_logits": [0.0, 1.0]}])]
    assert 1 == ac.assign(logits, "pure").fallbacks["missing_steps"]


def test_an_empty_step_keeps_its_place_in_the_return_to_go():
    pair = [
        rollout("a", [{"step_score": 0.9, "n_tokens": 2}, {"step_score": 0.1, "n_tokens": 0}]),
        rollout("b", [{"step_score": 0.5, "n_tokens": 3}], 0),
    ]
    credit = ac.assign(pair, "pure", reward_mode="PRM")
    assert pytest.approx(-0.8, abs=1e-3) == credit.steps[0]
    assert pytest.approx(-0.8, abs=1e-3) == credit.steps[1]


def test_without_outcomes_the_step_rewards_alone_are_credited():
    silent = [
        r | {"reward": None} for r in (rollout("a", [{"reward": 1.0}]), rollout("b", [{"reward": 0.0}]))
    ]
    assert pytest.approx([0.7071, -0.7071], abs=1e-4) == ac.assign(silent, "prm").steps.tolist()
    with pytest.raises(MissingSignal, match="outcome"):
        ac.assign(silent, "grpo-process", outcome_weight=1)


def test_a_truncated_rollout_without_reward_ends_at_the_potential_of_its_last_state():
    cut = {"status": "truncated"}
    known = potential("a", [0.5, 0.25], None, final_potential=0.75, **cut)
    unknown = potential("b", [0.5, 0.25], None, **cut)
    never = potential("c", [0.5, 0.25], None)
    credit = ac.assign([known, unknown, never, potential("d", [0.5], 1.0)], "prm", rule="immediate")
    assert [[-0.25, 0.5], [-0.25, -0.25], [0.0, 0.0]] == [p.tolist() for p in credit.by_rollout()[:3]]


def test_an_unknown_potential_is_no_surprise_by_immediate_and_zero_by_pbrs():
    hole = [rollout("a", [{"potential": 0.5}, {}, {"potential": 0.2}])]
    assert pytest.approx([-0.3, 0.0, 0.8]) == ac.assign(hole, "prm", rule="immediate").steps.tolist()
    assert pytest.approx([-0.5, 0.2, -0.2]) == ac.assign(hole, "pbrs").extras["shaping_rewards"].tolist()


def test_whole_granularity_puts_the_sum_on_the_last_token():
    pair = [ratios("a", [[0.5, 0.25], [0.25]]), ratios("b", [[0.5]], 1.0)]
    returns = ac.assign(pair, "prm", rule="prime-code", granularity="whole", prime_norm="none").extras[
        "returns"
    ]
    mean = [1.0 / 3, 0.5]
    last = 2 * 1.0 - sum(mean)
    assert pytest.approx([last - 2 * sum(mean), last - sum(mean), last, 1.0 - sum(mean)]) == returns.tolist()


def test_one_reward_mode_leaves_the_other_part_out():
    pair = [scored("a", [0.9, 0.3]), scored("b", [0.4], 0)]
    both = ac.assign(pair, "pure")
    process, outcome = (ac.assign(pair, "pure", reward_mode=mode) for mode in ("PRM", "VR"))
    np.testing.assert_allclose(both.parts["process"], process.steps)
    np.testing.assert_allclose(both.parts["outcome"], outcome.steps)


CASES = {
    "milestone": [rollout("a", [{}, {}], progress=[0, 0.5, 0.25]), rollout("b", [{}], 0, progress=[0, 0.25])],
    "grpo-process": [rollout("a", [{"reward": 0.9}, {"reward": 0.2}]), rollout("b", [{"reward": 0.5}], 0)],
    "prime": [ratios("a", [[0.5, 0.1], [], [0.2]]), ratios("b", [[0.3]], 0)],
    "prime-code": [ratios("a", [[0.5, 0.1], [], [0.2]]), ratios("b", [[0.3]], 0)],
    "pure": [scored("a", [0.9, 0.3]), scored("b", [0.4], 0)],
    "pbrs": [potential("a", [0.5, 0.4]), potential("b", [0.5], 0)],
    "immediate": [potential("a", [0.5, 0.4]), potential("b", [0.5], 0)],
}


@pytest.mark.parametrize("rule", CASES)
def test_explain_can_be_recomputed(rule):
    credit = ac.assign(CASES[rule], "prm", rule=rule, **NO)
    for r, name in enumerate(credit.batch.ids):
        for t, value in enumerate(credit.by_rollout()[r]):
            terms = credit.explain(name, t).terms
            assert pytest.approx(value, abs=1e-12) == sum(term.value for term in terms)
            assert pytest.approx(value, abs=1e-12) == sum(_again(term) for term in terms)


def _again(term):
    """The term from its inputs and members alone."""
    n = term.inputs
    if "price" in n:
        return n["own"] - n["units"] * n["price"]
    if "base" in n:
        return n["own"] - n["units"] * n["base"]
    if "raw" in n:
        return (n["raw"] - n["mean"]) / (n["var"] + n["eps"]) ** 0.5 - n["raw"]
    if "outcome" in n:
        return n["weight"] * (n["outcome"] - n["mean"])
    if "return" in n:
        return n["return"] - n["mean"]
    if "potential" in n:
        return n["next"] - n["potential"]
    if "score" in n:
        return n["weight"] * (n["score"] - n["mean"]) / (n["std"] + n["eps"])
    return sum(m.value - n["mean"] for m in term.members) / (n["std"] + n["eps"])
