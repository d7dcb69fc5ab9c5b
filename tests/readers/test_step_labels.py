"""Reasoning with a label a step."""

from __future__ import annotations

import sys

import pytest

from accredit.errors import DataError
from accredit.readers import read
from tests.readers.lookalikes import column, look, of, rewards, steps


def test_prm800k_goes_on_with_what_was_chosen_or_written_by_hand():
    batch = look("step_labels/prm.jsonl")
    assert [3, 2] == steps(batch)
    assert ["add", "by hand", "2"] == of(batch, "prm-0", "action_S")
    assert [1, None, 1] == of(batch, "prm-0", "label_S")
    assert ["no", "nay"] == [c["text"] for c in of(batch, "prm-0", "metadata_S")[1]["completions"]]


def test_prm800k_takes_the_first_completion_where_nobody_chose_and_is_unscored():
    batch = look("step_labels/prm.jsonl")
    assert [-1, None] == of(batch, "prm-1", "label_S")
    assert [None, None] == rewards(batch)
    assert 1 == batch.n_groups


def test_math_shepherd_signs_stand_in_place_of_the_marks():
    batch = look("step_labels/shepherd.jsonl")
    assert [2, 1] == steps(batch)
    assert [1, 0, 1] == column(batch, "label_S")
    assert [0, 1] == rewards(batch)
    assert ["Step 1: take 1 - 0", "Step 2: The answer is: 2"] == of(batch, "shepherd-0", "action_S")
    assert [0, 0] == batch.group_R.tolist()


def test_a_label_that_is_not_the_signed_input_is_told():
    [left] = look("step_labels/shepherd.jsonl").excluded
    assert "label after step 0" in left.reason


def test_processbench_names_the_first_wrong_step():
    batch = look("step_labels/bench.jsonl")
    assert [1, 0, None, 1, 1] == column(batch, "label_S")
    assert [1, None] == column(batch, "mistake_step_R")
    assert [0, 1] == rewards(batch)


def test_stepwise_labels_are_one_a_completion():
    batch = look("step_labels/stepwise.jsonl")
    assert [1, 0] == column(batch, "label_S")
    assert 1 == len(batch.excluded)


def test_a_tree_gives_a_rollout_a_leaf_with_values_before_each_step():
    batch = look("step_labels/tree.jsonl")
    assert [2, 2, 1, 1] == steps(batch)
    assert [0.5, 0.75, 0.5, 0.75, 0.5, 0.5] == column(batch, "value_S")
    assert [1, 0, 0.25, 1] == column(batch, "final_value_R")
    assert [1, 0, None, 1] == rewards(batch)


def test_leaves_that_share_a_beginning_are_forks_and_question_ids_are_no_groups():
    batch = look("step_labels/tree.jsonl")
    assert [None, "tree-0#0", None, None] == column(batch, "parent_R")
    assert 1 == column(batch, "fork_step_R")[1]
    assert [0, 0, 0, 1] == batch.group_R.tolist()


def test_a_tree_deeper_than_the_stack_is_refused_in_words(tmp_path):
    deep = sys.getrecursionlimit() * 5
    path = tmp_path / "deep.jsonl"
    path.write_text(
        '{"question":"q","reasoning_steps":'
        + '{"text":"t","mc_value":0.5,"children":[' * deep
        + "]}" * deep
        + "}\n"
    )
    with pytest.raises(DataError):
        read(path)
