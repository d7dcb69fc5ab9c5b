"""Files are there whole or not at all, and hold what was written."""

from __future__ import annotations

import json
import os

import numpy as np
import pyarrow.parquet as pq
import pytest

import accredit as ac
from accredit.data import Batch
from accredit.errors import DataError, StoreError, VersionError
from accredit.store import (
    Annotation,
    Annotator,
    atomic_file,
    read_annotations,
    read_credit,
    read_truth,
    save_annotations,
    save_batch,
    save_credit,
    save_truth,
)

RECORDS = [
    {"id": "a", "group": 1, "reward": 1, "steps": [{"tokens": [1, 2], "state": "s"}, {"tokens": []}]},
    {"id": "b", "group": 1, "reward": 0, "steps": [{"tokens": [3], "state": "s"}]},
    {"id": "c", "group": "1", "reward": None, "steps": [{"tokens": [4]}], "status": "rejected"},
    {"id": "d", "group": "1", "reward": 1, "steps": []},
    {"id": 7.5},
]
KINDS = ("parquet", "jsonl", "jsonl.gz", "jsonl.zst")


@pytest.fixture
def batch() -> Batch:
    return Batch.from_records(RECORDS)


# Atomic writing.
def write_half(path, error):
    with atomic_file(path) as out:
        out.write(b"half")
        raise error


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError):
        write_half(path, ZeroDivisionError())
    assert "old" == path.read_text()
    assert [path] == list(tmp_path.iterdir())


def test_pipe_is_not_replaced_by_a_file(tmp_path):
    """The rename put a file in the place of a pipe; `-o /dev/null`, as root, destroyed the device."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(StoreError, match="it is a pipe, not a file"), atomic_file(path):
        raise AssertionError("opened")
    assert path.is_fifo()
    assert [path] == list(tmp_path.iterdir())


def test_folder_as_target_is_named_in_one_sentence(tmp_path):
    """The sentence was that of the system call: "Is a directory", and of which was not said."""
    with (
        pytest.raises(StoreError, match=f"{tmp_path} cannot be written: it is a folder"),
        atomic_file(tmp_path),
    ):
        raise AssertionError("opened")


@pytest.mark.parametrize("there", [True, False])
def test_link_stays_and_its_target_is_written(tmp_path, there):
    """The rename replaced a symbolic link by the file, and left the old content where it pointed."""
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "a.txt", tmp_path / "link"
    if there:
        target.write_text("old")
    link.symlink_to(target)
    with atomic_file(link) as out:
        out.write(b"new")
    assert link.is_symlink()
    assert "new" == target.read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_batch_that_cannot_be_written_leaves_no_file(tmp_path, kind):
    odd = Batch.from_records([{"id": "a", "steps": [{"metadata": {"x": object()}}]}])
    with pytest.raises(StoreError, match="ACC914"):
        save_batch(odd, tmp_path / f"a.{kind}")
    assert [] == list(tmp_path.iterdir())


def test_full_disk_is_a_store_error(tmp_path):
    with pytest.raises(StoreError, match="ACC912"):
        write_half(tmp_path / "a", OSError(28, "No space left on device"))
    assert [] == list(tmp_path.iterdir())


def test_place_that_is_no_folder_is_a_store_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="ACC912"), atomic_file(tmp_path / "file" / "a"):
        pass


def test_folders_are_made_and_permissions_are_ordinary(tmp_path):
    path = tmp_path / "x" / "y" / "a"
    with atomic_file(path) as out:
        out.write(b"1")
    mask = os.umask(0)
    os.umask(mask)
    assert 0o666 & ~mask == path.stat().st_mode & 0o777


def test_unknown_ending_names_the_known_ones(tmp_path, batch):
    with pytest.raises(StoreError, match=r"ACC913.*\.jsonl\.zst"):
        save_batch(batch, tmp_path / "a.csv")


def test_compressed_files_of_equal_batches_are_equal(tmp_path, batch):
    first = save_batch(batch, tmp_path / "a.jsonl.gz").read_bytes()
    assert first == save_batch(batch, tmp_path / "b.jsonl.gz").read_bytes()


# Credit.
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["grpo", "gae"])
def test_credit_comes_back_as_it_was_with_its_history(tmp_path, batch, kind, method):
    valued = batch.with_column("value_S", np.linspace(0, 1, batch.n_steps))
    credit = ac.assign(valued, method)
    saved = read_credit(credit.save(tmp_path / f"c.{kind}"))
    assert np.array_equal(credit.steps, saved.steps)
    assert np.array_equal(credit.tokens, saved.tokens)
    assert np.array_equal(valued.token_start_S1, saved.token_start_S1)
    assert {k: v.tolist() for k, v in credit.parts.items()} == {k: v.tolist() for k, v in saved.parts.items()}
    assert ("a", "a", "b", "c") == saved.rollout_S
    assert (1, 1, 1, "1") == saved.group_S
    assert [0, 1, 0, 0] == saved.step_S.tolist()
    header = saved.header
    assert method == saved.method == header["card"]["id"]
    assert credit.params["outcome_in_steps"] == saved.params["outcome_in_steps"]
    assert valued.batch_hash == header["input_hash"]
    assert {"read": 5, "used": 4, "steps": 4} == header["rollouts"]
    assert [valued.excluded[0].to_dict()] == header["excluded"]
    assert {k: list(v) for k, v in credit.uncounted.items()} == header["uncounted"]
    assert credit.coverage == header["coverage"]
    assert {"accredit", "numpy", "python"} <= set(header["versions"])
    assert {f.code for f in (*valued.findings, *credit.findings)} == {f["code"] for f in header["findings"]}


def test_credit_keeps_the_rows_of_a_rollout(tmp_path):
    rows = [
        {"id": "a", "group": "g", "reward": 1, "row": "x", "steps": [{"n_tokens": 1}]},
        {"id": "a", "group": "g", "reward": 1, "row": "y", "steps": [{"n_tokens": 2}]},
        {"id": "b", "group": "g", "reward": 0, "steps": [{"n_tokens": 1}]},
    ]
    for kind in KINDS:
        saved = read_credit(save_credit(ac.assign(Batch.from_records(rows), "grpo"), tmp_path / f"c.{kind}"))
        assert ("x", "y", None) == saved.row_S
        assert ["a", "b"] == list(saved.by_rollout())


def test_credit_file_of_the_future_is_refused(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text('{"schema": "accredit.credit/2"}\n')
    with pytest.raises(VersionError, match="pip install -U"):
        read_credit(path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        '{"schema": "accredit.rollouts/1"}',
        '{"schema": "accredit.credit/1"}\n{"rollout": "a"}',
        '{"rollout": "a"}',
    ],
)
def test_what_is_no_credit_file_is_one_error(tmp_path, text):
    path = tmp_path / "c.jsonl"
    path.write_text(text)
    with pytest.raises(DataError):
        read_credit(path)
    with pytest.raises(DataError):
        read_credit(tmp_path / "nowhere.jsonl")


# The fingerprint.
def test_equal_batches_have_equal_fingerprints(batch):
    again = Batch.from_records(RECORDS)
    assert batch.batch_hash == again.batch_hash
    mixed = Batch.concat([batch.take([1, 0]), batch.take([2, 3])]).take([1, 0, 2, 3])
    assert batch == mixed
    assert batch.batch_hash == mixed.batch_hash


@pytest.mark.parametrize(
    "change",
    [
        {"id": "z"}, {"group": 2}, {"reward": 0.5}, {"reward": None}, {"steps": []}, {"agent": "x"},
        {"steps": [{"tokens": [1, 9], "state": "s"}, {"tokens": []}]},
        {"steps": [{"tokens": [1, 2], "state": "t"}, {"tokens": []}]},
        {"steps": [{"tokens": [1, 2], "state": "s"}, {"tokens": None}]},
        {"steps": [{"tokens": [1, 2], "state": "s"}, {"tokens": [], "metadata": 1}]},
    ],
)  # fmt: skip
def test_any_change_changes_the_fingerprint(batch, change):
    changed = Batch.from_records([RECORDS[0] | change, *RECORDS[1:]])
    assert batch != changed
    assert batch.batch_hash != changed.batch_hash


# Truth.
TRUTH = [
    {
        "rollout": "a",
        "step": 0,
        "value": 0.5,
        "q": 0.7,
        "advantage": 0.2,
        "se": 0.01,
        "n": 64,
        "source": "monte_carlo",
    },
    {"rollout": "a", "step": 1, "advantage": 0.0, "source": "exact"},
    {"rollout": "gone", "step": 9, "advantage": 1.0},
]


def write(path, objects):
    path.write_text("".join(json.dumps(o) + "\n" for o in objects))
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_truth_comes_back_and_joins_the_rollouts(tmp_path, batch, kind):
    source = read_truth(write(tmp_path / "t.jsonl", [{"schema": "accredit.truth/1", "world": "w"}, *TRUTH]))
    truth = read_truth(save_truth(source, tmp_path / f"u.{kind}"))
    assert ("a", "a", "gone") == truth.rollout
    assert [True, False, False] == truth.known["value"].tolist()
    assert "w" == truth.header["world"]
    assert ("monte_carlo", "exact", "") == truth.source
    column = truth.column(batch)
    assert [0.2, 0.0, 0.0, 0.0] == column.values.tolist()
    assert [True, True, False, False] == column.valid.tolist()


@pytest.mark.parametrize(
    "row",
    [
        {"rollout": "a"},
        {"rollout": 1, "step": 0},
        {"rollout": "a", "step": -1},
        {"rollout": "a", "step": 0, "se": -1},
        {"rollout": "a", "step": 0, "value": "x"},
        TRUTH[0],
        {"schema": "accredit.annotation/1", "rollout": "a"},
    ],
)
def test_wrong_row_of_truth_is_an_error_with_its_line(tmp_path, row):
    with pytest.raises(DataError, match="line 2"):
        read_truth(write(tmp_path / "t.jsonl", [TRUTH[0], row]))


def test_truth_of_a_step_that_is_not_there_is_an_error(tmp_path, batch):
    truth = read_truth(write(tmp_path / "t.jsonl", [{"rollout": "b", "step": 5, "advantage": 1}]))
    with pytest.raises(DataError, match="step 5"):
        truth.column(batch)


@pytest.mark.parametrize("read_any", [read_truth, read_annotations])
@pytest.mark.parametrize("name", ["truth", "annotation"])
def test_newer_schema_is_refused_and_another_one_named(tmp_path, read_any, name):
    own = name in read_any.__name__
    path = write(tmp_path / "t.jsonl", [{"schema": f"accredit.{name}/2"}])
    with pytest.raises(VersionError if own else DataError, match=f"accredit.{name}/2"):
        read_any(path)


# Annotations.
def annotation(**changes):
    whole = {
        "schema": "accredit.annotation/1", "rollout": "a", "n_steps": 2, "status": "ok",
        "annotator": {"kind": "judge", "name": "j"},
         "step_scores": [{"step": 1, "score": 0.5, "scale": "prob"}],
        "progress": {"values": [0, 0.5, 1]}, "events": [{"step": 0, "node": "n", "event": "verified"}],
        "spans": [{"step": 0, "start": 0, "end": 2, "label": "query"}],
    }  # fmt: skip
    return whole | changes


def test_annotations_come_back_as_they_were(tmp_path, batch):
    found = read_annotations(write(tmp_path / "a.jsonl", [annotation(), annotation(status="failed")]), batch)
    assert ["ok", "failed"] == [a.status for a in found]
    assert found == read_annotations(save_annotations(found, tmp_path / "b.jsonl.gz"))
    made = Annotation(rollout="a", n_steps=0, annotator=Annotator(kind="human"))
    assert [made] == read_annotations(save_annotations([made], tmp_path / "c.jsonl"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rollout": None}, "rollout"),
        ({"annotator": {"kind": "oracle"}}, "oracle"),
        ({"status": "partial"}, "missing"),
        ({"n_steps": 1}, "step 1, and the rollout has 1"),
        ({"missing": [2]}, "step 2"),
        ({"verdicts": [{"node": "n", "cites": [7]}]}, "step 7"),
        ({"errors": [{"class": "c"}]}, "step None"),
        ({"progress": {"values": [0, 1]}}, "2 values for 2 steps"),
        ({"progress": {"values": [0, 2, 1]}}, "leaves"),
        ({"step_scores": [{"step": 0, "score": 2, "scale": "prob"}]}, "scale prob"),
        ({"step_scores": [{"step": 0, "score": 2, "scale": "ordinal"}]}, "scale ordinal"),
        ({"step_scores": [{"step": 0, "score": [1], "scale": "logits"}]}, "scale logits"),
        ({"spans": [{"step": 0, "start": 3, "end": 2, "label": "x"}]}, "span"),
    ],
)
def test_wrong_annotation_is_an_error_with_its_line(tmp_path, changes, words):
    with pytest.raises(DataError, match=words) as caught:
        read_annotations(write(tmp_path / "a.jsonl", [annotation(), annotation(**changes)]))
    assert "a.jsonl line 2" == caught.value.where


def test_annotation_must_fit_its_rollout(tmp_path, batch):
    for changes, words in (({"rollout": "z"}, "not among"), ({"rollout": "b"}, "which has 1")):
        with pytest.raises(DataError, match=words):
            read_annotations(write(tmp_path / "a.jsonl", [annotation(**changes)]), batch)


@pytest.mark.parametrize("kind", KINDS)
def test_credit_tells_its_rows(tmp_path, batch, kind):
    saved = read_credit(save_credit(ac.assign(batch, "grpo"), tmp_path / f"c.{kind}"))
    assert len(saved.rollout_S) == saved.header["rows"]


@pytest.mark.parametrize("cut", ["jsonl", "parquet"])
def test_credit_cut_between_rows_is_refused(tmp_path, batch, cut):
    """A file that ended at the end of a line was read as if it were whole."""
    path = save_credit(ac.assign(batch, "grpo"), tmp_path / f"c.{cut}")
    if cut == "jsonl":
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    else:
        pq.write_table(pq.read_table(path)[:-1], path)
    with pytest.raises(DataError, match="holds 3 of 4 steps") as caught:
        read_credit(path)
    assert "ACC915" == caught.value.code


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "c.jsonl is empty"),
        (json.dumps(RECORDS[0]) + "\n", "holds rollouts, not credit"),
        ('{"rollout": "a", "step": 0}\n', "has no header of credit"),
    ],
)
def test_what_is_no_credit_is_said(tmp_path, text, says):
    """Of an empty file, and of rollouts, it was said that they have schema None."""
    path = tmp_path / "c.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=says):
        read_credit(path)
