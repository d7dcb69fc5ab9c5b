"""SWE-agent .traj of both generations, and mini-swe-agent."""

from __future__ import annotations

from tests.readers.lookalikes import DATA, codes, column, look, of, rewards, steps


def test_trajectory_entries_are_the_steps_whatever_the_history_shows():
    batch = look("swe_agent/shop-7.traj")
    assert [3] == steps(batch)
    assert ["ls", "open till.py", "submit"] == column(batch, "action_S")
    assert ["till.py\r\n", "1: a - b\r\n", "diff\r\n"] == column(batch, "observation_S")
    assert [0.25, 0.5, 0.1] == column(batch, "execution_time_S")


def test_instance_of_the_replay_config_is_the_group_and_rollouts_are_unscored():
    batch = look("swe_agent/shop-7.traj")
    assert ("shop-7",) == batch.group_names
    assert [None] == rewards(batch)
    assert ["truncated"] == column(batch, "status_R")
    assert ("old-shop",) == look("swe_agent/old-shop.traj").group_names


def test_demonstrations_are_context():
    assert 1 == codes(look("swe_agent/shop-7.traj"))["ACC855"]


def test_state_before_a_step_is_what_the_step_before_left():
    states = column(look("swe_agent/shop-7.traj"), "state_S")
    assert 3 == len(set(states))
    # The look-alike's second step changes nothing and prints nothing, its first printed the files.
    old = column(look("swe_agent/old-shop.traj"), "state_S")
    assert old[1] != old[2]
    assert "ACC852" in codes(look("swe_agent/old-shop.traj"))


def test_state_as_text_equals_state_as_object_with_keys_in_any_order(tmp_path):
    text = (DATA / "swe_agent/old-shop.traj").read_text()
    same = tmp_path / "old-shop.traj"
    same.write_text(
        text.replace(
            '"{\\"open_file\\": \\"n/a\\", \\"working_dir\\": \\"/shop\\"}\\n"',
            '{"working_dir": "/shop", "open_file": "n/a"}',
        )
    )
    assert column(look("swe_agent/old-shop.traj"), "state_S") == column(look(same), "state_S")


def test_mini_swe_agent_acts_by_its_one_fenced_command():
    batch = look("swe_agent/mini-shop.traj.json")
    assert ["ls", "echo FINISHED"] == of(batch, "mini-shop", "action_S")
    assert "diff --git a b" == of(batch, "mini-shop", "observation_S")[1]
    assert [None] == rewards(batch)
