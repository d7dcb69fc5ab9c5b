"""Who&When: labels of the decisive step."""

from __future__ import annotations

from tests.readers.lookalikes import column, look, of, rewards, steps


def test_agents_take_steps_and_tools_people_and_the_harness_do_not():
    batch = look("who_when")
    assert ("hand/3/q-5", "made/3/q-3", "made/4/q-4") == batch.ids
    assert [3, 3, 1] == steps(batch)
    assert ["Orchestrator", "Orchestrator", "WebSurfer"] == of(batch, "hand/3/q-5", "agent_S")
    assert ["Count_Expert", "Check_Expert", "Check_Expert"] == of(batch, "made/3/q-3", "agent_S")


def test_label_is_kept_in_our_numbering_and_as_it_was():
    batch = look("who_when")
    assert ["WebSurfer", "Check_Expert", "Computer_terminal"] == column(batch, "mistake_agent_R")
    assert [2.0, 1.0, None] == column(batch, "mistake_step_R")
    assert ["3", "2", "1"] == column(batch, "mistake_message_R")
    assert [False, False, True] == of(batch, "hand/3/q-5", "mistake_S")
    assert [False] == of(batch, "made/4/q-4", "mistake_S")


def test_failed_runs_have_reward_zero():
    assert [0.0, 0.0, 0.0] == rewards(look("who_when"))
