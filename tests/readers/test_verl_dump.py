"""verl's rollout dumps."""

from __future__ import annotations

import numpy as np

from accredit import assign
from tests.readers.lookalikes import codes, column, look, of, rewards, steps


def test_the_uid_gives_group_rollout_and_row():
    batch = look("verl_dump/40.jsonl")
    assert ("40/7_f3a_0", "40/7_f3a_1", "40/8b_0") == batch.ids
    assert [0, 0, 1] == batch.group_R.tolist()
    assert ("40/7_f3a", "40/8b") == batch.group_names
    assert ["40", "40", "40"] == column(batch, "policy_version_R")


def test_rows_of_one_session_are_one_rollout_with_one_outcome():
    batch = look("verl_dump/40.jsonl")
    assert [1, 2, 2] == steps(batch)
    assert [1.0, 0.0, 0.5] == rewards(batch)
    assert [0.5, -0.5, -0.5, 0, 0] == assign(batch, "dr-grpo").steps.tolist()


def test_turns_are_split_only_where_their_marks_survive():
    batch = look("verl_dump/40.jsonl")
    assert ["try", "unlock"] == of(batch, "40/8b_0", "action_S")
    assert ["locked", None] == of(batch, "40/8b_0", "observation_S")
    assert 3 == codes(batch)["ACC859"]


def test_scores_beside_the_outcome_are_components():
    batch = look("verl_dump/40.jsonl")
    assert [1.0, 0.0, None] == column(batch, "rewards.acc_R")


def test_without_a_uid_equal_inputs_of_a_training_step_are_a_group():
    batch = look("verl_dump/v0.jsonl")
    assert [0, 1, 0, 2] == batch.group_R.tolist()
    assert [1.0, 0.0, 0.0, None] == rewards(batch)
    assert "ACC856" in codes(batch)
    assert np.array_equal([1, 1, 1, 1], steps(batch))
