"""eapo: the card's hand example, a slow oracle, properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from tests.dear import dear
from tests.methods.token_rollouts import BASE, RAW, base_of, before_masks, one, told, walk


def near(values):
    return pytest.approx(values, abs=1e-6)


@pytest.mark.parametrize(
    ("reward", "expected"), [(1.0, [0.428571, 0.857143, 1.714286]), (-1.0, [-1.714286, -0.857143, -0.428571])]
)
def test_card_example(reward, expected):
    # Quantiles 0 and 1 make h = (0, 0.5, 1) of these entropies.
    credit = ac.assign([one("a", reward, [0.0, 0.5, 1.0])], "eapo", base=RAW, q_low=0, q_high=1)
    assert near([0.0, 0.5, 1.0]) == credit.extras["normalized_entropy"].tolist()
    assert near(expected) == credit.tokens.tolist()
    assert near(3 * reward) == credit.tokens.sum()


def quantile(values, q):
    rank = q * (len(values) - 1)
    low = math.floor(rank)
    a, b = sorted(values)[low], sorted(values)[min(low + 1, len(values) - 1)]
    return a + (rank - low) * (b - a)


def slow(batch, kappa, population, base, by_step):
    tokens, advantage = walk(batch), base_of(batch, base)
    weights = []
    for token, a in zip(tokens, advantage, strict=True):
        pool = [t.entropy for t in tokens if t.counted and (population == "batch" or t.group == token.group)]
        if not token.counted:
            weights.append(1.0)
            continue
        low, high = quantile(pool, 0.1), quantile(pool, 0.9)
        h = min(max((token.entropy - low) / (high - low + 1e-8), 0), 1)
        weights.append(math.exp(kappa * (np.sign(a)) * h))
    found = []
    for token, a, w in zip(tokens, advantage, weights, strict=True):
        row = [v for t, v in zip(tokens, weights, strict=True) if t.counted and _same(t, token, by_step)]
        found.append(a * w / (sum(row) / len(row)) if token.counted else a)
    return found


def _same(a, b, by_step):
    return a.s == b.s if by_step else a.r == b.r


@dear
@given(
    told(rewards=(0.0, 1.0, 0.3)),
    st.floats(0, 3),
    st.sampled_from(["batch", "group"]),
    st.sampled_from([(BASE, False), ("gigpo:singleton=zero", True)]),
)
def test_equals_the_slow_form(records, kappa, population, base):
    batch = ac.Batch.from_records(records)
    credit = ac.assign(batch, "eapo", kappa=kappa, population=population, base=base[0])
    np.testing.assert_allclose(before_masks(credit), slow(batch, kappa, population, *base), atol=1e-9)


@dear
@given(told())
def test_weights_are_positive_average_to_one_and_are_bounded(records):
    batch = ac.Batch.from_records(records)
    weight, tokens = ac.assign(batch, "eapo").extras["weight"], walk(batch)
    assert (weight > 0).all()
    for r in range(len(batch)):
        own = weight[[i for i, t in enumerate(tokens) if t.r == r and t.counted]]
        if own.size:
            assert own.mean() == pytest.approx(1.0)
            assert own.max() <= 4 * own.min() * (1 + 1e-12)


@dear
@given(told())
def test_weight_rises_with_entropy_in_successes_and_falls_in_failures(records):
    batch = ac.Batch.from_records(records)
    weight, tokens, base = ac.assign(batch, "eapo").extras["weight"], walk(batch), base_of(batch)
    for r in range(len(batch)):
        own = [i for i, t in enumerate(tokens) if t.r == r and t.counted]
        own.sort(key=lambda i: tokens[i].entropy)
        if own:
            assert (np.sign(base[own[0]]) * np.diff(weight[own]) >= -1e-12).all()


@dear
@given(told())
def test_kappa_zero_is_the_base_and_a_tie_gets_zero(records):
    np.testing.assert_array_equal(ac.assign(records, BASE).tokens, ac.assign(records, "eapo", kappa=0).tokens)
    tied = [r | {"reward": 1.0} for r in records]
    assert not ac.assign(tied, "eapo").tokens.any()


@dear
@given(told(), st.sampled_from([0.5, 2.0]), st.sampled_from([0.0, 16.0]))
def test_a_positive_affine_change_of_all_entropies_changes_nothing(records, a, b):
    moved = [
        r | {"steps": [s | {"entropies": [a * h + b for h in s["entropies"]]} for s in r["steps"]]}
        for r in records
    ]
    first, second = (ac.assign(x, "eapo", eps=1e-300).tokens for x in (records, moved))
    np.testing.assert_allclose(first, second, atol=1e-4)  # entropies are kept in float32


@given(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=6))
def test_a_success_mirrors_a_failure_of_the_opposite_entropies(h):
    h = [0.0, *h, 1.0]
    weights = [
        ac.assign([one("a", reward, heights)], "eapo", base=RAW, q_low=0, q_high=1).extras["weight"]
        for reward, heights in ((1.0, h), (-1.0, [1 - x for x in h]))
    ]
    np.testing.assert_allclose(*weights, atol=1e-6)


def test_where_the_quantiles_tie_every_entropy_above_counts_as_one():
    credit = ac.assign([one("a", 1.0, [0.0] * 18 + [1e-3]), one("b", 0.0, [0.0] * 5)], "eapo")
    assert [0.0] * 18 + [1.0] + [0.0] * 5 == pytest.approx(
        credit.extras["normalized_entropy"].tolist(), abs=1e-4
    )


def test_kappa_decays():
    records = [one("a", 1.0, [0.0, 1.0]), one("b", 0.0, [0.0, 1.0])]
    half = ac.assign(records, "eapo", kappa_decay_steps=10, optimiser_step=5).tokens
    np.testing.assert_array_equal(ac.assign(records, "eapo", kappa=math.log(4) / 2).tokens, half)
    gone = ac.assign(records, "eapo", kappa_decay_steps=10, optimiser_step=99).tokens
    np.testing.assert_array_equal(ac.assign(records, BASE).tokens, gone)


def test_a_huge_kappa_stays_finite():
    credit = ac.assign([one("a", 1.0, [0.0, 1.0, 2.0]), one("b", 0.0, [0.0, 2.0])], "eapo", kappa=1e4)
    a = 1 / math.sqrt(2)
    assert pytest.approx([0, 0, 3 * a, -2 * a, 0], abs=1e-5) == credit.tokens.tolist()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"kappa": -0.1}, "kappa must be in"),
        ({"kappa": math.inf}, "kappa must be finite"),
        ({"q_low": 0.9, "q_high": 0.9}, "q_low must be below q_high"),
        ({"base": "hapo"}, "tells the tokens of a step apart"),
        ({"base": "reinforce-pp"}, "tells the tokens of a step apart"),
    ],
)
def test_what_it_cannot_do_is_refused(more, says):
    with pytest.raises(ac.AccreditError, match=says):
        ac.assign([one("a", 1.0, [0.1]), one("b", 0.0, [0.2])], "eapo", **more)


def test_it_does_the_opposite_of_hapo_on_the_same_failure():
    records = [one("a", 1.0, [0.0, 0.5, 2.0]), one("b", -1.0, [0.1, 0.4, 3.0])]
    hapo, eapo = (ac.assign(records, name, base=RAW).tokens[3:] for name in ("hapo", "eapo"))
    success = ac.assign(records, "eapo", base=RAW).tokens[:3]
    assert pytest.approx([0.565578, 0.729584, 1.704838], abs=1e-5) == success.tolist()
    assert near([-0.9, -0.9, -1.1]) == hapo.tolist()
    assert pytest.approx([-1.427858, -1.204934, -0.367208], abs=1e-5) == eapo.tolist()
    assert -3.0 == pytest.approx(eapo.sum())


def test_under_a_base_by_step_every_step_keeps_its_mean():
    rng = np.random.default_rng(0)
    records = [
        {
            "id": f"r{r}",
            "group": "g",
            "reward": float(r % 2),
            "steps": [
                {"state": "xy"[t % 2], "entropies": rng.exponential(1, 3).tolist()} for t in range(r + 1)
            ],
        }
        for r in range(4)
    ]
    credit = ac.assign(records, "eapo", base="gigpo")
    np.testing.assert_allclose(credit.steps, ac.assign(records, "gigpo").steps, atol=1e-12)
    assert (credit.parts["entropy"] != 0).all()
