"""entropy-top and entropy-adv: slow oracles, both forms of the threshold, ties, weights of the loss."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.errors import DataError
from accredit.methods.pepo import proximal_entropy
from tests.dear import dear
from tests.methods.token_rollouts import BASE, RAW, base_of, before_masks, one, told, walk


def slow_mask(batch, ratio, population, form):
    tokens = walk(batch)
    found = []
    for token in tokens:
        where = {"batch": lambda t: 0, "group": lambda t: t.group, "rollout": lambda t: t.r}[population]
        pool = sorted(t.entropy for t in tokens if t.counted and where(t) == where(token))
        if not token.counted:
            found.append(0.0)
        elif form == "kth":
            found.append(float(token.entropy >= pool[-max(1, int(ratio * len(pool) + 0.9999))]))
        else:
            found.append(float(token.entropy >= np.quantile(pool, 1 - ratio)))
    return np.array(found)


@dear
@given(
    told(rewards=(0.0, 1.0, 0.3)),
    st.sampled_from([0.05, 0.2, 0.25, 0.5, 1.0]),
    st.sampled_from(["batch", "group", "rollout"]),
    st.sampled_from(["kth", "quantile"]),
    st.sampled_from([BASE, "gigpo:singleton=zero"]),
)
def test_equals_the_slow_form(records, ratio, population, form, base):
    batch = ac.Batch.from_records(records)
    credit = ac.assign(batch, "entropy-top", ratio=ratio, population=population, threshold=form, base=base)
    mask, counted = slow_mask(batch, ratio, population, form), [t.counted for t in walk(batch)]
    np.testing.assert_array_equal(mask, credit.extras["mask"])
    expected = np.where(np.array(counted, bool), mask, 1.0) * base_of(batch, base)
    np.testing.assert_array_equal(expected, before_masks(credit))


@dear
@given(told())
def test_the_whole_share_is_the_base(records):
    np.testing.assert_array_equal(
        ac.assign(records, BASE).tokens, ac.assign(records, "entropy-top", ratio=1).tokens
    )


TEN = [one("a", 1.0, [0.0, 0.1, 0.2, 0.3, 0.4]), one("b", 0.0, [0.5, 0.6, 0.7, 0.8, 0.9])]


def test_authors_average_over_the_kept_tokens_and_trl_over_all():
    kept, all_of_them = (ac.assign(TEN, "entropy-top", compat=c).extras["loss_weight"] for c in (None, "trl"))
    assert [0.0] * 8 + [0.5] * 2 == kept.tolist()
    assert pytest.approx([0.0] * 8 + [0.1] * 2) == all_of_them.tolist()


def test_the_k_of_the_authors_can_miss_the_ceiling():
    many = [one("a", 1.0, [float(i) for i in range(10_001)]), one("b", 0.0, [])]

    def kept(ratio):
        return ac.assign(many, "entropy-top", ratio=ratio).extras["mask"].sum()

    assert 2001 == kept(0.2)  # of 2000.2
    assert 2 == kept(0.0001)  # of 1.0001
    assert 1 == kept(0.000099995)  # of 1.00005, a fraction below 1e-4


def test_ties_are_all_kept_and_told():
    records = [one("a", 1.0, [0.0] * 9 + [1.0]), one("b", 0.0, [0.0] * 10)]
    credit = ac.assign(records, "entropy-top")
    assert [1.0] * 20 == credit.extras["mask"].tolist()
    assert [1.0] == credit.extras["kept_share"].tolist()
    assert ["ACC442"] == [f.code for f in credit.findings]
    assert [] == [f.code for f in ac.assign(TEN, "entropy-top").findings]


def test_proximal_entropy_ranks_too():
    rng = np.random.default_rng(0)
    records = [one(n, r, rng.exponential(1, 30).tolist()) for n, r in (("a", 1.0), ("b", 0.0))]
    credit = ac.assign(records, "entropy-top", rank_by="proximal", window=5)
    rank = np.concatenate([proximal_entropy(np.float32(r["steps"][0]["entropies"]), 5) for r in records])
    np.testing.assert_array_equal(rank >= np.sort(rank)[-12], credit.extras["mask"])


# -- entropy-adv --------------------------------------------------------------------------------------


@dear
@given(told(rewards=(0.0, 1.0, 0.3)), st.floats(0, 2), st.sampled_from([0.5, 2.0, 5.0]))
def test_bonus_equals_the_slow_form(records, alpha, kappa):
    batch = ac.Batch.from_records(records)
    credit = ac.assign(batch, "entropy-adv", alpha=alpha, kappa=kappa)
    pairs = zip(walk(batch), base_of(batch), strict=True)
    expected = [a + min(alpha * t.entropy, abs(a) / kappa) for t, a in pairs]
    np.testing.assert_allclose(before_masks(credit), expected, rtol=1e-9, atol=1e-12)


@dear
@given(told())
def test_bonus_is_positive_keeps_the_sign_and_needs_an_advantage(records):
    batch = ac.Batch.from_records(records)
    values, base = before_masks(ac.assign(batch, "entropy-adv")), base_of(batch)
    assert (values >= base).all()
    np.testing.assert_array_equal(np.sign(base), np.sign(values))
    np.testing.assert_array_equal(
        ac.assign(records, BASE).tokens, ac.assign(records, "entropy-adv", alpha=0).tokens
    )


def test_bonus_of_a_failure_spares_uncertain_tokens():
    records = [one("a", -1.0, [0.0, 0.5, 2.0])]
    assert pytest.approx([-1.0, -0.8, -0.5]) == ac.assign(records, "entropy-adv", base=RAW).tokens.tolist()
    assert (
        pytest.approx([-1.0, -0.95, -0.8])
        == ac.assign(records, "entropy-adv", base=RAW, compat="ppo").tokens.tolist()
    )
    assert math.isclose(0.1, ac.assign(records, "entropy-adv", compat="ppo").params["alpha"])


def test_groups_of_one_are_refused_unless_the_base_says_what_they_get():
    records = [{**one(id, reward, [0.1, 0.2]), "group": id} for id, reward in (("a", 1.0), ("b", 0.5))]
    with pytest.raises(DataError, match=r"ACC111.*entropy-adv.*base='grpo:singleton=raw'"):
        ac.assign(records, "entropy-adv")
    assert not ac.assign(records, "entropy-adv", base="grpo:singleton=zero").tokens.any()
    assert ac.assign(records, "entropy-adv", base=RAW).tokens.all()
    assert ac.assign(records[:1], "entropy-adv").tokens.tolist() == [0.0, 0.0]  # one rollout shows nothing
