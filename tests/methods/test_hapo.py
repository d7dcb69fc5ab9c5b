"""hapo: the card's hand example, a slow oracle, properties, and the four quadrants."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.methods.hapo import QUADRANTS, quadrants
from tests.dear import dear
from tests.methods.token_rollouts import BASE, RAW, base_of, before_masks, one, told, untouched, walk

CARD = [one("a", 1.0, [0.0, 0.5, 2.0]), one("b", -1.0, [0.1, 0.4, 3.0])]


def near(values):
    return pytest.approx(values, abs=1e-6)


def test_card_example():
    credit = ac.assign(CARD, "hapo", base=RAW)
    assert near([0.9, 0.910076, 1.1, -0.9, -0.9, -1.1]) == credit.tokens.tolist()
    z = [-0.899236, -0.449618, 0.899236, -0.809312, -0.539542, 1.798472]
    assert near(z) == credit.extras["z"].tolist()
    assert [2, 2, 1, 4, 4, 3] == credit.extras["quadrant"].tolist()
    assert near([1.0]) == credit.extras["tau"].tolist()


def slow(batch, alpha, phi, population, base=BASE):
    tokens, advantage = walk(batch), base_of(batch, base)
    found = []
    for token, a in zip(tokens, advantage, strict=True):
        where = {"group": lambda t: t.group, "batch": lambda t: 0, "rollout": lambda t: t.r}[population]
        pool = [t.entropy for t in tokens if t.counted and where(t) == where(token)]
        z = 0.0
        if token.counted and max(pool) > min(pool):
            mean = sum(pool) / len(pool)
            std = math.sqrt(sum((x - mean) ** 2 for x in pool) / len(pool))
            z = (token.entropy - mean) / (std + 1e-8)
        bound = abs(a) / phi
        sign = np.sign(a)
        found.append(a + alpha * sign * min(max(z, -bound), bound))
    return found


@dear
@given(
    told(rewards=(0.0, 1.0, 0.3)),
    st.floats(0, 1),
    st.sampled_from([1.5, 2.0, 7.0]),
    st.sampled_from(["group", "batch", "rollout"]),
)
def test_equals_the_slow_form(records, alpha, phi, population):
    batch = ac.Batch.from_records(records)
    credit = ac.assign(batch, "hapo", alpha=alpha, phi=phi, population=population)
    np.testing.assert_allclose(before_masks(credit), slow(batch, alpha, phi, population), atol=1e-9)


@dear
@given(told())
def test_the_sign_stays_and_the_factor_is_bounded(records):
    batch = ac.Batch.from_records(records)
    values, base = before_masks(ac.assign(batch, "hapo")), base_of(batch)
    np.testing.assert_array_equal(np.sign(base), np.sign(values))
    some = base != 0
    assert (np.abs(values[some] / base[some] - 1) <= 0.1 + 1e-12).all()


@dear
@given(told())
def test_more_entropy_never_means_a_smaller_advantage_in_a_rollout(records):
    batch = ac.Batch.from_records(records)
    values, tokens = np.abs(before_masks(ac.assign(batch, "hapo"))), walk(batch)
    for r in range(len(batch)):
        own = [i for i, t in enumerate(tokens) if t.r == r and t.counted]
        own.sort(key=lambda i: tokens[i].entropy)
        assert (np.diff(values[own]) >= -1e-12).all()


@dear
@given(told())
def test_it_is_the_base_without_strength_or_without_room(records):
    for more in ({"alpha": 0}, {"phi": math.inf}):
        credit = ac.assign(records, "hapo", **more)
        np.testing.assert_array_equal(ac.assign(records, BASE).tokens, credit.tokens)


@dear
@given(told(), st.sampled_from([0.5, 2.0, 4.0]), st.sampled_from([0.0, 1.0, 16.0]))
def test_a_positive_affine_change_of_all_entropies_changes_nothing(records, a, b):
    moved = [
        r | {"steps": [s | {"entropies": [a * h + b for h in s["entropies"]]} for s in r["steps"]]}
        for r in records
    ]
    first, second = (before_masks(ac.assign(x, "hapo")) for x in (records, moved))
    np.testing.assert_allclose(first, second, atol=1e-5)  # entropies are kept in float32


def test_it_is_not_homogeneous_small_advantages_saturate():
    small = [r | {"reward": 1e-3 * r["reward"]} for r in CARD]
    expected = [0.9, 0.9, 1.1, -0.9, -0.9, -1.1]
    assert near(expected) == (1e3 * ac.assign(small, "hapo", base=RAW).tokens).tolist()


def test_equal_entropies_leave_the_base_and_count_as_high():
    third = float(np.float32(1 / 3))
    for h in (0.0, third, 0.1):
        records = [one("a", 1.0, [h] * 7), one("b", 0.0, [h] * 3)]
        credit = ac.assign(records, "hapo")
        np.testing.assert_array_equal(ac.assign(records, BASE).tokens, credit.tokens)
        assert [1] * 7 + [3] * 3 == credit.extras["quadrant"].tolist()


def test_a_token_varying_base_is_used_token_by_token():
    steps = [{"entropies": [0.0, 2.0], "token_values": [0.2, 0.7], "value": 0.2}]
    records = [{"id": "a", "group": "g", "reward": 1, "steps": steps}]
    base = ac.assign(records, "gae", granularity="token").tokens
    credit = ac.assign(records, "hapo", base="gae:granularity=token", population="rollout")
    assert base[0] != base[1]
    expected = [
        a + 0.2 * np.sign(a) * np.clip(z, -abs(a) / 2, abs(a) / 2) for a, z in zip(base, (-1, 1), strict=True)
    ]
    np.testing.assert_allclose(credit.tokens, expected, rtol=1e-6)


def test_gigpo_can_be_the_base():
    records = [
        {"id": n, "group": "g", "reward": r, "steps": [{"state": s, "entropies": [0.1, 0.9]} for s in "xy"]}
        for n, r in (("a", 1), ("b", 0))
    ]
    credit = ac.assign(records, "hapo", base="gigpo:gamma=0.5")
    np.testing.assert_array_equal(ac.assign(records, "gigpo", gamma=0.5).tokens, credit.extras["base"])
    assert (np.abs(credit.tokens) != np.abs(credit.extras["base"])).all()


# -- quadrants ----------------------------------------------------------------------------------------


@dear
@given(told(), st.sampled_from([{}, {"tau": "median"}, {"percentile": 80}, {"threshold": 0.5}]))
def test_quadrants_partition_the_trained_tokens(records, how):
    batch = ac.Batch.from_records(records)
    found = quadrants(batch, **how)
    counted, zero = ~untouched(batch), base_of(batch) == 0
    assert int((counted & ~zero).sum()) == sum(found.counts.values())
    assert not found.label_T[~counted | zero].any()
    assert {0.0, 1.0} >= {round(sum(share.values()), 9) for share in (found.advantage, found.gradient)}
    for name, low in (("PHR", 0), ("PLR", 1), ("NHR", 0), ("NLR", 1)):
        for at in np.flatnonzero(found.label_T == 1 + QUADRANTS.index(name)):
            token = walk(batch)[at]
            tau = found.tau_G[list(dict.fromkeys(r["group"] for r in records)).index(token.group)]
            high = token.entropy > tau if "percentile" in how else token.entropy >= tau
            assert (name[0] == "P", bool(low)) == (base_of(batch)[at] > 0, not high)


@dear
@given(told())
def test_keeping_all_changes_nothing_and_keeping_none_gives_zeros(records):
    plain = ac.assign(records, "hapo").tokens
    np.testing.assert_array_equal(plain, ac.assign(records, "hapo", keep=set(QUADRANTS)).tokens)
    for none in (set(), {}, ()):
        assert not ac.assign(records, "hapo", keep=none).tokens.any()
    kept = [ac.assign(records, "hapo", keep={name}).tokens for name in QUADRANTS]
    np.testing.assert_array_equal(plain, np.sum(kept, axis=0))


def test_ablate_leaves_the_base_in_its_quadrants():
    credit = ac.assign(CARD, "hapo:ablate=PHR+NLR", base=RAW)
    assert near([0.9, 0.910076, 1.0, -1.0, -1.0, -1.1]) == credit.tokens.tolist()
    assert ("PHR", "NLR") == credit.params["ablate"]


def test_shares_of_advantage_and_gradient():
    records = [
        one("a", 1.0, [0.0, 3.0]) | {"steps": [{"entropies": [0.0, 3.0], "logprobs": [0.0, math.log(0.25)]}]},
        one("b", 0.0, [1.0]) | {"steps": [{"entropies": [1.0], "logprobs": [math.log(0.5)]}]},
    ]
    found = quadrants(records, base="dr-grpo")
    assert {"PHR": 1, "PLR": 1, "NHR": 0, "NLR": 1} == found.counts
    assert near([1 / 3, 1 / 3, 0, 1 / 3]) == list(found.advantage.values())
    assert near([0.6, 0, 0, 0.4]) == list(found.gradient.values())
    assert quadrants(CARD).gradient is None


def test_a_percentile_of_many_zeros_is_exceeded_only_by_what_is_above_zero():
    found = quadrants([one("a", 1.0, [0.0, 0.0, 0.0, 0.0, 0.1]), one("b", 0.0, [0.0])], percentile=50)
    assert {"PHR": 1, "PLR": 4, "NHR": 0, "NLR": 1} == found.counts


def test_a_tie_is_in_no_quadrant():
    found = quadrants([one("a", 1.0, [0.0, 1.0]), one("b", 1.0, [2.0])])
    assert [0, 0, 0] == found.label_T.tolist()
    assert 0 == sum(found.advantage.values())


# -- what is refused ------------------------------------------------------------------------------------


def test_surprisal_stands_in_only_when_asked():
    records = [
        {"id": n, "group": "g", "reward": r, "steps": [{"logprobs": [-0.1, -2.0]}]}
        for n, r in (("a", 1), ("b", 0))
    ]
    with pytest.raises(ac.AccreditError, match="hapo needs entropies"):
        ac.assign(records, "hapo")
    credit = ac.assign(records, "hapo", proxy="surprisal")
    assert abs(credit.tokens[1]) > abs(credit.tokens[0])


def test_a_step_without_entropies_is_named():
    records = [one("a", 1.0, [0.1], [0.2]), one("b", 0.0, [0.3])]
    del records[0]["steps"][1]["entropies"]
    with pytest.raises(ac.AccreditError, match="rollout 'a' step 1 has no entropies"):
        ac.assign(records, "hapo")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"alpha": 0.5, "phi": 0.5}, "phi must be above alpha"),
        ({"alpha": 1.5}, "alpha must be in"),
        ({"percentile": 50, "threshold": 1.0}, "exclude each other"),
        ({"keep": {"PHX"}}, "keep must be some of PHR"),
        ({"keep": ""}, "keep must be some of PHR"),
        ({"keep": 3}, "keep must be some of PHR"),
    ],
)
def test_wrong_parameters_are_refused(more, says):
    with pytest.raises(ac.AccreditError, match=says):
        ac.assign(CARD, "hapo", **more)
