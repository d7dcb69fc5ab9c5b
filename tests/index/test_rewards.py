"""Rewards on tokens: the empty-step rule, and returns by steps against a scan over tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.data import Batch
from accredit.index import Index, carrier_S, discounted_sum, has_score_R, token_returns, token_rewards
from tests.dear import dear
from tests.strategies import batches

ragged = batches(fields=("reward", "step.reward", "n_tokens", "status"), always=("n_tokens",), rows=False)


@given(ragged)
def test_a_step_with_tokens_carries_its_own_reward_on_its_last(batch: Batch) -> None:
    index = Index(batch)
    full = np.flatnonzero(index.tokens_S)
    assert (batch.token_start_S1[full + 1] - 1).tolist() == carrier_S(index)[full].tolist()


@dear
@given(ragged)
def test_a_carrier_is_in_the_same_rollout_and_none_is_between(batch: Batch) -> None:
    index = Index(batch)
    owner = np.repeat(index.rollout_S, index.tokens_S)
    for s, token in enumerate(carrier_S(index).tolist()):
        r = int(index.rollout_S[s])
        assert (token < 0) == (index.tokens_R[r] == 0)
        if token >= 0:
            assert owner[token] == r
            before = [k for k in range(batch.n_tokens) if owner[k] == r and index.step_T[k] <= s]
            assert token == (before[-1] if before else index.token_start_R1[r])


@dear
@given(ragged)
def test_token_rewards_sum_to_the_score(batch: Batch) -> None:
    index = Index(batch, outcome_in_steps="no")
    owner = np.repeat(np.arange(len(batch)), index.tokens_R)
    sums = np.bincount(owner, token_rewards(index), len(batch))
    told = index.tokens_R > 0
    np.testing.assert_allclose(sums[told], index.score_R[told], rtol=1e-12, atol=1e-9)


@dear
@given(ragged, st.sampled_from([1.0, 0.97, 0.5, 0.0]))
def test_returns_by_steps_equal_a_scan_over_tokens(batch: Batch, gamma: float) -> None:
    index = Index(batch)
    expected = discounted_sum(token_rewards(index), index.token_start_R1, gamma)
    np.testing.assert_allclose(token_returns(index, gamma), expected, rtol=1e-12, atol=1e-9)


def test_the_outcome_sits_on_the_last_policy_token() -> None:
    steps = [{"n_tokens": 2}, {"n_tokens": 0}, {"n_tokens": 0}]
    index = Index(Batch.from_records([{"id": "a", "group": "g", "reward": 1.0, "steps": steps}]))
    assert [0.0, 1.0] == token_rewards(index).tolist()


@pytest.mark.parametrize(
    ("combine", "among", "expected"),
    [
        ("outcome", None, [True, False, False]),
        ("sum_then_normalize", None, [False, True, False]),
        ("sum_then_normalize", ["b"], [False, True, False]),
        ("sum_then_normalize", [], [False, False, False]),
    ],
)
def test_which_rollouts_have_a_score(combine: str, among: list[str] | None, expected: list[bool]) -> None:
    batch = Batch.from_records([
        {"id": "r0", "group": "g", "reward": 1.0, "steps": []},
        {"id": "r1", "group": "g", "rewards": {"a": None, "b": 0.5}, "steps": []},
        {"id": "r2", "group": "g", "rewards": {"b": 1.0}, "status": "rejected", "steps": []},
    ])  # fmt: skip
    assert expected == has_score_R(Index(batch), combine, among).tolist()
