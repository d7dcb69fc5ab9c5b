"""A file of results, added to line by line, by one process at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.errors import DataError, StoreError
from accredit.store.journal import LineJournal, read_plan, read_records

PLAN = {"n": 3}


def journal_of(path, records, **more):
    with LineJournal(path, "demo/1", PLAN, resume=True, **more) as journal:
        journal.add(*records)
    return path


@given(cut=st.integers(0, 400), sync=st.sampled_from([0.0, 60.0]))
def test_what_was_whole_before_the_cut_is_there_and_can_be_gone_on_with(tmp_path_factory, cut, sync):
    path = tmp_path_factory.mktemp("j") / "job"
    records = [{"i": i, "text": "é\n" * i} for i in range(6)]
    data = journal_of(path, records, sync=sync).read_bytes()
    cut = min(cut, len(data))
    path.write_bytes(data[:cut])
    whole = max(data[:cut].count(b"\n") - 1, 0)
    with LineJournal(path, "demo/1", PLAN, resume=True) as journal:
        assert records[:whole] == list(journal.records(dict))
        journal.add(*records[whole:])
    assert data == path.read_bytes()


def test_a_reader_takes_whole_lines_while_another_process_writes(tmp_path):
    path = journal_of(tmp_path / "job", [{"i": 0}])
    with path.open("ab") as file:
        file.write(b'{"i": 1')
    before = path.read_bytes()
    assert read_plan(path, "demo/1") == PLAN
    assert [{"i": 0}] == list(read_records(path, dict))
    assert before == path.read_bytes()


def test_a_damaged_line_is_named_and_nothing_is_thrown_away(tmp_path):
    path = journal_of(tmp_path / "job", [{"i": 0}, {"i": 1}])
    data = path.read_bytes().replace(b'{"i":0}', b'{"i":0')
    path.write_bytes(data)
    with (
        LineJournal(path, "demo/1", PLAN, resume=True, code="ACC840") as journal,
        pytest.raises(DataError, match=r"ACC840.*line 2 of the journal is damaged"),
    ):
        list(journal.records(dict))
    assert data == path.read_bytes()


def test_a_refused_file_is_let_go(tmp_path):
    path = journal_of(tmp_path / "job", [])
    with pytest.raises(DataError, match="n was 3, now 4"):
        LineJournal(path, "demo/1", {"n": 4}, resume=True)
    with pytest.raises(DataError, match=r"no journal of this kind \(other/1\)"):
        LineJournal(path, "other/1", PLAN, resume=True)
    with LineJournal(path, "demo/1", PLAN, resume=True), pytest.raises(StoreError, match="in use"):
        LineJournal(path, "demo/1", PLAN, resume=True, wait=0.01)
