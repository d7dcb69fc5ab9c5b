"""OpenHands: event lists and output.jsonl."""

from __future__ import annotations

from tests.readers.lookalikes import column, look, of, rewards, steps


def test_old_flat_events_have_no_source_and_the_user_speaks_first_and_when_asked():
    batch = look("openhands/output.jsonl")
    assert [3, 1] == steps(batch)
    assert ['run {"command":"ls"}', "Which till?", 'finish {"outputs":{}}'] == of(
        batch, "output-0", "action_S"
    )
    assert ["till.py\n[exit code 0]", "The left one.", None] == of(batch, "output-0", "observation_S")


def test_pairs_of_action_and_observation_are_read_like_events():
    assert ["\n[exit code 1]"] == of(look("openhands/output.jsonl"), "output-1", "observation_S")


def test_success_is_the_reward_and_a_fault_leaves_the_rollout_unscored():
    batch = look("openhands/output.jsonl")
    assert [1.0, None] == rewards(batch)
    assert [None, "failed"] == column(batch, "status_R")
    assert ("o/shop#5", "o/shop#6") == batch.group_names


def test_actions_of_one_response_are_one_step_and_observations_follow_their_cause():
    batch = look("openhands/events.json")
    assert [2] == steps(batch)
    assert 'read {"path":"/a"}\nrun {"command":"mv a b"}' == column(batch, "action_S")[0]
    assert "old\n\n[code 0]" == column(batch, "observation_S")[0]
    assert "Two at once." == column(batch, "text_S")[0]
    assert [4.0, 4.0] == column(batch, "output_tokens_S")


def test_event_lists_have_no_reward_and_the_harness_takes_no_step():
    batch = look("openhands/events.json")
    assert [None] == rewards(batch)
    assert not any("agent_state" in str(action) for action in column(batch, "action_S"))
