"""`bench`: the run, its journal, its tables, its page, its verb."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest

import accredit as ac
from accredit.benchmark import SCALES, Scale
from accredit.benchmark.journal import Cell, Place, open_journal, read_journal
from accredit.benchmark.leaderboard import boards_of
from accredit.benchmark.matrix import absences, expected
from accredit.benchmark.orderings import duels_of
from accredit.benchmark.plan import PLAIN, TASKS, Setting
from accredit.cli import run
from accredit.errors import DataError, ParamError
from accredit.worlds import FAMILIES, Noise

TINY = Scale("tiny", 3, 2, (PLAIN, Setting("nonce", "no revisits", noise=Noise(nonce=True))))


def _numbers(found):
    return {c.place: (dict(c.metrics), c.unable) for c in found.cells}


def test_smoke_takes_less_than_a_minute_and_covers_every_family(smoke):
    found, cpu_seconds = smoke
    assert set(FAMILIES) < set(TASKS)
    assert cpu_seconds < 60  # of the processor: what else runs on the machine is not ours
    assert set(TASKS) == {board.family for board in found.boards}
    assert not [board.family for board in found.boards if board.skipped]


def test_the_table_of_absences_is_the_committed_one(smoke):
    assert expected() == absences(smoke[0].cells)


def test_two_runs_give_equal_numbers_and_another_seed_gives_others():
    first, again, other = (ac.bench("rooms", ["gigpo"], TINY, seed=s) for s in (0, 0, 1))
    assert _numbers(first) == _numbers(again)
    assert not _numbers(first).keys() & _numbers(other).keys()


def test_results_are_written_as_json_and_parquet(tmp_path):
    found = ac.bench("lock", ["gigpo"], TINY, out=tmp_path)
    document = json.loads((tmp_path / "leaderboard.json").read_text())
    assert [b.setting for b in found.boards] == [b["setting"] for b in document["boards"]]
    cells = pq.read_table(tmp_path / "cells.parquet").to_pylist()
    assert len(found.cells) == len(cells)
    assert cells[0]["nmse"] == found.cells[0].metrics["nmse"]
    rows = pq.read_table(tmp_path / "leaderboard.parquet").to_pylist()
    assert {"truth", "truth-by-key", "random", "grpo", "gigpo"} == {row["method"] for row in rows}


_CHILD = """
import accredit as ac
from accredit.benchmark import Scale
from accredit.benchmark.plan import PLAIN
ac.bench("rooms", ["gigpo", "crbc"], Scale("tiny", 12, 4, (PLAIN,)), out={out!r})
"""


def test_a_killed_run_goes_on_and_ends_with_the_same_numbers(tmp_path):
    script = _CHILD.format(out=str(tmp_path))
    child = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    journal = tmp_path / "journal.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and child.poll() is None:
        if journal.exists() and journal.read_bytes().count(b"\n") > 12:
            break
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = len(read_journal(journal)[1])
    scale = Scale("tiny", 12, 4, (PLAIN,))
    resumed = ac.bench("rooms", ["gigpo", "crbc"], scale, out=tmp_path)
    assert before == resumed.resumed > 0
    assert _numbers(ac.bench("rooms", ["gigpo", "crbc"], scale)) == _numbers(resumed)


def test_a_torn_line_is_dropped_and_measured_again(tmp_path):
    whole = ac.bench("rooms", ["gigpo"], TINY, out=tmp_path)
    journal = tmp_path / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-9])
    again = ac.bench("rooms", ["gigpo"], TINY, out=tmp_path)
    assert len(whole.cells) - 1 == again.resumed
    assert _numbers(whole) == _numbers(again)
    assert len(whole.cells) == len(read_journal(journal)[1])


def test_methods_may_be_added_to_a_finished_run(tmp_path):
    first = ac.bench("rooms", ["gigpo"], TINY, out=tmp_path)
    more = ac.bench("rooms", ["gigpo", "crbc"], TINY, out=tmp_path)
    assert len(first.cells) == more.resumed < len(more.cells)
    assert _numbers(first).items() <= _numbers(more).items()


def test_another_plan_is_refused_unless_told_to_begin_anew(tmp_path):
    ac.bench("rooms", ["gigpo"], TINY, out=tmp_path)
    with pytest.raises(DataError, match=r"ACC840.*seed was 0, now 5"):
        ac.bench("rooms", ["gigpo"], TINY, seed=5, out=tmp_path)
    assert ac.bench("rooms", ["gigpo"], TINY, seed=5, out=tmp_path, resume=False).resumed == 0


def test_a_file_that_is_no_journal_is_refused(tmp_path):
    (tmp_path / "journal.jsonl").write_text("nothing\n")
    with pytest.raises(DataError, match="ACC840"), open_journal(tmp_path / "journal.jsonl", {}, resume=True):
        pass


@pytest.mark.parametrize(
    "wrong", [("roms", "all", "smoke"), ("rooms", "gigpro", "smoke"), ("rooms", "all", "big")]
)
def test_unknown_names_are_refused_with_the_nearest(wrong):
    with pytest.raises(ParamError, match=r"no (method|scale|task family)"):
        ac.bench(*wrong)


def _cells(method, values, **more):
    return [Cell(Place("f", "plain", s, method), {"nmse": v}, **more) for s, v in enumerate(values)]


def test_a_clear_winner_is_better_and_ties_share_a_number():
    ramp = [0.5 + 0.001 * i for i in range(20)]
    cells = [
        *_cells("grpo", ramp),
        *_cells("near", [v + (-1) ** i * 0.01 for i, v in enumerate(ramp)]),
        *_cells("good", [v - 0.2 - 0.001 * (i % 3) for i, v in enumerate(ramp)]),
        *_cells("bad", [v + 0.2 + 0.001 * (i % 3) for i, v in enumerate(ramp)]),
    ]
    (board,) = boards_of(cells)
    told = {row.method: (row.verdict, row.tie) for row in board.rows}
    assert {"good": ("better", 1), "grpo": ("", 2), "near": ("same", 2), "bad": ("worse", 3)} == told


def test_three_seeds_make_no_winner():
    (board,) = boards_of([*_cells("grpo", [0.5, 0.6, 0.7]), *_cells("good", [0.1, 0.2, 0.3])])
    assert board.row("good").verdict == "same"


def test_a_method_that_cannot_run_keeps_its_reason():
    cells = [*_cells("grpo", [0.5]), Cell(Place("f", "plain", 0, "prm"), unable="needs prm_prob")]
    assert boards_of(cells)[0].row("prm").unable == "needs prm_prob"


def test_the_verb_prints_a_leaderboard_and_writes_the_page(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(SCALES, "smoke", TINY)
    page = tmp_path / "page.md"
    args = ["bench", "--families", "rooms,team", "--methods", "gigpo,hcapo", "-o", str(tmp_path / "out")]
    assert run([*args, "--docs", str(page)]) == 0
    shown = capsys.readouterr().out
    assert "rooms, plain" in shown
    assert "vs grpo" in shown
    assert "could not run: hcapo" in shown
    text = page.read_text()
    assert "| `gigpo` |" in text
    assert "## Could not run" in text
    assert run([*args, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"rooms", "team"} == {board["family"] for board in document["boards"]}


def test_the_report_is_one_page_without_script_or_request(tmp_path):
    ac.bench("rooms,team", ["gigpo", "hcapo"], TINY, out=tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    for words in ("rooms, plain: ", "team, plain: ", "Calibration", "gigpo"):
        assert words in page


def test_calibration_of_the_truth_lies_on_the_line():
    board = ac.bench("lock", ["gigpo"], TINY).board("lock")
    for b in board.row("truth").bins:
        assert b.true.value == pytest.approx(b.said, abs=1e-5)
    assert not ac.bench("lock", ["gigpo"], TINY).board("lock", "nonce").row("truth").bins


def test_duels_count_the_families_where_one_is_nearer():
    ramp = [0.5 + 0.001 * i for i in range(20)]
    good = _cells("good", [v - 0.2 - 0.001 * (i % 3) for i, v in enumerate(ramp)])
    assert {"good": {"grpo": 1}} == duels_of([*_cells("grpo", ramp), *good])
