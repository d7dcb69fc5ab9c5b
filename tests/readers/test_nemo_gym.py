"""NeMo Gym rollouts."""

from __future__ import annotations

from tests.readers.lookalikes import codes, column, look, of, rewards, steps


def test_a_run_of_the_policys_items_is_one_step():
    batch = look("nemo_gym/rollouts.jsonl")
    assert [2, 1, 2, 1] == steps(batch)
    assert ['ls {"p":"/"}\npwd {}', "key.txt"] == of(batch, "rollouts/1.0", "action_S")
    assert "key.txt\n/" == of(batch, "rollouts/1.0", "observation_S")[0]
    assert "I look.\nBoth." == of(batch, "rollouts/1.0", "text_S")[0]


def test_assistant_messages_of_the_input_are_context():
    assert 1 == codes(look("nemo_gym/rollouts.jsonl"))["ACC855"]


def test_task_index_groups_whatever_the_prompts_and_instance_ids_come_first():
    batch = look("nemo_gym/rollouts.jsonl")
    assert ("rollouts/0", "rollouts/1", "shop-7") == batch.group_names
    assert [0, 0, 1, 2] == batch.group_R.tolist()
    states = of(batch, "rollouts/0.1", "state_S") + of(batch, "rollouts/0.0", "state_S")
    assert 3 == len(set(states))


def test_rewards_and_how_it_ended():
    batch = look("nemo_gym/rollouts.jsonl")
    assert [-1.0, 1.0, 0.0, None] == rewards(batch)
    assert ["finished", "finished", "truncated", "failed"] == column(batch, "status_R")
    assert [True, True, False, None] == column(batch, "terminated_R")
    assert [None, None, False, None] == column(batch, "trainable_R")


def test_token_ids_belong_to_the_turn_that_carries_them():
    batch = look("nemo_gym/rollouts.jsonl")
    assert [3, 4] == batch.token_T.tolist()
    assert [-0.5, -0.25] == batch.logprob_T.tolist()
    assert [1, 2] == batch.context_token_C.tolist()
