"""Traces and episodes of verifiers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from accredit.readers.verifiers_trace import paths_of
from tests.readers.lookalikes import column, look, of, rewards, steps

FOREST = st.lists(st.floats(0, 1), min_size=1, max_size=30).map(
    lambda xs: [None if i == 0 or x > 0.9 else int(x / 0.9 * (i - 1)) for i, x in enumerate(xs)]
)


@given(FOREST)
def test_each_path_ends_in_a_leaf_and_every_node_is_on_one(parents):
    paths = paths_of(parents)
    leaves = [i for i in range(len(parents)) if i not in parents]
    assert leaves == [path[-1] for path in paths]
    assert set(range(len(parents))) == {i for path in paths for i in path}
    assert all(parents[b] == a for path in paths for a, b in pairwise(path))


def test_a_branch_has_its_parent_and_the_step_at_which_it_left():
    batch = look("verifiers_trace/traces.jsonl")
    assert ("t1", "t1#1", "t2", "t3") == batch.ids
    assert [None, "t1", None, None] == column(batch, "parent_R")
    assert [None, 1, None, None] == column(batch, "fork_step_R")
    assert ["a", "b"] == of(batch, "t1", "action_S")
    assert ["a", "c"] == of(batch, "t1#1", "action_S")
    assert of(batch, "t1", "state_S")[0] == of(batch, "t1#1", "state_S")[0]
    assert of(batch, "t1", "state_S")[1] != of(batch, "t1#1", "state_S")[1]


def test_rewards_are_weighted_and_a_trace_with_errors_is_unscored():
    batch = look("verifiers_trace/traces.jsonl")
    assert [1.25, 1.25, 0.0, None] == rewards(batch)
    assert [0.5, 0.5, None, 0.5] == column(batch, "rewards.fmt_R")


def test_tokens_are_the_sampled_ones_and_the_rest_is_context():
    first = next(look("verifiers_trace/traces.jsonl").records())["steps"]
    assert [[3, 4], [6]] == [s["tokens"] for s in first]
    assert [[1, 2, 9], [5]] == [s["context_tokens"] for s in first]
    assert [-0.125, -0.25] == first[0]["logprobs"]
    assert [0.5, 0.5] == first[0]["advantage"]


def test_an_episode_names_the_group_and_each_agent_has_its_own():
    batch = look("verifiers_trace/episodes.jsonl")
    assert ("g1/solver", "g1/judge") == batch.group_names
    assert [1, 1] == steps(batch)
    assert ["7", "7"] == column(batch, "policy_version_R")
    assert [None, False] == column(batch, "trainable_R")
