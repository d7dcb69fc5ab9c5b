"""Options that say which column holds what, and which rows are a group."""

from __future__ import annotations

import json

ROWS = [{"ask": "q", "talk": f"answer {i}", "won": i % 2} for i in range(4)]
MAP = ("--map", "prompt=ask", "--map", "completion=talk", "--map", "reward=won")


def test_assign_reads_columns_by_the_mapping_that_is_given(accredit, write):
    done = accredit("assign", write(ROWS), "-m", "grpo", *MAP, "--json")
    assert 4 == done.json()["rollouts"]["used"]


def test_groups_by_position_come_with_a_finding(accredit, write):
    done = accredit("check", write(ROWS), *MAP, "--group-size", "2", "--json")
    assert "ACC862" in done.out


def test_convert_writes_what_the_mapping_read(accredit, write, tmp_path):
    target = tmp_path / "out.jsonl"
    accredit("convert", write(ROWS), str(target), *MAP, "--group-size", "2")
    records = [json.loads(line) for line in target.read_text().splitlines()]
    rollouts = [r for r in records if "schema" not in r]
    assert [0, 1, 0, 1] == [r["reward"] for r in rollouts]
    assert ["position-0", "position-0", "position-1", "position-1"] == [r["group"] for r in rollouts]


def test_a_mapping_that_is_no_pair_is_a_mistake_of_usage(accredit, write):
    done = accredit("check", write(ROWS), "--map", "reward")
    assert 2 == done.code
