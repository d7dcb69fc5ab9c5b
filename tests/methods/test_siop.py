"""siop: the card's worked example, its properties and edge cases, and a plain-loop oracle."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.errors import DataError, MissingSignal
from tests.dear import dear


def refs(*series: Any) -> dict[str, Any]:
    """Scores of one reference before the first turn and after each one."""
    first, *later = [[[1.0, x]] for x in series]
    return {"baseline": first, "after_step": later}


def rollout(name: str, answer: str | None, turns: int, scores: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "id": name,
        "group": "g",
        "answer": answer,
        "answer_cluster": None if not answer else "ab".index(answer[0]),
        "ref_logprobs": scores,
        "steps": [{"n_tokens": 2} for _ in range(turns)],
    } | more


EXAMPLE = [
    rollout("r0", "a", 2, refs(-2, -1, -0.5)),
    rollout("r1", "a", 1),
    rollout("r2", "b", 2, refs(-3, -2.5, -2.8)),
    rollout("r3", None, 1),
]


def test_card_example() -> None:
    credit = ac.assign(EXAMPLE, "siop")
    assert pytest.approx([2 / 3, 2 / 3, 1 / 3, 0]) == credit.extras["q"].tolist()
    rewards = credit.extras["turn_reward"].tolist()
    assert pytest.approx([0.6667, 0.6667, 0.3333, 0.1667, 0.0667, 0], abs=6e-5) == rewards
    wanted = [2.3854, 1.1927, 0.0568, -1.3631, -0.8519, -1.0791]
    assert pytest.approx(wanted, abs=2e-4) == credit.steps.tolist()
    assert [0, 0, 2, -1] == credit.extras["reference"].tolist()
    np.testing.assert_array_equal(credit.tokens, np.repeat(credit.steps, 2))


# -- the oracle: one group, one rollout, one turn at a time ---------------------------------------


def oracle(
    records: list[dict[str, Any]], lam: float, eta: float, gamma: float, std: bool
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for group in {r["group"] for r in records}:
        rows = [r for r in records if r["group"] == group]
        q = _reliabilities(rows, eta)
        rewards = {r["id"]: _turn_rewards(r, q, lam) for r in rows}
        pool = [x for values in rewards.values() if values is not None for x in values]
        mean = sum(pool) / len(pool) if pool else 0.0
        scale = statistics.stdev(pool) if len(pool) > 1 else 0.0
        scale = (1.0 if scale < 1e-6 else scale) + 1e-6 if std else 1.0
        for name, values in rewards.items():
            row = next(r for r in rows if r["id"] == name)
            found[name] = [0.0] * len(row["steps"])
            running = 0.0
            for t in reversed(range(len(row["steps"]))):
                own = 0.0 if values is None or len(pool) < 2 else (values[t] - mean) / scale
                running = own + gamma * running
                found[name][t] = 0.0 if values is None else running
    return found


def _reliabilities(rows: list[dict[str, Any]], eta: float) -> dict[Any, float]:
    answered = [r for r in rows if r["answer"]]
    weight = {}
    for c in {r["answer_cluster"] for r in answered}:
        members = [r for r in answered if r["answer_cluster"] == c]
        told = [statistics.fmean(r["evidence"]) for r in members if r["evidence"]]
        r_c = statistics.fmean(told) if told else 0.0
        weight[c] = (len(members) / len(answered) + 1e-12) * math.exp(eta * r_c)
    return {c: w / sum(weight.values()) for c, w in weight.items()}


def _turn_rewards(row: dict[str, Any], q: dict[Any, float], lam: float) -> list[float] | None:
    n = len(row["steps"])
    if not row["answer"]:
        return [0.0] * n
    own = q[row["answer_cluster"]]
    found = [0.0] * n
    if n > 1:
        if row["ref_logprobs"] is None:
            return None
        entries = [row["ref_logprobs"]["baseline"], *row["ref_logprobs"]["after_step"]]
        if any(not e for e in entries):
            return None
        p = []
        for entry in entries:
            known = [a * math.exp(x) for a, x in entry if x is not None]
            p.append(math.log(sum(known) + 1e-8) if known else None)
        for t in range(n):
            found[t] = 0.0 if p[t] is None or p[t + 1] is None else own * (p[t + 1] - p[t])
    if n:
        found[-1] += (1 - lam) * own
    return found


log_p = st.none() | st.floats(-6, 0)


@st.composite
def groups(draw: st.DrawFn) -> list[dict[str, Any]]:
    found = []
    for i in range(draw(st.integers(1, 7))):
        turns = draw(st.integers(0, 3))
        n_refs = draw(st.integers(1, 3))
        entry = st.lists(log_p, min_size=n_refs, max_size=n_refs).map(
            lambda xs: [[1 / len(xs), x] for x in xs]
        )
        entries = draw(
            st.lists(
                entry | st.none() if draw(st.booleans()) else entry, min_size=turns + 1, max_size=turns + 1
            )
        )
        scores = {"baseline": entries[0], "after_step": entries[1:]} if draw(st.integers(0, 4)) else None
        answer = draw(st.sampled_from([None, "", "a1", "a2", "b1"]))
        evidence = draw(st.none() | st.lists(st.floats(0, 1), max_size=3))
        group = draw(st.sampled_from("gh"))
        found.append(rollout(f"r{i}", answer, turns, scores, evidence=evidence, group=group))
    return found


# Two of a group that have every field, so that each column exists.
OTHERS = [rollout(name, "a", 0, refs(-1.0), group="other", evidence=[0.5]) for name in "xy"]


@dear
@given(
    groups(),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from([0.0, 1.0, 3.0]),
    st.sampled_from([0.0, 0.9, 1.0]),
    st.booleans(),
)
def test_equals_plain_loops(
    records: list[dict[str, Any]], lam: float, eta: float, gamma: float, std: bool
) -> None:
    batch = ac.Batch.from_records([*records, *OTHERS], strict=True)
    got = ac.assign(batch, "siop", lam=lam, eta=eta, gamma=gamma, norm_by_std=std)
    wanted = oracle(records, lam, eta, gamma, std)
    for name, values in zip(batch.ids[:-2], got.by_rollout(), strict=False):
        np.testing.assert_allclose(values, wanted[name], rtol=1e-7, atol=1e-7)


# -- properties -----------------------------------------------------------------------------------


@dear
@given(groups(), st.floats(0, 1))
def test_rewards_of_a_measured_rollout_telescope_and_q_sums_to_one(
    records: list[dict[str, Any]], lam: float
) -> None:
    for r in records:
        r |= {"ref_logprobs": refs(*np.linspace(-4, -1, len(r["steps"]) + 1).tolist())}
    records = [*records, *OTHERS]
    credit = ac.assign(records, "siop", lam=lam, eta=2.0)
    q, reference = credit.extras["q"], credit.extras["reference"]
    groups_ = np.array([r["group"] for r in records])
    for group in set(groups_):
        opened = np.unique(reference[(groups_ == group) & (reference >= 0)])
        if opened.size:
            assert 1.0 == pytest.approx(q[opened].sum())
    start = credit.batch.step_start_R1
    for r, row in enumerate(records):
        n = len(row["steps"])
        gain = math.log(math.exp(-1) + 1e-8) - math.log(math.exp(-4) + 1e-8) if n > 1 else 0.0
        total = credit.extras["turn_reward"][start[r] : start[r + 1]].sum()
        assert total == pytest.approx(q[r] * (gain + 1 - lam) if n else 0.0)


def test_without_terminal_part_only_the_change_of_support_counts() -> None:
    credit = ac.assign(EXAMPLE, "siop", lam=1.0)
    assert pytest.approx([2 / 3, 1 / 3, 0, 1 / 6, -0.1, 0], abs=1e-6) == credit.extras["turn_reward"].tolist()
    assert not credit.parts["terminal"].any()


def test_standardised_rewards_of_a_group_sum_to_zero() -> None:
    assert 0.0 == pytest.approx(ac.assign(EXAMPLE, "siop", gamma=0.0).steps.sum(), abs=1e-12)


def test_another_wording_of_the_same_clusters_changes_nothing() -> None:
    said = [r | {"answer": r["answer"] and f"{r['answer']}, say {i}"} for i, r in enumerate(EXAMPLE)]
    np.testing.assert_array_equal(ac.assign(EXAMPLE, "siop").steps, ac.assign(said, "siop").steps)


def test_gold_is_shaping_by_information_gain() -> None:
    gold = [
        r | {"ref_logprobs": refs(*[-2.0 + i * 0.3 * t for t in range(len(r["steps"]) + 1)])}
        for i, r in enumerate(EXAMPLE)
    ]
    credit = ac.assign(gold, "siop", variant="gold", lam=1.0, gamma=0.0, norm_by_std=False)
    gain = [
        math.log(math.exp(-2.0 + i * 0.3 * (t + 1)) + 1e-8) - math.log(math.exp(-2.0 + i * 0.3 * t) + 1e-8)
        if len(r["steps"]) > 1
        else 0.0
        for i, r in enumerate(gold)
        for t in range(len(r["steps"]))
    ]
    assert [1.0] * 4 == credit.extras["q"].tolist()
    np.testing.assert_allclose(credit.steps, np.array(gain) - np.mean(gain), atol=1e-12)


def test_outcome_variants_are_grpo_on_their_scores() -> None:
    scores = {"majority": [1, 1, 0, 0], "frequency": [2 / 3, 2 / 3, 1 / 3, 0]}
    scores["broadcast"] = [4 / 3, 1 / 3, 0.1 / 3 + 0.2, 0]
    for variant, score in scores.items():
        rows = [r | {"reward": x} for r, x in zip(EXAMPLE, score, strict=True)]
        expected = ac.assign(rows, "grpo").steps
        np.testing.assert_allclose(ac.assign(EXAMPLE, "siop", variant=variant).steps, expected, atol=1e-6)


def test_a_tie_of_clusters_is_won_by_the_first() -> None:
    rows = [rollout(str(i), a, 1) for i, a in enumerate(["b", "a", "a", "b"])]
    assert [1, -1, -1, 1] == np.sign(ac.assign(rows, "siop", variant="majority").steps).tolist()


def test_the_reward_is_not_used() -> None:
    rewarded = [r | {"reward": x} for r, x in zip(EXAMPLE, (0, 3, 9, None), strict=True)]
    credit = ac.assign(rewarded, "siop")
    np.testing.assert_array_equal(ac.assign(EXAMPLE, "siop").steps, credit.steps)
    assert {} == dict(credit.uncounted)


# -- honest test ----------------------------------------------------------------------------------


def world(rng: np.random.Generator, right: float, n: int = 400) -> tuple[list[dict[str, Any]], list[float]]:
    """Groups of eight: rollouts say "a" (right) with a probability, and grow sure of what they say."""
    rows, truth = [], []
    for i in range(n):
        answer = "a" if rng.random() < right else "b"
        series = np.cumsum([-3.0, *rng.uniform(0.2, 0.8, 2)]).tolist()
        rows.append(rollout(str(i), answer, 2, refs(*series), group=f"g{i // 8}"))
        truth.append(float(answer == "a"))
    return rows, truth


@pytest.mark.parametrize("variant", ["turn", "broadcast", "majority", "frequency"])
def test_a_right_majority_teaches_and_a_wrong_one_pushes_the_wrong_way(variant: str) -> None:
    for right, sign in ((0.8, 1), (0.2, -1)):
        rows, truth = world(np.random.default_rng(0), right)
        credit = ac.assign(rows, "siop", variant=variant)
        first = np.array([values[0] for values in credit.by_rollout()])
        mean = [first[np.array(truth) == x].mean() for x in (1.0, 0.0)]
        assert sign * (mean[0] - mean[1]) > 0.2


# -- edge cases -----------------------------------------------------------------------------------


def test_no_answer_in_the_group_gives_zero() -> None:
    rows = [rollout(str(i), None, 2) for i in range(3)] + [rollout("x", "a", 2, refs(-1, -1, -1), group="h")]
    assert not ac.assign(rows, "siop").steps[:6].any()


def test_a_rollout_without_an_answer_counts_as_zero_and_is_pushed_down() -> None:
    assert ac.assign(EXAMPLE, "siop").by_rollout()[3][0] < 0


def test_an_unmeasured_rollout_leaves_the_pool_and_is_counted() -> None:
    for scores in (None, refs(-1, -2) | {"after_step": [[[1.0, -2.0]], None]}):
        rows = [*EXAMPLE, rollout("odd", "a", 2, scores)]
        credit = ac.assign(rows, "siop")
        assert 1 == credit.fallbacks["unmeasured"]
        assert not credit.by_rollout()[4].any()
        kept = np.array([0.75, 0.75, 0.375, 0.125 + 0.0, -0.075 + 0.125, 0])
        assert pytest.approx(kept, abs=1e-6) == credit.extras["turn_reward"][:6].tolist()


def test_what_is_not_finite_is_left_out_of_the_sum_without_new_weights() -> None:
    both = {
        "baseline": [[0.5, -1.0], [0.5, -2.0]],
        "after_step": [[[0.5, -1.0], [0.5, None]], [[0.5, None], [0.5, math.inf]]],
    }
    rows = [rollout("x", "a", 2, both), rollout("y", "b", 1)]
    wanted = 0.5 * (
        math.log(0.5 * math.exp(-1) + 1e-8) - math.log(0.5 * (math.exp(-1) + math.exp(-2)) + 1e-8)
    )
    assert pytest.approx([wanted, 0.25, 0.25]) == ac.assign(rows, "siop").extras["turn_reward"].tolist()


def test_fewer_references_are_weighed_anew() -> None:
    both = {"baseline": [[0.5, -1.0], [0.5, -2.0]], "after_step": [[[0.5, -0.5], [0.5, -3.0]]] * 2}
    one = refs(-1.0, -0.5, -0.5)
    credit = [
        ac.assign([rollout("x", "a", 2, scores), rollout("y", "b", 1)], "siop", num_refs=1)
        for scores in (both, one)
    ]
    np.testing.assert_allclose(credit[1].steps, credit[0].steps)


def test_an_empty_turn_keeps_its_place() -> None:
    empty = [r | {"steps": [*r["steps"][:-1], {"n_tokens": 0}]} for r in EXAMPLE]
    np.testing.assert_array_equal(ac.assign(EXAMPLE, "siop").steps, ac.assign(empty, "siop").steps)


def test_one_rollout_is_compared_with_its_own_turns() -> None:
    single = [EXAMPLE[0], rollout("b1", "b", 1, group="h"), rollout("b2", "b", 1, group="h")]
    own = ac.assign(single, "siop", gamma=0.0, lam=1.0).by_rollout()[0]
    x = np.array(
        [
            math.log(math.exp(-1) + 1e-8) - math.log(math.exp(-2) + 1e-8),
            math.log(math.exp(-0.5) + 1e-8) - math.log(math.exp(-1) + 1e-8),
        ]
    )
    np.testing.assert_allclose(own, (x - x.mean()) / (x.std(ddof=1) + 1e-6), rtol=1e-9)


def test_equal_texts_are_a_cluster_where_none_is_given() -> None:
    rows = [{k: v for k, v in r.items() if k != "answer_cluster"} for r in EXAMPLE]
    credit = ac.assign(rows, "siop")
    np.testing.assert_array_equal(ac.assign(EXAMPLE, "siop").steps, credit.steps)
    assert 3 == credit.fallbacks["exact_match"]
    assert 0 == ac.assign(EXAMPLE, "siop").fallbacks["exact_match"]


def test_evidence_is_on_by_default_where_it_is_given() -> None:
    rows = [r | {"evidence": [0.8, 1.0] if r["answer"] == "b" else []} for r in EXAMPLE]
    b = math.exp(0.9) / (math.exp(0.9) + 2)
    assert pytest.approx([1 - b, 1 - b, b, 0]) == ac.assign(rows, "siop").extras["q"].tolist()
    assert pytest.approx([2 / 3, 2 / 3, 1 / 3, 0]) == ac.assign(rows, "siop", eta=0.0).extras["q"].tolist()


def test_what_is_missing_or_malformed_is_named() -> None:
    bare = [{k: v for k, v in r.items() if k != "ref_logprobs"} for r in EXAMPLE]
    with pytest.raises(MissingSignal, match="siop:variant=turn needs ref_logprobs"):
        ac.assign(bare, "siop")
    assert ac.assign(bare, "siop", variant="majority").steps.any()
    for scores in (refs(-1, -2), {"after_step": 3}, [1, 2], {"baseline": [-1], "after_step": [[-1], [-1]]}):
        with pytest.raises(DataError, match="rollout 'r0' has ref_logprobs of another form"):
            ac.assign([EXAMPLE[0] | {"ref_logprobs": scores}, *EXAMPLE[1:]], "siop")
    with pytest.raises(DataError, match="rollout 'r0' has evidence of another form"):
        ac.assign([EXAMPLE[0] | {"evidence": ["sure"]}, *EXAMPLE[1:]], "siop")
