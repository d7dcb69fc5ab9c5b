"""ART trajectories."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq

from accredit.readers import read
from tests.readers.lookalikes import DATA, codes, look, of, rewards, steps


def test_the_index_of_the_group_makes_the_group():
    batch = look("art/history.jsonl")
    assert ("history/0", "history/1") == batch.group_names
    assert [1.0, 0.0, 0.5] == rewards(batch)


def test_messages_that_are_not_trained_on_are_context():
    batch = look("art/history.jsonl")
    assert [2, 1, 1] == steps(batch)
    assert ["ls {}", "done"] == of(batch, batch.ids[0], "action_S")
    assert 1 == codes(batch)["ACC855"]


def test_metadata_in_strings_is_unpacked():
    assert {"turns": 2} == next(look("art/history.jsonl").records())["metadata"]["metrics"]


def test_parquet_reads_as_the_same_rollouts(tmp_path):
    rows = [json.loads(line) for line in (DATA / "art/history.jsonl").read_text().splitlines()]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "history.parquet", compression="zstd")
    assert list(look("art/history.jsonl").records()) == list(read(tmp_path / "history.parquet").records())
