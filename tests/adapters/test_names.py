"""The thin names: each trainer's own fields in, the credit of the records out."""

import numpy as np
import pytest

import accredit as ac
from accredit.adapters import areal, nemo_rl, openrlhf, rllm, roll, skyrl, slime
from accredit.errors import DataError, ParamError
from tests.adapters.looks import (
    DataProto,
    message_logs,
    openrlhf_experiences,
    rllm_groups,
    roll_batch,
    slime_samples,
)
from tests.adapters.made import MUTATIONS, recorded, spoiled, tensors_of

RECORDS = recorded(rows=False)
ECHO = {"ACC870", "ACC871", "ACC872", "ACC873"}


def expected(method, records=RECORDS, **options):
    return ac.assign(records, method, **options).padded(tensors_of(records).mask)


def test_skyrl_gets_an_estimator_for_its_registry():
    t = tensors_of(RECORDS)
    rewards = np.zeros(t.mask.shape)
    rewards[:, -1] = t.rewards
    compute = skyrl.estimator("rloo")
    found, returns = compute(
        token_level_rewards=rewards, response_mask=t.mask, index=t.group, gamma=1.0, lambd=1.0, config=None
    )
    assert np.array_equal(expected("rloo"), found)
    assert np.array_equal(found, returns)


def stepwise(records):
    rows = [(r, step, t == len(r["steps"]) - 1) for r in records for t, step in enumerate(r["steps"])]
    mask = np.zeros((len(rows), 6), np.int64)
    rewards = np.zeros(mask.shape)
    for b, (record, step, last) in enumerate(rows):
        mask[b, : len(step["tokens"])] = 1
        rewards[b, len(step["tokens"]) - 1] = record["reward"] if last else 0
    return DataProto(
        batch={"response_mask": mask, "rewards": rewards},
        metadata={"uids": [r["group"] for r, _, _ in rows], "is_last_step": [last for *_, last in rows]},
    ), [s["state"] for _, s, _ in rows]


def test_skyrls_steps_have_credit_of_their_own():
    data, states = stepwise(RECORDS)
    found = skyrl.stepwise_credit(data, "gigpo", states=states)
    assert np.allclose(ac.assign(RECORDS, "gigpo").steps, found.advantages[:, 0], atol=1e-6)


def test_a_skyrl_batch_that_ends_inside_a_trajectory_is_refused():
    data, _ = stepwise(RECORDS)
    data.metadata["is_last_step"][-1] = False
    with pytest.raises(DataError, match="ends no trajectory"):
        skyrl.stepwise_credit(data, "grpo")


def test_openrlhf_groups_by_prompt_over_all_experiences():
    t = tensors_of(RECORDS)
    experiences = openrlhf_experiences(t, {"g0": "what?", "g1": "how?"})
    openrlhf.assign_experiences(experiences, "grpo")
    found = [e.advantages for e in experiences]
    width = found[1].shape[1]
    assert np.array_equal(expected("grpo")[:4], found[0])
    assert np.array_equal(expected("grpo")[4:, :width], found[1])
    assert np.array_equal(found[0], experiences[0].returns)


def test_areal_masks_predict_the_next_token():
    t = tensors_of(RECORDS)
    wide = np.pad(t.tokens, ((0, 0), (2, 0)))
    mask = np.roll(np.pad(t.mask, ((0, 0), (2, 0))), -1, axis=1)
    data = {"input_ids": wide, "loss_mask": mask, "rewards": t.rewards, "logprobs": np.full(mask.shape, -0.5)}
    found = areal.batch_credit(data, "grpo", group_size=4)
    assert np.array_equal(expected("grpo"), found.advantages[:, 1:-1])
    assert np.array_equal(found.credit.batch.token_T, ac.Batch.from_records(RECORDS).token_T)
    named = areal.batch_credit(data, "grpo", group=t.group)
    assert np.array_equal(named.advantages, found.advantages)


def test_areals_groups_are_never_guessed():
    data = {"input_ids": np.ones((3, 2), int), "loss_mask": np.ones((3, 2)), "rewards": np.zeros(3)}
    with pytest.raises(ParamError, match="group_size"):
        areal.batch_credit(data, "grpo")
    with pytest.raises(DataError, match="3 rows are no groups of 2"):
        areal.batch_credit(data, "grpo", group_size=2)


def test_areals_calls_of_one_rollout_add_up():
    data = {
        "input_ids": np.ones((3, 2), int),
        "loss_mask": np.ones((3, 2)),
        "rewards": np.array([1.0, 2.0, 0.0]),
    }
    found = areal.batch_credit(data, "dr-grpo", group=["g"] * 3, rollout=["a", "a", "b"])
    assert [1.5, 1.5, -1.5] == found.advantages[:, 0].tolist()


def test_nemo_rl_steps_are_the_assistants_messages():
    logs, mask, _ = message_logs(RECORDS, [9, 9])
    prompts = np.array([[1, 1] if r["group"] == "g0" else [2, 2] for r in RECORDS])
    estimator = nemo_rl.Estimator("gigpo", state=lambda log, i: f"s{i // 2}")
    found = estimator.compute_advantage(
        prompts, tensors_of(RECORDS).rewards, mask, repeated_batch={"message_log": logs}
    )
    assert np.array_equal(expected("gigpo"), found[:, 2:])


def test_nemo_rl_masks_that_leave_the_messages_are_caught():
    logs, mask, _ = message_logs(RECORDS, [9, 9])
    with pytest.raises(DataError, match="ACC871"):
        nemo_rl.Estimator("grpo").compute_advantage(
            np.zeros((8, 1)),
            np.zeros(8),
            np.roll(mask[:, ::-1], 1, axis=0),
            repeated_batch={"message_log": logs},
        )


def test_roll_rows_are_steps():
    found = roll.batch_credit(roll_batch(RECORDS), "gigpo")
    assert (24, 7) == found.advantages.shape
    assert np.allclose(ac.assign(RECORDS, "gigpo").steps, found.advantages[:, 1], atol=1e-6)


def test_a_roll_step_that_is_missing_is_caught():
    data = roll_batch(RECORDS)
    for name, values in data.non_tensor_batch.items():
        data.non_tensor_batch[name] = values[:4] + values[5:]
    data.batch["response_mask"] = np.delete(data.batch["response_mask"], 4, axis=0)
    with pytest.raises(DataError, match="ACC872"):
        roll.batch_credit(data, "gigpo")


def test_slime_lists_are_as_long_as_the_responses():
    records = recorded()
    t = tensors_of(records)
    samples = slime_samples(t)
    lists, credit = slime.sample_advantages(samples, "grpo")
    assert [s.response_length for s in samples] == [len(v) for v in lists]
    whole = ac.assign(records, "grpo").padded(t.mask)
    assert all(np.array_equal(whole[b, : len(v)], v) for b, v in enumerate(lists))
    assert 8 == len(credit.batch)


def test_slimes_rank_function_checks_what_was_carried():
    data = {slime.CARRIER: [[1.0, 2.0], [3.0]], "response_lengths": [2, 1], "sample_indices": [4, 5]}
    slime.from_carrier(None, data)
    assert [[1.0, 2.0], [3.0]] == data["advantages"] == data["returns"]
    with pytest.raises(DataError, match="sample 5 carries 1 numbers for 2"):
        slime.from_carrier(None, data | {"response_lengths": [2, 2]})


def test_rllm_steps_get_one_number_a_token():
    groups = rllm_groups(RECORDS)
    credit = rllm.assign_groups(groups, "gigpo")
    own = [t for g in groups for t in g.trajectories]
    lists = [[s.advantage for s in t.steps] for t in own]
    assert [[list(v) for v in r] for r in ac.assign(RECORDS, "gigpo").tokens_by_rollout()] == lists
    assert {"g0:solver", "g1:solver"} == set(credit.batch.group_names)


@pytest.mark.parametrize(("kind", "seed"), MUTATIONS)
def test_slime_samples_that_were_spoiled_are_caught(kind, seed):
    records = recorded(seed, rows=False)
    sound = tensors_of(records)
    batch = ac.Batch.from_records(records)
    slime.sample_advantages(slime_samples(sound), "grpo", echo=batch)
    with pytest.raises(DataError) as caught:
        slime.sample_advantages(slime_samples(spoiled(sound, kind, seed)), "grpo", echo=batch)
    assert caught.value.code in ECHO | {"ACC107"}


@pytest.mark.parametrize(("kind", "seed"), MUTATIONS)
def test_areal_batches_that_were_spoiled_are_caught(kind, seed):
    records = recorded(seed, rows=False)
    batch = ac.Batch.from_records(records)

    def found(t):
        data = {
            "input_ids": np.pad(t.tokens, ((0, 0), (1, 0))),
            "loss_mask": np.roll(np.pad(t.mask, ((0, 0), (1, 0))), -1, axis=1),
            "rewards": t.rewards,
        }
        return areal.batch_credit(data, "grpo", group=t.group, rollout=t.rollout, echo=batch)

    found(tensors_of(records))
    with pytest.raises(DataError) as caught:
        found(spoiled(tensors_of(records), kind, seed))
    assert caught.value.code in ECHO


@pytest.mark.parametrize(("kind", "seed"), MUTATIONS)
def test_rllm_trajectories_that_were_spoiled_are_caught(kind, seed):
    records = recorded(seed, rows=False)
    credit = ac.assign(rllm.group_records(rllm_groups(records)), "grpo")
    rllm.write_groups(credit, rllm_groups(records))
    groups = rllm_groups(records)
    spoil_objects([t for g in groups for t in g.trajectories], groups, kind, seed)
    with pytest.raises(DataError) as caught:
        rllm.write_groups(credit, groups)
    assert caught.value.code in ECHO
    assert all(s.advantage is None for g in groups for t in g.trajectories for s in t.steps)


def spoil_objects(trajectories, groups, kind, seed):
    """One mistake in lists of steps."""
    own = trajectories[seed % len(trajectories)]
    step = own.steps[seed % 3]
    ids = step.response_ids
    if kind == "shifted" and seed % 2:
        own.steps[:] = [*own.steps[1:], own.steps[0]]
    elif kind == "shifted":
        ids[:] = [*ids[1:], ids[0]]
    elif kind == "dropped" and seed % 3 == 0:
        groups[0].trajectories.pop()
    elif kind == "dropped":
        del (own.steps if seed % 3 == 1 else ids)[0]
    elif kind == "duplicated" and seed % 3 == 0:
        groups[0].trajectories.append(own)
    elif kind == "duplicated":
        own.steps.append(step) if seed % 3 == 1 else ids.append(ids[-1])
    elif kind == "retokenised":
        ids[seed % len(ids)] += 100_000
    else:  # an observation token is taken for the policy's, or the reverse
        ids[:] = [*ids, 5] if seed % 2 else ids[:-1]


@pytest.mark.parametrize(("kind", "seed"), MUTATIONS)
def test_openrlhf_experiences_that_were_spoiled_are_caught(kind, seed):
    records = recorded(seed, rows=False)
    batch = ac.Batch.from_records(records)
    prompts = {"g0": "what?", "g1": "how?"}

    def assigned(t):
        experiences = openrlhf_experiences(t, prompts)
        return openrlhf.assign_experiences(experiences, "grpo", rollout=t.rollout, echo=batch)

    assigned(tensors_of(records))
    with pytest.raises(DataError) as caught:
        assigned(spoiled(tensors_of(records), kind, seed))
    assert caught.value.code in ECHO | {"ACC107"}


def step_rows(records):
    """A record a step."""
    return [r | {"row": t, "steps": [step]} for r in records for t, step in enumerate(r["steps"])]


@pytest.mark.parametrize(("kind", "seed"), MUTATIONS)
def test_skyrl_steps_that_were_spoiled_are_caught(kind, seed):
    rows = step_rows(recorded(seed, rows=False))
    batch = ac.Batch.from_records(rows)

    def found(t):
        last = [i + 1 == len(t.order) or t.order[i + 1] == 0 for i in range(len(t.order))]
        rewards = np.zeros(t.mask.shape)
        rewards[:, 0] = np.where(last, t.rewards, 0)
        tensors = {
            "response_mask": t.mask,
            "rewards": rewards,
            "sequences": np.pad(t.tokens, ((0, 0), (4, 0))),
        }
        data = DataProto(batch=tensors, metadata={"uids": t.group, "is_last_step": last})
        return skyrl.stepwise_credit(data, "grpo", rollout=t.rollout, echo=batch)

    found(tensors_of(rows))
    with pytest.raises(DataError) as caught:
        found(spoiled(tensors_of(rows), kind, seed))
    assert caught.value.code in ECHO


@pytest.mark.parametrize("seed", range(8))
def test_nemo_rl_masks_that_were_spoiled_are_caught(seed):
    """Token ids never reach its estimator: what it can compare with the messages is the mask."""
    records = recorded(seed, rows=False)
    logs, mask, _ = message_logs(records, [9, 9])
    prompts = np.array([[1] if r["group"] == "g0" else [2] for r in records])

    def found(mask):
        return nemo_rl.Estimator("grpo").compute_advantage(
            prompts, tensors_of(records).rewards, mask, repeated_batch={"message_log": logs}
        )

    found(mask)
    wrong = spoiled(tensors_of(records), "mismasked", seed).mask
    with pytest.raises(DataError) as caught:
        found(np.pad(wrong, ((0, 0), (2, 0))))
    assert caught.value.code in ECHO


@pytest.mark.parametrize(("kind", "seed"), MUTATIONS)
def test_roll_rows_that_were_spoiled_are_caught(kind, seed):
    records = step_rows(recorded(seed, rows=False))
    batch = ac.Batch.from_records(records)

    def found(t):
        pad = ((0, 0), (1, 0))
        held = {
            "traj_group_id": t.group,
            "traj_id": t.rollout,
            "state_hash": ["s"] * len(t.group),
            "step": t.order,
            "step_scores": [0.0] * len(t.group),
            "episode_scores": t.rewards,
        }
        tensors = {"response_mask": np.pad(t.mask, pad), "input_ids": np.pad(t.tokens, pad)}
        data = DataProto(batch=tensors, non_tensor_batch=held)
        return roll.batch_credit(data, "grpo", echo=batch)

    found(tensors_of(records))
    with pytest.raises(DataError) as caught:
        found(spoiled(tensors_of(records), kind, seed))
    assert caught.value.code in ECHO
