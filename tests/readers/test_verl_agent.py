"""verl-agent step rows."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accredit import assign
from accredit.readers import read
from tests.readers.lookalikes import codes, column, look, of, rewards, steps


def test_rows_of_a_trajectory_are_one_rollout_in_order_of_their_steps():
    batch = look("verl_agent/rows.jsonl")
    assert ("b", "a") == batch.ids
    assert [2, 2] == steps(batch)
    assert ["do 0", "do 1"] == of(batch, "b", "action_S")
    assert [0.0, 1.0] == of(batch, "b", "reward_S")
    assert [1.0, 0.0] == rewards(batch)
    assert ("task1",) == batch.group_names


def test_states_are_the_environments_own():
    batch = look("verl_agent/rows.jsonl")
    assert ["room", "hall"] == of(batch, "b", "state_S")
    assert 32 == len(of(batch, "a", "state_S")[1])
    assert [False, True] == of(batch, "b", "is_action_valid_S")


def test_padding_is_neither_a_token_nor_a_step():
    batch = look("verl_agent/rows.jsonl")
    step = next(record for record in batch.records() if record["id"] == "a")["steps"][0]
    assert [5, 6] == step["tokens"]
    assert [-0.5, -0.25] == step["logprobs"]
    assert [3, 4] == step["context_tokens"]
    assert "pad" not in column(batch, "state_S")
    assert 1 == codes(batch)["ACC855"]


def test_rows_without_numbers_are_taken_in_order_with_a_finding():
    batch = look("verl_agent/unnumbered.jsonl")
    assert ["room", "hall"] == column(batch, "state_S")
    assert "ACC863" in codes(batch)


@st.composite
def episodes(draw):
    """Draw rollouts of two tasks, with states, step rewards and the sum as outcome."""
    found = []
    for r in range(draw(st.integers(2, 6))):
        walk = draw(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 2)), min_size=1, max_size=4))
        task = draw(st.integers(0, 1)) if r > 1 else 0
        found.append((f"t{r}", f"u{task}", walk))
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(episodes(), st.randoms())
@pytest.mark.parametrize("method", ["grpo", "gigpo"])
def test_rows_in_any_order_and_whole_rollouts_have_the_same_credit(tmp_path, method, drawn, chance):
    rows = [
        {
            "uid": u,
            "traj_uid": r,
            "step": t,
            "anchor_obs": s,
            "rewards": x,
            "episode_rewards": sum(n for _, n in walk),
        }
        for r, u, walk in drawn
        for t, (s, x) in enumerate(walk)
    ]
    chance.shuffle(rows)
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    by_rows = assign(read(path), method)
    whole = [
        {
            "id": r,
            "group": u,
            "reward": sum(n for _, n in walk),
            "steps": [{"state": s, "reward": x} for s, x in walk],
        }
        for r, u, walk in drawn
    ]
    by_rollouts = assign(read(whole), method)
    found = dict(zip(by_rows.batch.ids, map(list, by_rows.by_rollout()), strict=True))
    for name, credit in zip(by_rollouts.batch.ids, by_rollouts.by_rollout(), strict=True):
        assert list(credit) == pytest.approx(found[name], rel=1e-9, abs=1e-12)
