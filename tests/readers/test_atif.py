"""ATIF trajectories and Harbor results."""

from __future__ import annotations

import json
import shutil

import pytest

from accredit.errors import DataError
from tests.readers.lookalikes import DATA, codes, column, look, of, rewards, steps

TRIAL = "atif/job/hello__a1/agent"


def test_segments_and_result_of_a_trial_are_one_rollout_and_sub_agents_their_own():
    batch = look("atif/job")
    assert ("hello__a1", "hello__a1/t-1", "hello__b2", "hello__c3") == batch.ids
    assert [4, 1, 2, 0] == steps(batch)
    assert ("hello@abcdef012345 lab/m-1",) == batch.group_names


def test_reward_is_joined_from_the_result_and_a_fault_leaves_the_trial_unscored():
    batch = look("atif/job")
    assert [1.0, None, 0.0, None] == rewards(batch)
    assert [0.5, None, None, None] == column(batch, "rewards.style_R")
    assert ["finished", None, "finished", "failed"] == column(batch, "status_R")
    assert [1.0] == rewards(look(f"{TRIAL}/trajectory.cont-1.json"))


def test_copied_scripted_system_and_user_steps_are_context():
    batch = look("atif/job")
    actions = ['ls {"a":true,"p":"/"}\npwd {}', "ask the helper", "cat key.txt", "it is 42"]
    assert actions == of(batch, "hello__a1", "action_S")
    assert "key.txt\n/\nscripted\na hook ran" == of(batch, "hello__a1", "observation_S")[0]
    assert 2 == codes(batch)["ACC855"]


def test_sub_agent_is_unscored_and_hangs_on_the_step_that_called_it():
    batch = look("atif/job")
    r = batch.position("hello__a1/t-1")
    assert ["hello__a1", 1.0, "subagent", "helper"] == [
        column(batch, name)[r] for name in ("parent_R", "fork_step_R", "branch_kind_R", "agent_R")
    ]


def test_ids_of_metrics_and_of_rollout_details_become_tokens_and_prompts_deltas():
    batch = look("atif/job")
    assert [2, 1, 0, 0] == [int(n) for n in batch.token_start_S1[1:5] - batch.token_start_S1[:4]]
    assert [7, 8, 9, 5, 7, 8] == batch.token_T.tolist()
    assert [-0.1, -0.4, -0.2, -0.5, -0.1, -0.2] == pytest.approx(batch.logprob_T.tolist())
    assert [1, 2, 3, 4] == batch.context_token_C.tolist()[:4]
    assert "ACC301" not in codes(batch)


def test_ids_of_the_result_fill_a_trajectory_that_has_none(tmp_path):
    shutil.copytree(DATA / "atif/job/hello__b2", tmp_path / "b2")
    steps_ = [{"step_id": i, "source": "agent", "message": m} for i, m in ((1, "look"), (2, "done"))]
    trajectory = {
        "schema_version": "ATIF-v1.8",
        "session_id": "s",
        "agent": {"name": "demo"},
        "steps": steps_,
    }
    (tmp_path / "b2" / "trajectory.json").write_text(json.dumps(trajectory))
    batch = look(tmp_path)
    assert [2] == steps(batch)
    assert [5, 7, 8] == batch.token_T.tolist()
    assert ["look", "done"] == column(batch, "action_S")


def test_a_segment_read_alone_says_what_is_missing(tmp_path):
    shutil.copytree(DATA / TRIAL, tmp_path / "deep" / "agent")
    first = look(tmp_path / "deep/agent/trajectory.json")
    second = look(tmp_path / "deep/agent/trajectory.cont-1.json")
    assert [2, 2] == [steps(first)[0], steps(second)[0]]
    assert {"ACC857": 1} == {k: v for k, v in codes(first).items() if k == "ACC857"}
    assert {"ACC857": 1} == {k: v for k, v in codes(second).items() if k == "ACC857"}
    assert [None] == rewards(second)
    together = look(tmp_path)
    assert [4, 1] == steps(together)
    assert "ACC857" not in codes(together)


def test_a_broken_result_is_told_and_the_trajectory_stays_unscored(tmp_path):
    shutil.copytree(DATA / "atif/job/hello__a1", tmp_path / "a1")
    (tmp_path / "a1/result.json").write_text("{broken")
    batch = look(tmp_path / "a1/agent/trajectory.json")
    assert [None, None] == rewards(batch)
    assert 2 == codes(batch)["ACC857"]


def test_a_step_that_is_no_object_excludes_the_rollout_with_its_place(tmp_path):
    path = tmp_path / "t.json"
    path.write_text('{"schema_version": "ATIF-v1.8", "session_id": "s", "agent": {}, "steps": [3]}')
    with pytest.raises(DataError, match=r"t\.json: a step must be an object"):
        look(path)
