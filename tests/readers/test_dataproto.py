"""verl's DataProto as tensors and JSON: rows of the trainer to rollouts, and credit back to the rows."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import accredit as ac
from accredit.adapters.padded import PaddedRows, pad_credit, padded_credit
from accredit.errors import DataError
from tests.adapters.made import recorded, tensors_of
from tests.readers.test_tensors import npz, safetensors


def _write(folder, arrays, lists, kind="npz"):
    path = folder / f"batch.{kind}"
    path.write_bytes({"npz": npz, "safetensors": safetensors}[kind](arrays))
    path.with_suffix(".json").write_text(json.dumps(lists))
    return path


def _at_last(t):
    """Rewards as verl has them for agent loops: at the last position of each row."""
    rewards = np.zeros(t.mask.shape, np.float32)
    rewards[:, -1] = t.rewards
    return rewards


def _arrays(t, **more):
    line = np.linspace(-2, -0.1, t.mask.size, dtype=np.float32).reshape(t.mask.shape)
    return {
        "responses": t.tokens,
        "response_mask": t.mask,
        "token_level_rewards": _at_last(t),
        "old_log_probs": line,
        "values": line + 3,
        "entropys": -line,
        **more,
    }


SINGLE = recorded(rows=False)


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_the_batch_is_that_of_the_padded_adapter(tmp_path, kind):
    t = tensors_of(SINGLE)
    arrays = _arrays(t)
    batch = ac.read(_write(tmp_path, arrays, {"uid": t.group}, kind))
    rows = PaddedRows(
        rewards=arrays["token_level_rewards"],
        mask=t.mask,
        group=t.group,
        tokens=t.tokens,
        logprobs=arrays["old_log_probs"],
        entropies=arrays["entropys"],
        values=arrays["values"],
    )
    for method in ("grpo", "rloo", "gae", "reinforce-pp"):
        expected = padded_credit(rows, method)
        credit = ac.assign(batch, method)
        for name in ("token_T", "logprob_T", "entropy_T", "token_value_T", "reward_R"):
            assert np.array_equal(expected.credit.batch.column(name).values, batch.column(name).values), name
        back = pad_credit(credit, mask=t.mask, tokens=t.tokens, rollout=batch.ids)
        assert np.array_equal(expected.advantages, back)


def test_records_of_the_agent_loop_give_borders_and_states(tmp_path):
    records = [{**r, "steps": [dict(s) for s in r["steps"]]} for r in SINGLE]
    t = tensors_of(records)
    held = [{"steps": r["steps"], "status": "truncated"} for r in records]
    batch = ac.read(_write(tmp_path, _arrays(t), {"uid": t.group, "accredit": held}))
    again = list(batch.records())
    for record, found in zip(records, again, strict=True):
        assert [s["state"] for s in record["steps"]] == [s["state"] for s in found["steps"]]
        assert [s["tokens"] for s in record["steps"]] == [s["tokens"] for s in found["steps"]]
        assert "truncated" == found["status"]
    assert np.array_equal(ac.assign(records, "gigpo").steps, ac.assign(batch, "gigpo").steps)


def test_a_record_with_other_ids_is_left_out_with_its_row(tmp_path):
    t = tensors_of(SINGLE)
    held = [{"steps": [{"tokens": [int(i) + 1 for i in s["tokens"]]} for s in r["steps"]]} for r in SINGLE]
    held[1:] = [{"steps": r["steps"]} for r in SINGLE[1:]]
    batch = ac.read(_write(tmp_path, _arrays(t), {"uid": t.group, "accredit": held}))
    assert ["batch.npz row 0"] == [e.where for e in batch.excluded]


def test_rows_of_one_session_are_one_rollout_with_the_last_rows_reward(tmp_path):
    records = recorded()
    t = tensors_of(records)
    arrays = _arrays(t)
    several = [b for b, name in enumerate(t.rollout) if t.rollout.count(name) > 1]
    arrays["token_level_rewards"][[b for b in several if t.order[b] == 0], -1] = (
        7.0  # overwritten by the last
    )
    ids = {name: k for k, name in enumerate(dict.fromkeys(t.rollout))}
    keys = [f"{g}_{ids[r]}_{o}" for g, r, o in zip(t.group, t.rollout, t.order, strict=True)]
    batch = ac.read(_write(tmp_path, arrays, {"uid": t.group, "keys": keys}))
    assert 8 == len(batch)
    by_id = {f"{r['group']}_{ids[r['id']]}": r["reward"] for r in records}
    assert [by_id[name] for name in batch.ids] == batch.reward_R.tolist()


def test_the_layout_of_verl_agent_is_a_row_a_step(tmp_path):
    t = tensors_of(SINGLE[:4])
    lists = {
        "uid": ["u", "u", "u", "u"],
        "traj_uid": ["x", "y", "x", "y"],
        "anchor_obs": ["room", "room", "hall", "hall"],
        "rewards": [0.0, 0.0, 1.0, 0.0],
        "episode_rewards": [1.0, 0.0, 1.0, 0.0],
        "active_masks": [True, True, True, False],
    }
    batch = ac.read(_write(tmp_path, _arrays(t), lists))
    assert ("x", "y") == batch.ids
    assert [2, 1] == np.diff(batch.step_start_R1).tolist()
    assert ["room", "hall", "room"] == batch.column("state_S").decoded().tolist()
    assert ([1.0, 0.0], [0.0, 1.0, 0.0]) == (batch.reward_R.tolist(), batch.reward_S.tolist())
    assert {"ACC863", "ACC855"} <= {f.code for f in batch.findings}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_steps_context_and_rewards_are_those_of_a_slow_walk(tmp_path, data):
    rows, length, prompt = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9)), 3
    bits = st.lists(st.integers(0, 1), min_size=length, max_size=length).filter(any)
    mask = np.array(data.draw(st.lists(bits, min_size=rows, max_size=rows)))
    ids = np.arange(rows * length).reshape(rows, length) + 100
    prompts = np.arange(rows * prompt).reshape(rows, prompt)
    left = np.array(data.draw(st.lists(st.integers(0, prompt), min_size=rows, max_size=rows)))
    attention = np.hstack([np.arange(prompt) >= left[:, None], np.ones((rows, length), bool)]).astype(
        np.int64
    )
    paid = np.array(
        data.draw(
            st.lists(
                st.lists(st.sampled_from([0.0, 0.0, 1.0, -0.5]), min_size=length, max_size=length),
                min_size=rows,
                max_size=rows,
            )
        )
    )
    arrays = {
        "responses": ids,
        "response_mask": mask,
        "prompts": prompts,
        "attention_mask": attention,
        "token_level_scores": paid,
    }
    batch = ac.read(_write(tmp_path, arrays, {"uid": ["u"] * rows}))
    walked = [_walk(ids[b], mask[b], prompts[b][left[b] :], paid[b]) for b in range(rows)]
    dense = any(any(step["reward"] for step in steps[:-1]) for steps in walked)
    for found, steps, row in zip(batch.records(), walked, paid, strict=True):
        assert row.sum() == pytest.approx(found["reward"])
        assert [s["tokens"] for s in steps] == [s["tokens"] for s in found["steps"]]
        assert [s["seen"] for s in steps] == [s.get("context_tokens", []) for s in found["steps"]]
        if dense:
            assert [s["reward"] for s in steps] == [s["reward"] for s in found["steps"]]
        else:
            assert not any("reward" in s for s in found["steps"])


def _walk(ids, mask, prompt, paid):
    """Position by position: a one after a zero begins a step; a reward goes to the step begun last."""
    steps, seen, early, before = [], prompt.tolist(), 0.0, 0
    for id, sampled, reward in zip(ids.tolist(), mask.tolist(), paid.tolist(), strict=True):
        if sampled and not before:
            steps.append({"tokens": [], "seen": seen, "reward": early})
            seen, early = [], 0.0
        if sampled:
            steps[-1]["tokens"].append(id)
        else:
            seen = [*seen, id]
        if steps:
            steps[-1]["reward"] += reward
        else:
            early += reward
        before = sampled
    return steps


def test_states_are_what_was_observed(tmp_path):
    t = tensors_of(SINGLE[:2])
    batch = ac.read(_write(tmp_path, _arrays(t), {"uid": t.group}))
    states = [step.get("state") for record in batch.records() for step in record["steps"]]
    assert [None, None] == [states[0], states[3]]  # no prompt was written
    assert 4 == len({*states[1:3], *states[4:]} - {None})
    assert "ACC850" in {f.code for f in batch.findings}


def test_without_a_side_file_equal_prompts_are_groups_and_it_is_told(tmp_path):
    t = tensors_of(SINGLE[:4])
    prompts = np.array([[1, 2], [1, 2], [3, 4], [3, 4]])
    attention = np.ones((4, 2 + t.mask.shape[1]), np.int64)
    path = tmp_path / "batch.npz"
    path.write_bytes(npz(_arrays(t, prompts=prompts, attention_mask=attention)))
    batch = ac.read(path)
    assert [0, 0, 1, 1] == batch.group_R.tolist()
    assert {"ACC857", "ACC856"} <= {f.code for f in batch.findings}


def test_everything_else_is_kept(tmp_path):
    t = tensors_of(SINGLE[:2])
    sampler = np.full(t.mask.shape, -0.5, np.float32)
    arrays = _arrays(t, rollout_log_probs=sampler, advantages=sampler * 2)
    lists = {
        "uid": t.group,
        "data_source": ["gsm8k", "gsm8k"],
        "acc": [1, 0],
        "meta_info": {"global_steps": 40},
    }
    batch = ac.read(_write(tmp_path, arrays, lists))
    assert {"data_source": "gsm8k", "acc": 1} == next(iter(batch.records()))["metadata"]
    assert {-0.5} == set(batch.rollout_logprobs_T.tolist())
    assert {-1.0} == set(batch.advantages_T.tolist())
    assert ["40", "40"] == batch.column("policy_version_R").decoded().tolist()


@pytest.mark.parametrize(
    ("arrays", "lists", "says"),
    [
        ({"responses": np.zeros((2, 3))}, {}, "no response_mask"),
        ({"response_mask": np.full((2, 3), 2)}, {}, "other than 0 and 1"),
        ({"response_mask": np.ones((2, 3)), "responses": np.ones((2, 4))}, {}, "responses has shape"),
        ({"response_mask": np.ones((2, 3)), "values": np.ones(2)}, {}, "values has shape"),
        ({"response_mask": np.ones((2, 3))}, {"uid": ["a"]}, "uid has 1 values for 2 rows"),
        ({"response_mask": np.ones((2, 3))}, {"keys": ["a", "b"]}, "uid_session_index"),
    ],
)
def test_tensors_that_do_not_fit_are_named(tmp_path, arrays, lists, says):
    with pytest.raises(DataError, match=says):
        ac.read(_write(tmp_path, arrays, lists))


def test_in_a_folder_the_side_file_is_no_source_of_its_own(tmp_path):
    t = tensors_of(SINGLE)
    _write(tmp_path, _arrays(t), {"uid": t.group})
    batch = ac.read(tmp_path)
    assert (8, ()) == (len(batch), batch.excluded)
    assert "ACC903" not in {f.code for f in batch.findings}
