"""reinforce-pp: the card's hand examples, whitening, empty steps, a slow oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.errors import MissingSignal
from accredit.index import Index, carrier_S, token_rewards
from tests.dear import dear
from tests.methods import outcome_oracles as slow
from tests.methods.outcome_oracles import run

TWO_ROWS = [
    {"id": "a", "group": "g", "reward": 1.0, "steps": [{"n_tokens": 1}, {"n_tokens": 1}]},
    {"id": "b", "group": "g", "reward": 0.0, "steps": [{"n_tokens": 2}]},
]


def whitened(values: list[float]) -> np.ndarray:
    x = np.array(values, float)
    return (x - x.mean()) / np.sqrt(x.var(ddof=1) + 1e-8)


def test_card_example_of_returns() -> None:
    credit = ac.assign(TWO_ROWS, "reinforce-pp", gamma=0.5)
    assert pytest.approx([0.2611, 1.3056, -0.7833, -0.7833], abs=5e-5) == credit.tokens.tolist()
    assert [0.5, 1.0, 0.0, 0.0] == credit.extras["returns"].tolist()


def test_card_example_of_the_baseline_variant() -> None:
    credit = ac.assign(run([1, 0], lengths=[2, 2]), "reinforce-pp", variant="baseline")
    assert pytest.approx([0.8660, 0.8660, -0.8660, -0.8660], abs=5e-5) == credit.tokens.tolist()


def test_gamma_one_and_an_outcome_alone_whiten_the_broadcast_score() -> None:
    records = run([1, 0.25, 0], lengths=[3, 1, 2]) + run([2], "h", [4])
    expected = whitened([1, 1, 1, 0.25, 0, 0, 2, 2, 2, 2])
    np.testing.assert_allclose(ac.assign(records, "reinforce-pp").tokens, expected, rtol=1e-9)


def test_tokens_have_mean_zero_and_variance_one() -> None:
    records = run([1, 0.25, 0, 0.5], lengths=[3, 1, 2, 5])
    for variant in ("returns", "baseline"):
        tokens = ac.assign(records, "reinforce-pp", variant=variant).tokens
        assert pytest.approx(0, abs=1e-12) == tokens.mean()
        assert pytest.approx(1, abs=1e-6) == tokens.var(ddof=1)


@pytest.mark.parametrize("reward", [0.7, 1 / 3, 0.1 + 0.2, 0.0, 1e9 / 3])
@pytest.mark.parametrize("variant", ["returns", "baseline"])
def test_equal_returns_get_exactly_zero(reward: float, variant: str) -> None:
    records = run([reward] * 6, lengths=[1, 2, 3, 4, 5, 6])
    assert not ac.assign(records, "reinforce-pp", variant=variant).tokens.any()


def test_one_policy_token_gets_zero() -> None:
    assert [0.0] == ac.assign(run([1]), "reinforce-pp").tokens.tolist()


def test_no_policy_token_at_all_is_refused() -> None:
    records = [record | {"steps": [{"tokens": []}]} for record in run([1, 0])]
    with pytest.raises(MissingSignal, match="whitens over policy tokens"):
        ac.assign(records, "reinforce-pp")


def test_an_all_fail_group_is_pushed_down_by_returns_and_not_by_the_baseline() -> None:
    records = run([0, 0], lengths=[1, 1]) + run([1, 0], "h", [1, 1])
    assert ac.assign(records, "reinforce-pp").tokens[0] < -0.3
    assert pytest.approx(0, abs=1e-12) == ac.assign(records, "reinforce-pp", variant="baseline").tokens[0]


def test_a_group_of_one_keeps_its_score_before_whitening_and_says_so() -> None:
    records = run([5], lengths=[2]) + run([1, 0], "h", [1, 1])
    credit = ac.assign(records, "reinforce-pp", variant="baseline")
    np.testing.assert_allclose(credit.tokens, whitened([5, 5, 0.5, -0.5]), rtol=1e-9)
    assert {"singleton": 1} == credit.fallbacks
    assert "ACC218" in [finding.code for finding in credit.findings]
    zero = ac.assign(records, "reinforce-pp", variant="baseline", singleton="zero")
    np.testing.assert_allclose(zero.tokens, whitened([0, 0, 0.5, -0.5]), rtol=1e-9, atol=1e-12)
    assert {"singleton": 0} == ac.assign(records, "reinforce-pp").fallbacks


def test_unscored_and_rejected_rollouts_leave_the_whitening() -> None:
    records = run([1, 0, None, 9], lengths=[1, 1, 5, 5])  # type: ignore[list-item]
    records[3]["status"] = "rejected"
    credit = ac.assign(records, "reinforce-pp")
    np.testing.assert_allclose(credit.tokens[:2], whitened([1, 0]), rtol=1e-9)
    assert not credit.tokens[2:].any()


def test_an_empty_step_hands_its_reward_on_and_has_that_tokens_credit() -> None:
    steps: list[dict[str, Any]] = [
        {"n_tokens": 0, "reward": 1.0},
        {"n_tokens": 2, "reward": 10.0},
        {"n_tokens": 0, "reward": 100.0},
        {"n_tokens": 1, "reward": 1000.0},
        {"n_tokens": 0},
    ]
    record = {"id": "a", "group": "g", "reward": 1e4, "steps": steps}
    bare = {"id": "b", "group": "g", "reward": 7.0, "steps": [{"n_tokens": 0}]}
    batch = ac.Batch.from_records([record, bare])
    assert [0, 1, 1, 2, 2, -1] == carrier_S(Index(batch)).tolist()
    assert [1, 110, 11000] == token_rewards(Index(batch)).tolist()
    credit = ac.assign(batch, "reinforce-pp", gamma=0.5)
    expected = [credit.tokens[k] for k in (0, 0, 1, 2, 2)]
    assert [*expected, 0.0] == credit.steps.tolist()


def test_a_step_has_its_first_token_or_the_mean_of_its_tokens() -> None:
    records = run([1, 0], lengths=[3, 1])
    tokens = ac.assign(records, "reinforce-pp", gamma=0.5).tokens
    assert tokens[0] == ac.assign(records, "reinforce-pp", gamma=0.5).steps[0]
    mean = ac.assign(records, "reinforce-pp", gamma=0.5, step_value="mean")
    assert pytest.approx(tokens[:3].mean(), rel=1e-12) == mean.steps[0]
    assert pytest.approx(mean.steps[0], rel=1e-12) == mean.explain("g0", 0).terms[0].value


def test_untrained_tokens_count_and_get_zero() -> None:
    records = run([1, 0], lengths=[2, 2])
    records[0]["trainable"] = False
    credit = ac.assign(records, "reinforce-pp")
    assert pytest.approx([0.8660, -0.8660], abs=5e-5) == credit.steps.tolist()
    assert [0, 0] == credit.tokens[:2].tolist()


def test_prompts_of_unequal_difficulty_keep_their_scale() -> None:
    """Per-group deviations blow up nearly solved and nearly failed prompts; whitening does not."""
    groups = [run([1] * k + [0] * (10 - k), f"g{k}", [1] * 10) for k in range(1, 10)]
    records = [record for group in groups for record in group]

    def spread(name: str) -> float:
        sizes = np.abs(ac.assign(records, name).tokens)
        return float(sizes.max() / sizes[sizes > 0].min())

    assert pytest.approx(9.0, rel=1e-4) == spread("grpo")
    assert pytest.approx(1.0, rel=1e-9) == spread("reinforce-pp")


@pytest.mark.parametrize("variant", ["returns", "baseline"])
def test_an_explanation_can_be_recomputed(variant: str) -> None:
    credit = ac.assign(TWO_ROWS, "reinforce-pp", variant=variant)
    (term,) = credit.explain("a", 0).terms
    x = term.inputs
    assert pytest.approx(term.value, rel=1e-9) == (x["x"] - x["mean"]) / np.sqrt(x["var"] + x["eps"])
    if variant == "returns":
        assert [("a", 1.0, 1, "1 tokens on")] == [(m.rollout, m.value, m.step, m.note) for m in term.members]


def slow_returns(record: slow.Record, gamma: float) -> list[float]:
    """Token returns by the card's words, one token at a time."""
    owners = [t for t, step in enumerate(record["steps"]) for _ in range(step["n_tokens"])]
    if not owners:
        return []
    rewards = [0.0] * len(owners)
    for t, step in enumerate(record["steps"]):
        before = [k for k, owner in enumerate(owners) if owner <= t]
        rewards[before[-1] if before else 0] += step.get("reward") or 0.0
    rewards[-1] += record.get("reward") or 0.0
    found, running = [], 0.0
    for reward in reversed(rewards):
        running = reward + gamma * running
        found.append(running)
    return found[::-1]


@dear
@given(slow.ragged, slow.policies, st.sampled_from(["returns", "baseline"]), st.sampled_from([1.0, 0.9, 0.0]))
def test_a_plain_loop_gives_the_same(
    records: list[slow.Record], policies: dict[str, str], variant: str, gamma: float
) -> None:
    raw: list[tuple[float, bool]] = []
    for record in records:
        s, group = slow.score(record), slow.members(record, records, policies)
        counted = slow.counts(record, records, policies)
        if variant == "returns":
            raw += [(x, counted) for x in slow_returns(record, gamma)]
            continue
        x = 0.0 if slow.flat(group) else s - slow.mean(group)
        if counted and len(group) == 1:
            x = s if policies["singleton"] == "raw" else 0.0
        raw += [(x, counted)] * slow.length(record)
    inside = [x for x, counted in raw if counted]
    if not raw:
        return
    expected = [0.0] * len(raw)
    if not slow.flat(inside):
        center, sd = slow.mean(inside), np.sqrt(slow.std(inside) ** 2 + 1e-8)
        expected = [(x - center) / sd if counted else 0.0 for x, counted in raw]
    credit = ac.assign(
        records, "reinforce-pp", outcome_in_steps="no", variant=variant, gamma=gamma, **policies
    )
    np.testing.assert_allclose(credit.result.values, expected, rtol=1e-9, atol=1e-8)
