"""TRL's completions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accredit import assign
from accredit.readers import read
from tests.readers.lookalikes import codes, column, of, rewards, steps


def table(tmp_path, **columns):
    path = tmp_path / "completions_00003.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def plain(tmp_path, **more):
    score = pa.array([1.0, 0.0, float("nan"), 2.0], pa.float64())
    advantage = [0.5, -0.5, 0.0, 0.0]
    return table(
        tmp_path,
        step=["3", "3", "3", "4"],
        prompt=["add", "add", "add", "add"],
        completion=["4", "5", "6", "7"],
        correct=score,
        **more,
        advantage=advantage,
    )


def test_equal_prompts_of_one_training_step_are_a_group(tmp_path):
    batch = read(plain(tmp_path))
    assert [0, 0, 0, 1] == batch.group_R.tolist()
    assert ["3", "3", "3", "4"] == column(batch, "policy_version_R")


def test_a_score_of_nothing_is_unscored_and_the_rest_reproduces_the_advantage(tmp_path):
    batch = read(plain(tmp_path))
    assert [1.0, 0.0, None, 2.0] == rewards(batch)
    assert column(batch, "advantage_R") == pytest.approx(assign(batch, "dr-grpo").steps.tolist())


def test_several_scores_are_summed_with_a_finding_and_kept(tmp_path):
    batch = read(plain(tmp_path, short=[0.5, 0.5, None, None], note=["a", "b", "c", "d"]))
    assert [1.5, 0.5, None, 2.0] == rewards(batch)
    assert [0.5, 0.5, None, None] == column(batch, "rewards.short_R")
    assert "ACC860" in codes(batch)
    assert {"note": "a"} == next(batch.records())["metadata"]


def test_a_conversation_has_a_step_for_each_assistant_message(tmp_path):
    talk = [
        {"role": "assistant", "content": "look"},
        {"role": "tool", "content": "key"},
        {"role": "assistant", "content": "done"},
    ]
    path = table(
        tmp_path,
        step=[1],
        prompt=[[{"role": "user", "content": "find"}]],
        completion=[talk],
        won=[1.0],
        advantage=[0.0],
    )
    batch = read(path)
    assert [2] == steps(batch)
    assert ["look", "done"] == of(batch, batch.ids[0], "action_S")
    assert ["key", None] == of(batch, batch.ids[0], "observation_S")


def test_many_rows_come_in_order_whatever_the_row_groups(tmp_path):
    n = 700
    path = table(
        tmp_path,
        step=[1] * n,
        prompt=[f"p{i // 7}" for i in range(n)],
        completion=["c"] * n,
        won=np.arange(n, dtype=float),
        advantage=[0.0] * n,
    )
    batch = read(path)
    assert list(range(n)) == rewards(batch)
    assert 100 == batch.n_groups


def talk_of_two_turns(tmp_path, credit):
    turns = [
        {"role": "assistant", "content": "look"},
        {"role": "tool", "content": "key"},
        {"role": "assistant", "content": "done"},
    ]
    return table(
        tmp_path, step=[1], prompt=["find"], completion=[turns], won=[1.0], accredit=[credit], advantage=[0.0]
    )


def test_the_credit_that_our_trainer_logged_is_a_signal_of_its_steps(tmp_path):
    batch = read(talk_of_two_turns(tmp_path, [0.25, -1.5]))
    assert [0.25, -1.5] == of(batch, batch.ids[0], "credit_S")
    assert "metadata" not in next(batch.records())


@pytest.mark.parametrize("credit", [[0.5], [0.5, None], ["a", "b"], [float("nan"), 0.0]])
def test_credit_that_fits_no_step_stays_metadata(tmp_path, credit):
    batch = read(talk_of_two_turns(tmp_path, credit))
    assert not batch.has("credit_S")
    assert "accredit" in next(batch.records())["metadata"]
