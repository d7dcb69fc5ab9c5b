"""Flat records of verifiers and prime-rl."""

from __future__ import annotations

import json
import shutil

import pytest

from accredit import assign
from accredit.readers import read
from tests.readers.lookalikes import DATA, codes, column, look, of, rewards, steps


@pytest.fixture
def hosted(tmp_path):
    """Return a hosted run's folder, with the settings beside the rollouts."""
    shutil.copy(DATA / "verifiers/results.jsonl", tmp_path)
    settings = {"run": {"id": "run", "rollouts_per_example": 2}}
    (tmp_path / "metadata.json").write_text(json.dumps(settings, indent=1))
    return tmp_path


def test_fields_packed_in_strings_are_unpacked():
    batch = look("verifiers/results.jsonl")
    assert [2] * 5 == steps(batch)
    assert ['scan {"a":2,"b":1}', "a"] == of(batch, "run/3.0", "action_S")
    assert ["clean", None] == of(batch, "run/3.0", "observation_S")
    assert 2.0 == next(batch.records())["metadata"]["metrics"]["num_turns"]


def test_a_problem_sampled_twice_over_is_two_groups_by_the_settings_beside_it(hosted):
    batch = read(hosted / "results.jsonl")
    assert [0, 0, 1, 1, 2] == batch.group_R.tolist()
    assert 1 <= codes(batch)["ACC861"]


def test_the_trainers_own_advantage_is_reproduced_in_whole_groups(hosted):
    batch = read(hosted / "results.jsonl")
    found = [credit[0] for credit in assign(batch, "dr-grpo").by_rollout()]
    assert column(batch, "advantage_R")[:4] == pytest.approx(found[:4])


def test_a_group_held_in_part_is_told(hosted):
    found = {f.code: f for f in read(hosted / "results.jsonl").findings}
    assert "1 groups hold fewer" in found["ACC857"].message
    assert "ACC857" not in codes(look("verifiers/results.jsonl"))


def test_settings_beside_rollouts_are_no_rollout(hosted):
    batch = read(hosted)
    assert 5 == len(batch)
    assert 1 == codes(batch)["ACC903"]


def test_without_settings_a_problem_of_a_training_step_is_one_group():
    assert [0, 0, 0, 0, 1] == look("verifiers/results.jsonl").group_R.tolist()


def test_rollouts_of_an_example_are_a_group_and_an_error_is_unscored():
    batch = look("verifiers/eval.jsonl")
    assert ("eval/0", "eval/1") == batch.group_names
    assert [1.0, None, 0.5, 1.0] == rewards(batch)
    assert [None, "failed", "truncated", "finished"] == column(batch, "status_R")


def test_a_kept_trajectory_gives_token_ids_and_what_was_seen_between():
    batch = look("verifiers/eval.jsonl")
    record = list(batch.records())[3]
    assert [[3, 4], [6]] == [s["tokens"] for s in record["steps"]]
    assert [[1, 2], [5]] == [s["context_tokens"] for s in record["steps"]]
    assert [-0.5, -0.25] == record["steps"][0]["logprobs"]
    assert "on" == record["steps"][0]["observation"]
