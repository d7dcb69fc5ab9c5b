"""The probe as a job: killed at any moment and resumed, it gives the numbers of one that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accredit as ac
from accredit.data import Batch
from accredit.errors import BackendError, DataError, StoreError
from accredit.signals import Divergence, FakeBackend, View, joint

WANT = "logprob,entropy,topk:2,hidden"
RECORDS = [
    {
        "id": f"r{r}",
        "reward": 1.0,
        "steps": [{"prompt_tokens": [r, t, 1] * (1 + r % 3), "tokens": [(r + t) % 7] * t} for t in range(4)],
    }
    for r in range(6)
]
BATCH = Batch.from_records(RECORDS)


class _Slow(FakeBackend):
    """Small batches, and a pause for each."""

    batch_tokens = 20
    pause = 0.0
    asked = 0

    def score(self, requests):
        time.sleep(self.pause)
        self.asked += len(requests)
        yield from super().score(requests)


WHOLE = ac.probe(BATCH, _Slow(7), WANT)


@pytest.fixture
def journal(tmp_path):
    """A journal of the whole job."""
    path = tmp_path / "job.probe"
    ac.probe(BATCH, _Slow(7), WANT, journal=path)
    return path


def test_a_journal_changes_no_number_and_all_is_in_it(journal):
    fake = _Slow(7)
    assert ac.probe(BATCH, fake, WANT, journal=journal, resume=True) == WHOLE
    assert 0 == fake.asked


@settings(max_examples=20)
@given(st.floats(0, 1))
def test_a_journal_cut_anywhere_gives_the_same_numbers(tmp_path_factory, share):
    path = tmp_path_factory.mktemp("cut") / "job.probe"
    ac.probe(BATCH, _Slow(7), WANT, journal=path)
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    assert ac.probe(BATCH, _Slow(7), WANT, journal=path, resume=True) == WHOLE
    assert data == path.read_bytes()


def test_damage_in_the_middle_is_named_and_what_follows_can_be_cut_off(journal):
    data = bytearray(journal.read_bytes())
    data[len(data) // 2] = 0
    journal.write_bytes(data)
    with pytest.raises(DataError, match=r"line (\d+) of the journal is damaged.*Cut the file") as error:
        ac.probe(BATCH, _Slow(7), WANT, journal=journal, resume=True)
    assert data == journal.read_bytes()
    line = int(str(error.value).split("line ")[1].split()[0])
    journal.write_bytes(b"".join(bytes(data).splitlines(keepends=True)[: line - 1]))
    fake = _Slow(7)
    assert ac.probe(BATCH, fake, WANT, journal=journal, resume=True) == WHOLE
    assert fake.asked > 0


_CHILD = """
import sys
import accredit as ac
from tests.signals.test_job import BATCH, WANT, _Slow
fake = _Slow(7)
fake.pause = 0.05
ac.probe(BATCH, fake, WANT, journal=sys.argv[1], resume=True)
"""


def test_a_job_killed_with_sigkill_again_and_again_gives_the_same_numbers(tmp_path):
    path = tmp_path / "job.probe"
    for kept in (2, 4, 6):
        child = subprocess.Popen([sys.executable, "-c", _CHILD, str(path)], cwd=Path(__file__).parents[2])
        end = time.monotonic() + 60
        while child.poll() is None and time.monotonic() < end:
            if path.exists() and path.read_bytes().count(b"\n") >= kept:
                break
            time.sleep(0.005)
        os.kill(child.pid, signal.SIGKILL)
        assert -signal.SIGKILL == child.wait()
    fake = _Slow(7)
    assert ac.probe(BATCH, fake, WANT, journal=path, resume=True) == WHOLE
    assert 0 < fake.asked < 24


def test_a_joint_job_is_resumed_too(tmp_path):
    views = {"student": View(FakeBackend(7)), "teacher": View(FakeBackend(7, seed=1))}
    whole = joint(BATCH, views, [Divergence()], journal=tmp_path / "j")
    data = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(data[: len(data) // 2])
    assert joint(BATCH, views, [Divergence()], journal=tmp_path / "j", resume=True) == whole


# -- refusals -------------------------------------------------------------------------------------


def test_unfinished_work_is_not_thrown_away_without_a_word(journal):
    before = journal.read_bytes()
    with pytest.raises(DataError, match=r"ACC757.*did not end.*--resume"):
        ac.probe(BATCH, _Slow(7), WANT, journal=journal)
    assert before == journal.read_bytes()


@pytest.mark.parametrize(
    ("fake", "want", "records", "apart"),
    [
        (_Slow(7, seed=1), WANT, RECORDS, "weights was"),
        (_Slow(7, temperature=2.0), WANT, RECORDS, "temperature was 1.0, now 2.0"),
        (_Slow(7), "logprob", RECORDS, "want was"),
        (_Slow(7), WANT, RECORDS[:3], "tokens was"),
    ],
)
def test_a_journal_of_another_job_is_refused_and_kept(journal, fake, want, records, apart):
    before = journal.read_bytes()
    with pytest.raises(DataError, match=f"ACC757.*another job.*{apart}"):
        ac.probe(Batch.from_records(records), fake, want, journal=journal, resume=True)
    assert before == journal.read_bytes()


@pytest.mark.parametrize(
    "content", [b"not a journal\n", b'{"schema":"accredit.bench/1","plan":{}}\n', b"\x00" * 40]
)
def test_a_file_that_is_no_journal_is_left_alone(tmp_path, content):
    path = tmp_path / "mine"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"ACC757.*no journal"):
        ac.probe(BATCH, _Slow(7), WANT, journal=path, resume=True)
    assert content == path.read_bytes()


def test_two_runs_do_not_write_one_journal(tmp_path):
    from accredit.store.journal import LineJournal

    with LineJournal(tmp_path / "j", "demo/1", {}), pytest.raises(StoreError, match="in use"):
        LineJournal(tmp_path / "j", "demo/1", {}, resume=True)


class _Forgetful(_Slow):
    def score(self, requests):
        yield from list(super().score(requests))[1:]


def test_a_back_end_that_leaves_requests_out_is_found_out():
    with pytest.raises(BackendError, match=r"answered \d+ of \d+"):
        ac.probe(BATCH, _Forgetful(7), WANT)


def test_progress_tells_tokens_done_of_all_and_the_rate():
    told = []
    ac.probe(BATCH, _Slow(7), WANT, progress=lambda *where: told.append(where))
    done, total, now = zip(*told, strict=True)
    assert (0, "started") == (done[0], now[0])
    assert done[-1] == total[0] == total[-1] > 0
    assert list(done) == sorted(set(done))
    assert all(text.endswith(" tokens/s") for text in now[1:])
