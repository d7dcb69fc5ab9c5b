"""``accredit resume``: what is kept of a command, and that it goes on from where it was."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import accredit as ac
from accredit.cli import run
from accredit.errors import DataError
from accredit.resuming import keep_command
from accredit.signals import FakeBackend
from accredit.worlds import make, make_policy, sample


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    task = make("rooms", seed=1, slip=0.0)
    played = sample(task, policy=make_policy(task, 0.3), groups=1, group_size=2, seed=5)
    path = tmp_path / "rollouts.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in played.batch.records()))
    return path


def truth(rollouts: Path, *more: str) -> list[str]:
    world = ("--world", "tests.cli.test_truth:world_of_rooms", "--policy", "uniform")
    bought = ("--continuations", "3", "--steps", "2", "--journal", "j.jsonl", "-o", "truth.jsonl")
    return ["truth", rollouts.name, *world, *bought, *more]


@pytest.fixture
def told(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Run the command line in the test's folder: exit code, output and notes, of child processes too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))

    def call(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        return run(list(words)), *capfd.readouterr()

    return call


def test_a_truth_whose_result_was_lost_is_made_again_from_its_journal(told, rollouts, monkeypatch):
    """From another folder, by the journal alone; nothing is played twice."""
    folder = rollouts.parent
    assert told(*truth(rollouts))[0] == 0
    wanted = (folder / "truth.jsonl").read_bytes()
    (folder / "truth.jsonl").unlink()
    monkeypatch.chdir(folder.parent)
    code, out, err = told("resume", str(folder / "j.jsonl"), "--json")
    assert code == 0, err
    assert json.loads(out)["spent"]["continuations"] == 0
    assert (folder / "truth.jsonl").read_bytes() == wanted


def test_a_command_that_is_refused_replaces_none_that_is_kept(told, rollouts):
    """A slip on the name of the journal left ``resume`` with the wrong command, or with one more file."""
    folder = rollouts.parent
    assert told(*truth(rollouts))[0] == 0
    kept = (folder / "j.jsonl.command.json").read_bytes()
    other = [word.replace("world_of_rooms", "no_such_world") for word in truth(rollouts)]
    assert told(*other)[0] == 2
    assert kept == (folder / "j.jsonl.command.json").read_bytes()
    (folder / "j.jsonl.command.json").unlink()
    assert told(*other)[0] == 2
    assert not (folder / "j.jsonl.command.json").exists()


def test_a_bench_goes_on_in_its_folder(told, tmp_path: Path):
    some = ("--families", "lock", "--methods", "grpo", "-o", "results", "--no-resume")
    assert told("bench", *some)[0] == 0
    journal = tmp_path / "results" / "journal.jsonl"
    whole = journal.read_text().splitlines()
    journal.write_text("\n".join(whole[: len(whole) // 2]) + "\n")
    code, _, err = told("resume", "results")
    assert code == 0, err
    assert "cells were there already" in err
    cells = [
        sorted(re.sub(r'"seconds":[^,]*,', "", line) for line in lines) for lines in (whole, _lines(journal))
    ]
    assert cells[0] == cells[1]


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_probe_that_was_interrupted_is_resumed_by_its_option(told, rollouts, monkeypatch):
    """What is kept has --resume; its journal goes, with the command, when the result is there."""
    monkeypatch.setattr("accredit.signals.backend_of", lambda name, **options: Interrupted(7))
    steps = [{"prompt_tokens": [1, 2, 3], "tokens": [4, 5]}]
    rollouts.write_text(json.dumps({"id": "a", "group": "g", "reward": 1, "steps": steps}) + "\n")
    assert told("probe", rollouts.name, "--model", "m", "-o", "o.jsonl")[0] == 130
    kept = json.loads((rollouts.parent / "o.jsonl.probe.command.json").read_text())
    assert kept["words"] == ["probe", "--resume", rollouts.name, "--model", "m", "-o", "o.jsonl"]
    monkeypatch.setattr("accredit.signals.backend_of", lambda name, **options: FakeBackend(7))
    assert told("probe", rollouts.name, "--model", "other", "-o", "o.jsonl")[0] == 3
    assert kept == json.loads((rollouts.parent / "o.jsonl.probe.command.json").read_text())
    assert told(*kept["words"])[0] == 0
    assert not [*rollouts.parent.glob("o.jsonl.probe*")]


class Interrupted(FakeBackend):
    """Is interrupted before it answers."""

    def score(self, requests):
        raise KeyboardInterrupt


def test_the_exit_code_is_the_commands(told):
    keep_command("j", ["truth", "no-such.jsonl", "--world", "rooms:1", "--policy", "uniform", "-o", "x"])
    assert told("resume", "j")[0] == 3


def test_nothing_is_kept_of_a_command_with_a_key_or_of_standard_input(told, rollouts, monkeypatch):
    monkeypatch.setenv("ACCREDIT_API_KEY", "sk-1")
    code, _, err = told(*truth(rollouts, "--journal", "sk-1.jsonl"))
    assert (code, "will not know this command" in err) == (0, True), err
    with rollouts.open() as lines:
        monkeypatch.setattr("sys.stdin", lines)
        words = ["-" if word == rollouts.name else word for word in truth(rollouts)]
        code, _, err = told(*words)
    assert (code, "will not know this command" in err) == (0, True), err
    assert not [*rollouts.parent.glob("*command*")]
    code, _, err = told(*truth(rollouts))
    assert code == 0, err
    [kept] = rollouts.parent.glob("*command*")
    assert "sk-1" not in kept.read_text()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "is damaged"),
        (
            b'{"schema": "accredit.command/1", "words": ["demo"], "folder": "."}',
            "no command that can be resumed",
        ),
        (b'{"schema": "accredit.command/1", "words": [], "folder": "."}', "no command that can be resumed"),
        (b'{"schema": "x/1", "words": ["truth"], "folder": "."}', "no command that can be resumed"),
        (b'{"schema": "accredit.command/1", "words": ["truth"], "folder": "/no/such"}', "is gone"),
        (None, "no command is kept"),
    ],
)
def test_what_is_no_command_is_refused(tmp_path: Path, content: bytes | None, said: str):
    if content is not None:
        (tmp_path / "j.command.json").write_bytes(content)
    with pytest.raises(DataError, match=said):
        ac.resume(tmp_path / "j")
