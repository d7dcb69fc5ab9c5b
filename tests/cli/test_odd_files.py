"""Odd and broken files are served: data, findings, or one sentence; never a traceback."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

import accredit as ac
from accredit.errors import DataError
from accredit.readers import Limits
from tests.cli.conftest import records

VERBS = [
    ("check",),
    ("assign", "-m", "grpo"),
    ("assign", "-m", "gigpo", "--json"),
    ("compare", "-m", "grpo", "-m", "gigpo", "--boot", "20"),
    ("show", "-m", "gigpo"),
    ("methods",),
]


def _call(accredit, verb, file):
    name, *options = verb
    return accredit(name, "--for", file) if name == "methods" else accredit(name, file, *options)


def _lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _changed(**fields):
    rows = records()
    rows[0].update(fields)
    return rows


ODD = {
    "one rollout": _lines(records(1, 1)),
    "all rewards equal": _lines([{**r, "reward": 0.7} for r in records()]),
    "NaN reward": _lines(_changed(reward=1)).replace(b'"reward": 1,', b'"reward": NaN,'),
    "infinite reward": _lines(_changed(reward=1)).replace(b'"reward": 1,', b'"reward": Infinity,'),
    "missing id": _lines([{k: v for k, v in r.items() if k != "id" or i} for i, r in enumerate(records())]),
    "missing ids": _lines([{k: v for k, v in r.items() if k != "id"} for r in records()]),
    "missing groups": _lines([{k: v for k, v in r.items() if k != "group"} for r in records()]),
    "missing rewards": _lines([{k: v for k, v in r.items() if k != "reward"} for r in records()]),
    "duplicate ids": _lines([*records(), *records()]),
    "no steps": _lines([{**r, "steps": []} for r in records()]),
    "steps without a field": _lines([{**r, "steps": [{}]} for r in records()]),
    "CRLF": _lines(records()).replace(b"\n", b"\r\n"),
    "byte order mark": b"\xef\xbb\xbf" + _lines(records()),
    "no newline at the end": _lines(records()).rstrip(),
    "empty lines": b"\n\n" + _lines(records()).replace(b"\n", b"\n\n"),
    "not ASCII": json.dumps(records()[0] | {"id": "größe 😀"}, ensure_ascii=False).encode()
    + b"\n"
    + _lines(records()[1:]),
    "lone surrogate": _lines(_changed(id="\ud800x")),
    "one broken line": _lines(records()) + b'{"id": "x", "group": \n',
    "a line that is no object": b"[1, 2]\n3\nnull\n" + _lines(records()),
    "reward is text": _lines(_changed(reward="high")),
    "huge line": _lines(_changed(metadata={"note": "x" * 3_000_000})),
    "deep nesting": _lines(records()) + b'{"id": ' + b"[" * 100_000 + b"\n",
    "huge number": _lines(records())
    + b'{"id": "n", "group": "g0", "reward": 1'
    + b"0" * 6000
    + b', "steps": []}\n',
    "truncated rollouts": _lines([{**r, "status": "truncated"} for r in records()]),
    "rejected rollouts": _lines([{**r, "status": "rejected"} for r in records()]),
}
BROKEN = {
    "empty": b"",
    "white space": b"\n \n",
    "binary": bytes(range(256)) * 40,
    "text": b"these are no rollouts\n" * 3,
    "one number": b"17\n",
    "half a gzip": gzip.compress(_lines(records()))[:90],
    "half a parquet": b"PAR1" + b"\0" * 60,
}


@pytest.mark.parametrize("verb", VERBS, ids=lambda v: v[0])
@pytest.mark.parametrize("name", ODD)
def test_odd_rollouts_are_used_or_left_out_with_a_reason(accredit, write, name, verb):
    done = _call(accredit, verb, write(ODD[name]))
    assert done.code in (0, 1, 3)
    if done.code == 3:
        assert 1 == len(done.err.splitlines()), done.err
    else:
        assert done.out.strip()


@pytest.mark.parametrize("verb", VERBS, ids=lambda v: v[0])
@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_get_one_sentence_and_code_3(accredit, write, name, verb):
    ending = {"half a gzip": ".jsonl.gz", "half a parquet": ".parquet"}.get(name, ".jsonl")
    done = _call(accredit, verb, write(BROKEN[name], "file" + ending))
    assert 3 == done.code, (done.out, done.err)
    assert "" == done.out
    assert 1 == len(done.err.splitlines()), done.err
    assert done.err.startswith("ACC")


@pytest.mark.parametrize("name", ["CRLF", "byte order mark", "no newline at the end", "empty lines"])
def test_spellings_of_a_file_do_not_change_the_numbers(accredit, write, name):
    expected = accredit("assign", write(records()), "-m", "gigpo", "--json").json()["top"]
    assert expected == accredit("assign", write(ODD[name]), "-m", "gigpo", "--json").json()["top"]


def test_a_gzipped_file_is_read_like_a_plain_one(accredit, write):
    plain = accredit("assign", write(), "-m", "gigpo", "--json").json()
    packed = write(gzip.compress(_lines(records())), "rollouts.jsonl.gz")
    assert plain["top"] == accredit("assign", packed, "-m", "gigpo", "--json").json()["top"]


def test_excluded_rollouts_are_counted_and_named_with_their_reason(accredit, write):
    rows = records()
    rows[2]["steps"][1]["logprobs"] = [-0.5, -0.5, -0.5]
    path = write(rows)
    done = accredit("assign", path, "-m", "grpo")
    assert 0 == done.code
    assert "rollouts: 8 read = 7 used + 1 excluded" in done.out
    assert "g0r2" in done.out.split("Excluded rollouts")[1]
    told = accredit("assign", path, "-m", "grpo", "--json").json()
    assert told["rollouts"]["read"] == told["rollouts"]["used"] + len(told["excluded"])
    strict = accredit("assign", path, "-m", "grpo", "--strict")
    assert (3, 1) == (strict.code, len(strict.err.splitlines()))


def test_unscored_and_rejected_rollouts_are_told_apart_from_excluded_ones(accredit, write):
    rows = records()
    rows[0]["reward"], rows[1]["status"] = None, "rejected"
    out = accredit("assign", write(rows), "-m", "grpo").out
    assert "8 read = 8 used + 0 excluded" in out
    assert "1 used but outside the statistics, unscored: 'g0r0'" in out
    assert "1 used but outside the statistics, rejected: 'g0r1'" in out


@pytest.mark.parametrize(
    "verb", [("check",), ("assign", "-m", "grpo"), ("report", "-m", "grpo")], ids=lambda v: v[0]
)
def test_a_missing_file_and_a_folder_get_one_sentence(accredit, tmp_path, verb):
    for path in (tmp_path / "nothing.jsonl", tmp_path):
        done = _call(accredit, verb, path)
        assert 3 == done.code
        assert 1 == len(done.err.splitlines()), done.err
        assert path.name in done.err


@pytest.mark.skipif(os.geteuid() == 0, reason="the administrator may read everything")
def test_an_unreadable_file_gets_one_sentence(accredit, file):
    Path(file).chmod(0)
    done = accredit("check", file)
    assert (3, 1) == (done.code, len(done.err.splitlines()))


def test_a_place_that_cannot_be_written_gets_one_sentence(accredit, file, tmp_path):
    (tmp_path / "taken").write_text("")
    for args in (
        ("assign", file, "-m", "grpo", "-o", tmp_path / "taken" / "credit.jsonl"),
        ("report", file, "-m", "grpo", "-o", tmp_path / "taken" / "page.html"),
        ("convert", file, tmp_path / "taken" / "there.jsonl"),
        ("convert", file, tmp_path / "there.docx"),
        ("assign", file, "-m", "grpo", "-o", tmp_path / "credit.docx"),
    ):
        done = accredit(*args)
        assert done.code in (2, 3), args
        assert 1 == len(done.err.splitlines()), done.err


def test_pipe_is_read(tmp_path):
    """A pipe has no size, and was said to be empty: ``accredit check <(cat rollouts.jsonl)``."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(gzip.compress(_lines(records())),))
    writer.start()
    assert len(records()) == len(ac.read(path))
    writer.join()


def test_standard_input_is_read(file):
    """``-`` was looked for as a file, and ``/dev/stdin`` was said to be empty where it is a pipe."""
    command = [sys.executable, "-m", "accredit", "check", "--json", "-"]
    done = subprocess.run(command, input=Path(file).read_bytes(), capture_output=True)
    assert len(records()) == json.loads(done.stdout)["summary"]["rollouts"]["read"]


def test_empty_pipe_is_empty(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"",))
    writer.start()
    with pytest.raises(DataError, match="pipe is empty") as caught:
        ac.read(path)
    assert str(path) == caught.value.where
    writer.join()


def test_pipe_without_end_stops_at_the_limit(tmp_path):
    """A copy of a pipe is bounded as a file is."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=_fill, args=(path,))
    writer.start()
    with pytest.raises(DataError, match="more than the limit of 1,000"):
        ac.read(path, limits=Limits(total_bytes=1000))
    writer.join()


def _fill(path):
    with suppress(BrokenPipeError), path.open("wb") as out:
        while True:
            out.write(b"x" * 100_000)
