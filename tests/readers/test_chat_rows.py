"""Chat messages, and columns of the user's own."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accredit.errors import DataError
from accredit.readers import convert, read
from tests.readers.lookalikes import DATA, codes, column, look, of, rewards, steps


def test_turns_with_tool_calls_are_steps_and_usual_column_names_are_known():
    batch = look("chat_rows/talks.jsonl")
    assert ("q1-3", "q1-4", "q7") == batch.ids
    assert ("q1", "7") == batch.group_names
    assert [0.0, 1.0, None] == rewards(batch)
    assert ['ls {"p":"/"}', "key.txt"] == of(batch, "q1-3", "action_S")


def test_messages_of_weight_nothing_are_context():
    batch = look("chat_rows/talks.jsonl")
    assert ["ok"] == of(batch, "q1-4", "action_S")
    assert 1 == codes(batch)["ACC855"]


def test_a_stored_response_gives_its_token_ids_and_log_probabilities():
    batch = look("chat_rows/talks.jsonl")
    [step] = list(batch.records())[1]["steps"]
    assert [5, 6] == step["tokens"]
    assert [-0.5, -0.25] == step["logprobs"]
    assert "truncated" == column(batch, "status_R")[1]


def test_items_of_the_responses_api_are_turns():
    assert ["ls {}", "no"] == of(look("chat_rows/talks.jsonl"), "q7", "action_S")


def test_prompt_and_completion_are_one_step_grouped_by_equal_prompts():
    batch = look("chat_rows/pairs.jsonl")
    assert [1, 1, 1] == steps(batch)
    assert [0, 0, 1] == batch.group_R.tolist()
    assert [1.0, 0.0, 0.5] == rewards(batch)


@pytest.fixture
def table(tmp_path):
    """Return a Parquet file with columns that nobody knows."""
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    path = tmp_path / "mine.parquet"
    pq.write_table(pa.table({"quest": ["a", "a"], "dialogue": [talk, talk], "won": [1.0, 0.0]}), path)
    return path


def test_unknown_columns_are_told_with_the_mapping_to_give(table):
    with pytest.raises(DataError, match="quest, dialogue, won") as told:
        read(table)
    assert "mapping={" in str(told.value)


def test_a_mapping_reads_columns_of_any_name(table):
    batch = read(table, mapping={"group": "quest", "messages": "dialogue", "reward": "won"})
    assert ("a",) == batch.group_names
    assert [1.0, 0.0] == rewards(batch)
    assert ["ho", "ho"] == column(batch, "action_S")


def test_a_mapping_to_a_column_that_is_not_there_names_those_that_are(table):
    with pytest.raises(DataError, match="there is no column 'wonn' for 'reward'; the columns are quest"):
        read(table, mapping={"reward": "wonn", "messages": "dialogue"})


def test_a_mapping_of_an_unknown_field_names_the_near_one(table):
    with pytest.raises(DataError, match="reward"):
        read(table, mapping={"rewrad": "won"})


def test_a_mapping_takes_steps_that_are_objects(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"s": [{"action": "go", "state": "x", "heat": 2.0}], "r": 1, "g": "g"}) + "\n")
    batch = read(path, mapping={"steps": "s", "reward": "r", "group": "g"})
    assert ["go"] == column(batch, "action_S")
    assert [2.0] == column(batch, "heat_S")


def test_another_format_or_records_take_no_mapping(table):
    with pytest.raises(DataError, match="takes no mapping"):
        read(table, format="atif", mapping={"reward": "won"})
    with pytest.raises(DataError, match="to_parquet"):
        read([{"won": 1}], mapping={"reward": "won"})


def test_conversion_takes_the_mapping_too(table, tmp_path):
    names = {"group": "quest", "messages": "dialogue", "reward": "won"}
    convert(table, tmp_path / "out.jsonl", mapping=names)
    assert list(read(tmp_path / "out.jsonl").records()) == list(read(table, mapping=names).records())


def test_groups_by_position_come_only_when_asked_for_and_are_told():
    batch = read(DATA / "chat_rows/pairs.jsonl", group_size=2)
    assert [0, 0, 1] == batch.group_R.tolist()
    [told] = [f for f in batch.findings if f.code == "ACC862"]
    assert "the last group has only 1" in told.message


def test_groups_by_position_count_a_rollout_of_several_rows_once():
    batch = read(DATA / "verl_dump/40.jsonl", group_size=2)
    assert [0, 0, 1] == batch.group_R.tolist()


@pytest.mark.parametrize("size", [0, -1, True, 1.5])
def test_a_group_size_is_a_whole_number_from_one(size):
    with pytest.raises(DataError, match="group_size"):
        read(DATA / "chat_rows/pairs.jsonl", group_size=size)


def test_positions_say_nothing_where_rows_were_left_out_or_branched(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text((DATA / "chat_rows/pairs.jsonl").read_text() + '{"prompt": 1, "completion": "x"}\n')
    with pytest.raises(DataError, match="1 rollouts were left out"):
        read(path, group_size=2)
    with pytest.raises(DataError, match="branches"):
        read(DATA / "verifiers_trace/traces.jsonl", group_size=2)
