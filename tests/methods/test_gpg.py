"""gpg: the card's hand example, its reduction, a slow oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from tests.dear import dear
from tests.methods import outcome_oracles as slow
from tests.methods.outcome_oracles import run


def test_card_example() -> None:
    credit = ac.assign(run([1, 0, 0, 1]), "gpg")
    assert [1, -1, -1, 1] == credit.steps.tolist()
    assert [2.0] == credit.extras["alpha"].tolist()
    assert [0.5, -0.5, -0.5, 0.5] == ac.assign(run([1, 0, 0, 1]), "gpg", f_norm=2).steps.tolist()


def test_all_scores_non_zero_give_dr_grpo() -> None:
    records = run([1, 2, 3]) + run([1, 0.5], "h")
    np.testing.assert_array_equal(ac.assign(records, "gpg").steps, ac.assign(records, "dr-grpo").steps)


def test_alpha_counts_the_whole_batch_without_unscored_rollouts() -> None:
    records = run([1, 0]) + run([0, 0, None], "h")  # type: ignore[list-item]
    assert [2, -2, 0, 0, 0] == ac.assign(records, "gpg").steps.tolist()


def test_no_score_at_all_gives_zero() -> None:
    assert not ac.assign(run([0, 0, 0]), "gpg").steps.any()


@pytest.mark.parametrize("reward", [0.7, 1 / 3, 0.1 + 0.2])
def test_equal_rewards_get_exactly_zero(reward: float) -> None:
    assert [0.0] * 8 == ac.assign(run([reward] * 8) + run([0, 0], "h"), "gpg").steps[:8].tolist()


def test_a_group_of_one_gets_zero_or_its_scaled_raw_score() -> None:
    records = run([0.5]) + run([1, 0, 0], "h")
    assert 0.0 == ac.assign(records, "gpg").steps[0]
    assert 1.0 == ac.assign(records, "gpg", compat="verl").steps[0]


def test_an_explanation_can_be_recomputed() -> None:
    (term,) = ac.assign(run([1, 0, 0, 1]), "gpg").explain("g1", 0).terms
    x = term.inputs
    assert term.value == x["weight"] * (x["score"] - x["mean"])


@dear
@given(slow.ragged, slow.policies, st.sampled_from([1.0, 2.0, 0.3]))
def test_a_plain_loop_gives_the_same(
    records: list[slow.Record], policies: dict[str, str], f_norm: float
) -> None:
    scores = [slow.score(r) for r in records if slow.counts(r, records, policies)]
    alpha = len(scores) / max(1, sum(s != 0 for s in scores))
    expected = []
    for record in records:
        s, group = slow.score(record), slow.members(record, records, policies)
        if not slow.counts(record, records, policies):
            value = 0.0
        elif len(group) == 1:
            value = s if policies["singleton"] == "raw" else 0.0
        else:
            value = 0.0 if slow.flat(group) else s - slow.mean(group)
        expected.append(alpha * value / f_norm)
    credit = ac.assign(records, "gpg", outcome_in_steps="no", f_norm=f_norm, **policies)
    np.testing.assert_allclose(credit.steps, slow.broadcast(records, expected), rtol=1e-9, atol=1e-9)
