"""ReAct and FireAct dictionaries."""

from __future__ import annotations

from tests.readers.lookalikes import column, look, of, rewards, steps


def test_the_first_action_of_a_message_is_the_one_that_was_executed():
    batch = look("react/dev.json")
    assert [1, 2] == steps(batch)
    assert ["search[when]", "finish[1844]"] == of(batch, "dev/4", "action_S")


def test_the_line_that_tells_the_outcome_enters_no_state_and_no_observation():
    batch = look("react/dev.json")
    assert [None] == of(batch, "dev/17", "observation_S")
    assert ["Observation: 1843", None] == of(batch, "dev/4", "observation_S")
    assert [None, None] == column(batch, "final_state_R")
    endings = [m["ending"] for m in column(batch, "metadata_R")]
    assert [
        "Observation: Episode finished, reward = True",
        "Observation: Episode finished, reward = False",
    ] == endings


def test_outcome_and_its_parts():
    batch = look("react/dev.json")
    assert [1.0, 0.0] == rewards(batch)
    assert [1.0, 0.0] == column(batch, "rewards.em_R")
    assert ("17", "4") == batch.group_names


def test_a_trajectory_in_one_text_is_cut_at_its_numbered_parts():
    batch = look("react/old.json")
    assert ["Search[when]", "Finish[1844]"] == of(batch, "old/9", "action_S")
    assert ["Observation: 1843", None] == of(batch, "old/9", "observation_S")
    assert [0.0] == rewards(batch)
