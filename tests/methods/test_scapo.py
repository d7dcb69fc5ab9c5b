"""scapo: the card's worked example, its properties and edge cases, and a plain-loop oracle."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.errors import MissingSignal
from tests.dear import dear

P0 = [[0.8, 0.5, 0.9, 0.2], [0.6, 0.9, 0.4, 0.7]]
P1 = [[0.8, 0.3, 0.9, 0.25], [0.5, 0.9, 0.1, 0.7]]
P2 = [[0.72, 0.5, 0.9, 0.2], [0.6, 0.9, 0.4, 0.35]]


def logs(row: list[float]) -> list[float]:
    return [math.log(p) for p in row]


def rollout(
    name: str, reward: float | None, plain: list[float], **altered: list[float] | None
) -> dict[str, Any]:
    given_ = {k: v for k, v in altered.items() if v is not None}
    step = {"logprobs": plain} | ({"perturbed_logprobs": given_} if given_ else {})
    return {"id": name, "group": "g", "reward": reward, "steps": [step]}


EXAMPLE = [rollout(f"r{i}", 2.0 - 2 * i, logs(P0[i]), para=logs(P1[i]), typo=logs(P2[i])) for i in range(2)]


def run(records: list[dict[str, Any]], **params: Any) -> ac.Credit:
    return ac.assign(records, "scapo", **{"base": "dr-grpo", **params})


def test_card_example() -> None:
    credit = run(EXAMPLE)
    u = [0.534640, -0.139229, 0.941660, 0.461265, 0.548609, 0.941660, -1.652472, -1.636132]
    assert pytest.approx(u, abs=2e-6) == credit.extras["stability"].tolist()
    wanted = [1, 0.998608, 1, 1, -1, -1, -1.016525, -1.016361]
    assert pytest.approx(wanted, abs=1e-6) == credit.tokens.tolist()
    d1 = [0, 0.5, 0, 0.222222, 0.181818, 0, 1.2, 0]
    d2 = [0.105263, 0, 0, 0, 0, 0, 0, 0.666667]
    mean = [(a + b) / 2 for a, b in zip(d1, d2, strict=True)]
    assert pytest.approx(mean, abs=1e-6) == credit.extras["drift"].tolist()


# -- the oracle -----------------------------------------------------------------------------------


def zscore(values: list[float], eps: float) -> list[float]:
    if not values or max(values) - min(values) <= 1e-12:
        return [0.0] * len(values)
    mean, std = statistics.fmean(values), statistics.pstdev(values)
    return [(v - mean) / (std + eps) for v in values]


def oracle(records: list[dict[str, Any]], eps: float = 1e-8) -> dict[str, list[float]]:
    """u of every token of scored rollouts, group by group, by the ratio form of the drift."""
    found = {r["id"]: [0.0] * len(r["steps"][0]["logprobs"]) for r in records}
    for group in {r["group"] for r in records}:
        rows = [r for r in records if r["group"] == group and r["reward"] is not None]
        names = {k for r in rows for k in r["steps"][0].get("perturbed_logprobs", {})}
        per_name = []
        for name in names:
            drift = []
            for r in rows:
                step = r["steps"][0]
                for a, b in zip(step["logprobs"], step["perturbed_logprobs"][name], strict=True):
                    p0, pk = math.exp(np.float32(a)), math.exp(np.float32(b))
                    drift.append(-abs(p0 - pk) / ((p0 + pk) / 2))
            per_name.append(zscore(drift, eps))
        if per_name:
            u = zscore([statistics.fmean(column) for column in zip(*per_name, strict=True)], eps)
            places = [(r["id"], t) for r in rows for t in range(len(r["steps"][0]["logprobs"]))]
            for (name, t), value in zip(places, u, strict=True):
                found[name][t] = value
    return found


lp = st.floats(-8, 0, width=16)


@st.composite
def batches(draw: st.DrawFn) -> list[dict[str, Any]]:
    found = []
    names = {g: draw(st.sets(st.sampled_from(["a", "b", "c"]))) for g in "gh"}
    for i in range(draw(st.integers(1, 6))):
        group = draw(st.sampled_from("gh"))
        n = draw(st.integers(0, 4))
        row = st.lists(lp, min_size=n, max_size=n)
        altered = {name: draw(row) for name in sorted(names[group])}
        reward = draw(st.sampled_from([0.0, 1.0, None]))
        found.append(rollout(f"r{i}", reward, draw(row), **altered) | {"group": group})
    extra = rollout("extra", 1.0, [-1.0], a=[-1.0], b=[-1.0], c=[-1.0])
    return [*found, *(extra | {"id": name, "group": "other"} for name in ("x", "y"))]


@dear
@given(batches(), st.sampled_from([0.0, 0.01, 1.0]), st.sampled_from([1, 6, 4096]))
def test_equals_plain_loops(records: list[dict[str, Any]], lam: float, piece: int) -> None:
    """Populations one by one, or several at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("accredit.methods.scapo._PIECE", piece)
        credit = run(records, lam=lam)
    wanted = oracle(records)
    base = ac.assign(records, "dr-grpo").tokens_by_rollout()
    for r, row in enumerate(records):
        for got, under in zip(credit.tokens_by_rollout()[r], base[r], strict=True):
            expected = under + lam * np.minimum(wanted[row["id"]], 0)
            np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


# -- properties -----------------------------------------------------------------------------------


@dear
@given(batches(), st.floats(0, 2))
def test_credit_only_falls_and_by_half_of_lam_on_average(records: list[dict[str, Any]], lam: float) -> None:
    credit = run(records, lam=lam)
    u, base = credit.extras["stability"], credit.extras["base"]
    assert (credit.result.values <= base).all()
    kept = u >= 0
    np.testing.assert_array_equal(credit.result.values[kept], base[kept])
    scored = np.repeat(
        [r["reward"] is not None for r in records], [len(r["steps"][0]["logprobs"]) for r in records]
    )
    groups = np.repeat([r["group"] for r in records], [len(r["steps"][0]["logprobs"]) for r in records])
    for group in set(groups.tolist()):
        own = u[(groups == group) & scored]
        if own.size:
            assert abs(own.mean()) < 1e-6
            assert (own**2).mean() <= 1 + 1e-9
            assert np.abs(np.minimum(own, 0)).mean() <= 0.5 + 1e-9
    assert (credit.extras["drift"] >= 0).all()
    assert (credit.extras["drift"] <= 2).all()
    if lam == 0:
        np.testing.assert_array_equal(base, credit.result.values)


def test_weight_zero_is_the_base() -> None:
    np.testing.assert_array_equal(
        ac.assign(EXAMPLE, "grpo").tokens, ac.assign(EXAMPLE, "scapo", lam=0.0).tokens
    )


def test_order_and_names_of_alterations_change_nothing() -> None:
    other = [rollout(f"r{i}", 2.0 - 2 * i, logs(P0[i]), zzz=logs(P1[i]), aaa=logs(P2[i])) for i in range(2)]
    np.testing.assert_allclose(run(EXAMPLE).tokens, run(other).tokens, rtol=1e-12)


def test_groups_that_interleave_are_standardised_as_groups() -> None:
    rng = np.random.default_rng(0)
    rows = [
        rollout(f"r{i}", float(i % 3), logs(rng.random(5).tolist()), x=logs(rng.random(5).tolist()))
        | {"group": "gh"[i % 2]}
        for i in range(8)
    ]
    mixed = run(rows).tokens_by_rollout()
    for start in (0, 1):
        for got, wanted in zip(mixed[start::2], run(rows[start::2]).tokens_by_rollout(), strict=True):
            np.testing.assert_allclose(got[0], wanted[0], rtol=1e-9)


def test_drift_is_symmetric_and_its_two_forms_agree() -> None:
    swapped = [rollout(f"r{i}", 2.0 - 2 * i, logs(P1[i]), para=logs(P0[i])) for i in range(2)]
    one = [rollout(f"r{i}", 2.0 - 2 * i, logs(P0[i]), para=logs(P1[i])) for i in range(2)]
    drift = run(one).extras["drift"]
    np.testing.assert_allclose(drift, run(swapped).extras["drift"], rtol=1e-12)
    ratio = [2 * abs(a - b) / (a + b) for x, y in zip(P0, P1, strict=True) for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(drift, ratio, atol=1e-6)


def test_no_underflow_far_from_certainty() -> None:
    rows = [rollout("a", 1.0, [-800.0, -1.0], x=[-801.0, -1.0]), rollout("b", 0.0, [-1.0], x=[-1.0])]
    assert pytest.approx(2 * math.tanh(0.5)) == run(rows).extras["drift"][0]


def test_corrections_are_the_signs_of_u() -> None:
    u = run(EXAMPLE).extras["stability"]
    base = run(EXAMPLE).extras["base"]
    for name, used in (("all", u), ("positive", np.maximum(u, 0))):
        np.testing.assert_allclose(run(EXAMPLE, correction=name).tokens, base + 0.01 * used, rtol=1e-12)


# -- edge cases -----------------------------------------------------------------------------------


def test_a_group_that_ties_is_credited_by_tokens_alone_unless_left_out() -> None:
    tied = [r | {"reward": 1.0} for r in EXAMPLE]
    credit = run(tied)
    assert credit.tokens.min() < 0
    assert 0.0 == credit.tokens.max()
    assert {"ACC438"} == {f.code for f in credit.findings}
    left = run(tied, skip_zero_variance=True)
    assert not left.tokens.any()
    assert () == left.findings


def test_equal_drifts_and_an_unaltered_prompt_give_the_base() -> None:
    same = [rollout(f"r{i}", 1.0 - i, [-1.0, -2.0], x=[-1.5, -2.5], y=[-1.0, -2.0]) for i in range(2)]
    np.testing.assert_array_equal(run(same).extras["base"], run(same).tokens)


def test_an_unaltered_prompt_halves_nothing_but_the_average() -> None:
    """It contributes 0 to the average, and the second standardisation undoes the factor."""
    more = [rollout(f"r{i}", 2.0 - 2 * i, logs(P0[i]), para=logs(P1[i]), same=logs(P0[i])) for i in range(2)]
    one = [rollout(f"r{i}", 2.0 - 2 * i, logs(P0[i]), para=logs(P1[i])) for i in range(2)]
    np.testing.assert_allclose(run(more).extras["stability"], run(one).extras["stability"], rtol=1e-6)


def test_a_group_may_lack_an_alteration_but_a_rollout_may_not() -> None:
    far = [rollout(f"h{i}", 1.0 - i, logs(P0[i]), para=logs(P1[i])) | {"group": "h"} for i in range(2)]
    whole = run([*EXAMPLE, *far])
    np.testing.assert_allclose(whole.tokens[:8], run(EXAMPLE).tokens, rtol=1e-12)
    np.testing.assert_allclose(whole.tokens[8:], run(far).tokens, rtol=1e-12)
    odd = [EXAMPLE[0], rollout("r1", 0.0, logs(P0[1]), para=logs(P1[1]))]
    with pytest.raises(MissingSignal, match=r"rollout 'r1' step 0 has no perturbed_logprobs.typo"):
        run(odd)


def test_what_is_not_scored_with_full_support_is_refused() -> None:
    cut = [EXAMPLE[0], rollout("r1", 0.0, logs(P0[1]), para=[-math.inf, -1.0, -1.0, -1.0], typo=logs(P2[1]))]
    with pytest.raises(MissingSignal, match=r"rollout 'r1' step 0 has no perturbed_logprobs.para"):
        run(cut)


def test_tokens_that_are_not_trained_are_outside_every_statistic() -> None:
    noise = {"logprobs": [-1.0, -1.0], "perturbed_logprobs": {"para": [-9.0, -5.0], "typo": [-3.0, -7.0]}}
    frozen = [r | {"steps": [*r["steps"], noise | {"trainable": False}]} for r in EXAMPLE]
    credit = run(frozen)
    keep = [0, 1, 2, 3, 6, 7, 8, 9]
    np.testing.assert_allclose(credit.tokens[keep], run(EXAMPLE).tokens, rtol=1e-12)
    assert not credit.tokens[[4, 5, 10, 11]].any()


def test_an_outlier_is_a_finding_and_can_be_clipped() -> None:
    n = 400
    rows = [
        rollout(f"r{i}", 0.1 * i, [-1.0] * n, x=[-3.0 if i == t == 0 else -1.0 for t in range(n)])
        for i in range(2)
    ]
    credit = run(rows)
    assert pytest.approx(-math.sqrt(2 * n - 1), rel=1e-3) == credit.extras["stability"].min()
    assert {"ACC437"} == {f.code for f in credit.findings}
    assert () == run(rows, clip_u=3.0).findings
    assert pytest.approx(0.03) == (credit.extras["base"] - run(rows, clip_u=3.0).tokens).max()


def test_one_rollout_is_standardised_over_its_own_tokens() -> None:
    credit = ac.assign(EXAMPLE[:1], "scapo")
    assert 0.0 == credit.extras["base"].max()
    assert credit.extras["stability"].std() == pytest.approx(1.0)


# -- worth reproducing ----------------------------------------------------------------------------


def test_tokens_that_latch_on_to_a_planted_feature_are_singled_out_and_shuffling_undoes_it() -> None:
    rng = np.random.default_rng(0)
    rows, hit = [], []
    for i in range(64):
        plain = rng.uniform(-2, -0.1, 20)
        latched = rng.random(20) < 0.1
        altered = {
            name: (plain + rng.normal(0, 0.05, 20) - 1.5 * latched).tolist() for name in ("a", "b", "c", "d")
        }
        hit.append(latched)
        rows.append(rollout(f"r{i}", float(i % 2), plain.tolist(), **altered) | {"group": f"g{i // 8}"})
    u, latched = run(rows).extras["stability"], np.concatenate(hit)
    assert u[latched].max() < u[~latched].min()
    gap = u[~latched].mean() - u[latched].mean()
    shuffled = rng.permutation(u.reshape(64, 20), axis=1).ravel()
    assert abs(shuffled[latched].mean() - shuffled[~latched].mean()) < 0.2 * gap
