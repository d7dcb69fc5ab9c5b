"""rlsd: direction from the outcome, magnitude from the teacher."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from tests.dear import dear
from tests.methods.teacher_oracles import Record, slow_rlsd, taught

GAPS = (-1.0, -0.1, 0.0, 0.1, 1.0)


def pair(gaps: tuple[float, ...]) -> list[Record]:
    """A success and a failure with these gaps; dr-grpo times 2 gives them 1 and -1."""
    steps = [{"logprobs": [-2.0] * len(gaps), "logprobs_teacher": [-2.0 + d for d in gaps]}]
    return [{"id": n, "group": "g", "reward": r, "steps": steps} for n, r in (("a", 2), ("b", 0))]


def test_card_example() -> None:
    credit = ac.assign(pair(GAPS), "rlsd", base="dr-grpo")
    np.testing.assert_allclose(credit.tokens[:5], [0.9, 0.952419, 1, 1.052585, 1.1], atol=1e-6)
    np.testing.assert_allclose(credit.tokens[5:], [-1.1, -1.052585, -1, -0.952419, -0.9], atol=1e-6)


shares = st.sampled_from([0.0, 0.3, 0.5, 1.0])
bands = st.sampled_from([0.0, 0.1, 0.2])


def has_teacher(records: list[Record]) -> bool:
    return any("logprobs_teacher" in s for r in records for s in r["steps"])


@dear
@given(taught().filter(has_teacher), shares, bands)
def test_rlsd_equals_a_plain_loop(records, lam, eps) -> None:
    """Seen failing with the sign left out."""
    credit = ac.assign(records, "rlsd", lam=lam, eps=eps)
    np.testing.assert_allclose(credit.tokens, slow_rlsd(records, lam, eps), atol=1e-5)


@dear
@given(taught().filter(has_teacher), shares, bands)
def test_the_sign_is_kept_and_the_size_stays_in_its_band(records, lam, eps) -> None:
    credit = ac.assign(records, "rlsd", lam=lam, eps=eps)
    base = credit.extras["base"]
    assert (np.sign(credit.tokens) == np.sign(base)).all()
    assert (np.abs(credit.tokens - base) <= lam * eps * np.abs(base) + 1e-12).all()


@dear
@given(taught().filter(has_teacher))
def test_without_share_or_gap_it_is_the_base(records) -> None:
    for base in ("grpo", "gigpo"):
        expected = ac.assign(records, base).tokens.tolist()
        assert expected == ac.assign(records, "rlsd", base=base, lam=0).tokens.tolist()
    same = [r | {"steps": [s | {"logprobs_teacher": s["logprobs"]} for s in r["steps"]]} for r in records]
    assert ac.assign(records, "grpo").tokens.tolist() == ac.assign(same, "rlsd").tokens.tolist()


@given(st.lists(st.floats(-3, 2).filter(lambda d: d == 0 or abs(d) > 1e-3), min_size=1, max_size=5))
def test_opposite_advantage_and_gap_give_opposite_credit(gaps) -> None:
    one = ac.assign(pair(tuple(gaps)), "rlsd").tokens
    two = ac.assign(pair(tuple(-d for d in gaps)), "rlsd").tokens
    n = len(gaps)
    np.testing.assert_allclose(one[:n], -two[n:], atol=1e-6)


def test_huge_gaps_stay_within_the_band() -> None:
    credit = ac.assign(pair((5000.0, -5000.0)), "rlsd", base="dr-grpo")
    np.testing.assert_allclose(credit.tokens, [1.1, 0.9, -0.9, -1.1], atol=1e-9)


def test_a_group_of_one_gets_0_or_upstreams_raw_score() -> None:
    records = [*pair((0.0,)), {**pair((0.0,))[0], "id": "c", "group": "alone"}]
    assert 0.0 == ac.assign(records, "rlsd").tokens[2]
    for how in ({"singleton": "raw"}, {"compat": "code"}, {"base": "grpo:singleton=raw"}):
        assert 2.0 == pytest.approx(ac.assign(records, "rlsd", **how).tokens[2], abs=1e-5)
    with pytest.raises(ac.AccreditError, match="say it there"):
        ac.assign(records, "rlsd", singleton="raw", base="grpo")
