"""Tinker's rollout summaries."""

from __future__ import annotations

from accredit import assign
from tests.readers.lookalikes import column, look, rewards, steps


def test_iteration_and_group_make_the_group():
    batch = look("tinker/train.jsonl")
    assert ("train/train/4.0", "train/train/4.1") == batch.group_names
    assert "train/train/4.0.1" == batch.ids[1]
    assert [2, 1, 1] == steps(batch)
    assert ["3", "3", "3"] == column(batch, "policy_version_R")


def test_the_final_reward_is_paid_at_the_last_step_and_counted_once():
    batch = look("tinker/train.jsonl")
    assert [1.75, 0.0, 0.0] == rewards(batch)
    assert [0.25, 1.5, 0.0, 0.0] == column(batch, "reward_S")
    assert batch.outcome_in_steps
    assert [0.875, 0.875, -0.875, 0.0] == assign(batch, "dr-grpo").steps.tolist()


def test_lengths_are_known_without_ids():
    batch = look("tinker/train.jsonl")
    assert [2, 3, 2, 2] == [
        b - a for a, b in zip(batch.token_start_S1, batch.token_start_S1[1:], strict=False)
    ]
    assert [10, 11, 10, 10] == column(batch, "observation_tokens_S")
    assert not batch.has("token_T")
