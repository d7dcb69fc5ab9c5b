"""OpenTelemetry spans and Langfuse exports."""

from __future__ import annotations

import json
import random

from tests.readers.lookalikes import DATA, codes, column, look, of, rewards, steps


def test_chat_spans_are_the_steps_in_order_of_their_start():
    batch = look("otel/traces.json")
    assert ['ls {"p":"/"}', "key.txt"] == of(batch, "t1", "action_S")
    assert ["key.txt", None] == of(batch, "t1", "observation_S")
    assert ["seeker", "seeker"] == of(batch, "t1", "agent_S")


def test_order_in_the_file_does_not_matter(tmp_path):
    export = json.loads((DATA / "otel/traces.json").read_text())
    for resource in export["resourceSpans"]:
        random.Random(3).shuffle(resource["scopeSpans"][0]["spans"])
    (tmp_path / "traces.json").write_text(json.dumps(export))
    shuffled = {record["id"]: record for record in look(tmp_path / "traces.json").records()}
    assert {record["id"]: record for record in look("otel/traces.json").records()} == shuffled


def test_task_attribute_is_the_group_and_an_evaluation_the_reward():
    batch = look("otel/traces.json")
    assert ("keys-1",) == batch.group_names
    assert [1.0, None, None, None] == rewards(batch)


def test_agents_that_overlap_in_time_are_rollouts_of_their_own():
    batch = look("otel/traces.json")
    assert ("t1", "t2", "t2/aA", "t2/aB") == batch.ids
    assert [2, 2, 2, 1] == steps(batch)
    assert ["t2", "t2"] == column(batch, "parent_R")[2:]
    assert [1.0, 1.0] == column(batch, "fork_step_R")[2:]
    assert ["left", "right"] == column(batch, "agent_R")[2:]
    assert ["split", "key.txt"] == of(batch, "t2", "action_S")


def test_dialects_say_the_same():
    batch = look("otel/dialects.jsonl")
    assert ('ls {"p":"/"}', "key.txt", "key.txt") == tuple(
        of(batch, d, "action_S")[0] for d in ("d1", "d2", "d3")
    )
    assert 1 == len({of(batch, d, "state_S")[0] for d in ("d1", "d2", "d3")})


def test_content_that_is_switched_off_leaves_steps_without_state_and_no_common_group():
    batch = look("otel/dialects.jsonl")
    assert [None] == of(batch, "0xd4", "state_S")
    assert 1 == codes(batch)["ACC858"]
    assert 1 == codes(batch)["ACC103"]


def test_traces_of_one_conversation_are_one_rollout():
    assert ["where?", "key.txt"] == of(look("otel/dialects.jsonl"), "talk", "action_S")


def test_langfuse_generations_are_the_steps_and_agents_repeat_them():
    batch = look("otel/langfuse.json")
    assert [2] == steps(batch)
    assert ['ls {"p":"/"}', "key.txt"] == of(batch, "L", "action_S")
    assert [1.0] == rewards(batch)
    assert [None, 0.5] == of(batch, "L", "evaluation.tone_S")
    assert ["key.txt", None] == of(batch, "L", "observation_S")


def test_parents_in_a_circle_end(tmp_path):
    spans = [
        {
            "traceId": "t",
            "spanId": a,
            "parentSpanId": b,
            "name": "chat",
            "startTimeUnixNano": "1",
            "endTimeUnixNano": "2",
            "attributes": {"gen_ai.operation.name": "chat"},
        }
        for a, b in (("1", "2"), ("2", "1"))
    ]
    (tmp_path / "t.json").write_text(json.dumps(spans))
    assert [2] == steps(look(tmp_path / "t.json"))
