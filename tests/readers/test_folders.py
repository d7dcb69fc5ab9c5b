"""Folders: rollouts lie beside settings, logs and broken files."""

from __future__ import annotations

import shutil

import pytest

from accredit.errors import DataError
from accredit.readers import read
from tests.readers.lookalikes import DATA, codes, steps


def test_files_of_several_formats_are_one_source(tmp_path):
    for name in ("tau_bench/lab-air.json", "react/dev.json", "nemo_gym/rollouts.jsonl"):
        shutil.copy(DATA / name, tmp_path)
    batch = read(tmp_path)
    assert [1, 2, 2, 1, 1, 0, 2, 1, 2, 1] == steps(batch)


def test_settings_and_empty_files_are_left_out_with_a_finding(tmp_path):
    shutil.copytree(DATA / "atif/job", tmp_path / "job")
    (tmp_path / "job/config.json").write_text('{"n_attempts": 4, "agents": []}')
    (tmp_path / "job/empty.jsonl").write_text("")
    batch = read(tmp_path)
    assert 4 == len(batch)
    assert {"ACC902": 1, "ACC903": 1} == {k: n for k, n in codes(batch).items() if k[:4] == "ACC9"}
    with pytest.raises(DataError, match="ACC90"):
        read(tmp_path, strict=True)


def test_a_broken_file_is_excluded_and_stops_no_other(tmp_path):
    shutil.copy(DATA / "swe_agent/shop-7.traj", tmp_path)
    (tmp_path / "cut.traj").write_bytes((DATA / "swe_agent/shop-7.traj").read_bytes()[:900])
    batch = read(tmp_path)
    assert ("shop-7",) == batch.ids
    assert ["ACC904"] == [e.code for e in batch.excluded]


def test_a_folder_of_settings_alone_is_the_error_of_its_first_file(tmp_path):
    (tmp_path / "a.json").write_text('{"n_attempts": 4, "agents": []}')
    (tmp_path / "b.json").write_text('{"n_attempts": 5, "agents": []}')
    with pytest.raises(DataError, match="ACC903"):
        read(tmp_path)


def test_ids_name_the_folder_where_file_names_repeat(tmp_path):
    for run in ("one", "two"):
        (tmp_path / run).mkdir()
        shutil.copy(DATA / "swe_agent/shop-7.traj", tmp_path / run)
    batch = read(tmp_path)
    assert ("one/shop-7", "two/shop-7") == batch.ids
    assert 1 == batch.n_groups
