"""tau-bench results."""

from __future__ import annotations

from tests.readers.lookalikes import column, look, of, rewards, steps


def test_assistant_messages_are_the_steps_and_the_simulated_user_is_observed():
    batch = look("tau_bench/lab-air.json")
    assert [2, 1, 1, 0] == steps(batch)
    assert ['book {"a":2,"b":1}', "Booked."] == of(batch, "lab-air/1.0", "action_S")
    assert ["booked", "###STOP###"] == of(batch, "lab-air/1.0", "observation_S")


def test_trials_of_a_task_are_a_group_in_any_order():
    batch = look("tau_bench/lab-air.json")
    assert ("lab-air/1", "lab-air/4") == batch.group_names
    assert [0, 1, 0, 1] == batch.group_R.tolist()
    assert of(batch, "lab-air/1.0", "state_S")[0] == of(batch, "lab-air/1.1", "state_S")[0]


def test_a_run_with_an_error_is_unscored():
    batch = look("tau_bench/lab-air.json")
    assert [1.0, 0.0, 0.0, None] == rewards(batch)
    assert "failed" == column(batch, "status_R")[3]
