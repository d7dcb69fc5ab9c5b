"""Exit codes, help, pipes, interrupts, hostile text, and what is imported."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from accredit import samples
from accredit.cli import VERBS
from tests.cli.conftest import records

COMMAND = [sys.executable, "-m", "accredit"]
EVIL = "\x1b[31mred\x07\x9b2J\u202ebad [bold]not bold[/bold] \r\n<b>"


def _run(*args, **options):
    return subprocess.run([*COMMAND, *map(str, args)], capture_output=True, text=True, **options)


# -- usage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_and_has_json(accredit, verb):
    done = accredit(verb, "--help")
    assert 0 == done.code
    assert "--json" in done.out
    assert f"Usage: accredit {verb}" in done.out


def test_help_lists_all_verbs_with_what_they_do(accredit):
    out = accredit("--help").out
    for verb in VERBS:
        assert re.search(rf"^  {verb} +\w", out, re.MULTILINE), verb


def test_version_is_that_of_the_package(accredit):
    import accredit as ac

    assert f"accredit, version {ac.__version__}\n" == accredit("--version").out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("asign",), "Did you mean 'assign'"),
        (("methods", "gigppo"), "Did you mean 'gigpo'"),
        (("assign", "FILE"), "Missing option"),
        (("assign", "FILE", "-m", "gigppo"), "Did you mean 'gigpo'"),
        (("assign", "FILE", "-m", "gigpo", "--set", "gama=1"), "Did you mean 'gamma'"),
        (("assign", "FILE", "-m", "gigpo", "--set", "gamma=7"), "1], got 7"),
        (("assign", "FILE", "-m", "gigpo", "--set", "gamma"), "not of the form name=value"),
        (("assign", "FILE", "-m", "gigpo", "--set", "grpo.eps=1"), "which is not run. Add -m grpo"),
        (("assign", "FILE", "-m", "remax", "--set", "reward_baselines={"), "is not JSON"),
        (("assign", "FILE", "-m", "gigpo", "--spread", "clip=-1"), "clip > 0"),
        (("assign", "FILE", "-m", "gigpo", "--spread", "klip=1"), "Did you mean 'clip'"),
        (("assign", "FILE", "-m", "gigpo", "--compat", "verl-agnt"), "Did you mean 'verl-agent'"),
        (("assign", "FILE", "-m", "gigpo", "--key", "strip-digit"), "Did you mean 'strip-digits'"),
        (("compare", "FILE", "-m", "gigpo", "--set", "gama=1"), "Did you mean 'gamma'"),
        (("compare", "FILE", "-m", "gigpo", "--boot", "-3"), "--boot"),
        (("assign", "FILE", "-m", "gigpo", "--nope"), "No such option"),
    ],
)
def test_usage_errors_name_what_is_near_and_end_with_2(accredit, file, args, says):
    done = accredit(*(file if a == "FILE" else a for a in args))
    assert 2 == done.code
    assert says in done.err
    assert "" == done.out


# -- json -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        ("check", "FILE"),
        ("assign", "FILE", "-m", "gigpo"),
        ("compare", "FILE", "-m", "grpo", "-m", "gigpo", "--boot", "30"),
        ("show", "FILE", "-m", "gigpo"),
        ("show", "FILE", "-m", "gigpo", "--group", "g1"),
        ("show", "FILE", "-m", "gigpo", "--rollout", "g0r1"),
        ("show", "FILE", "-m", "gigpo", "--rollout", "g0r1", "--step", "1"),
        ("methods",),
        ("methods", "gigpo"),
    ],
    ids=" ".join,
)
def test_json_is_one_ascii_document_and_the_same_twice(accredit, write, args):
    path = write([{**r, "id": r["id"] + "é"} if "g0r1" not in r["id"] else r for r in records()])
    first, second = (accredit(*(path if a == "FILE" else a for a in args), "--json") for _ in range(2))
    timed = re.compile(r'"seconds": [0-9.e-]+')
    assert first.code in (0, 1)
    assert first.out.isascii()
    json.loads(first.out, parse_constant=pytest.fail)  # NaN and Infinity are no JSON
    assert timed.sub("", first.out) == timed.sub("", second.out)


# -- hostile text ---------------------------------------------------------------------------------


@pytest.fixture
def evil(write):
    rows = records()
    for row in rows:
        row["id"], row["group"] = f"{row['id']}{EVIL}", f"{row['group']}{EVIL}"
        row["steps"] = [{**s, "state": s["state"] + EVIL, "action": EVIL, "text": EVIL} for s in row["steps"]]
    rows[1]["steps"][0]["logprobs"] = [-1.0] * 7  # an excluded one too
    return write(rows)


@pytest.mark.parametrize(
    "args",
    [
        ("check",),
        ("assign", "-m", "gigpo"),
        ("compare", "-m", "grpo", "-m", "gigpo"),
        ("show", "-m", "gigpo"),
        ("show", "-m", "gigpo", "--rollout", f"g0r0{EVIL}"),
        ("show", "-m", "gigpo", "--rollout", f"g0r0{EVIL}", "--step", "0"),
        ("show", "-m", "gigpo", "--rollout", f"nope{EVIL}"),
        ("show", "-m", f"gigpo{EVIL}"),
        ("assign", "-m", "gigpo", "--json"),
    ],
    ids=lambda a: " ".join(a[:2]) + str(len(a)),
)
def test_hostile_text_cannot_act_on_a_terminal(accredit, evil, args):
    done = accredit(args[0], evil, *args[1:])
    for text in (done.out, done.err):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert "[bold]" in done.out + done.err or "--json" in args  # shown, not obeyed


def _on_a_terminal(args, env):
    """What the command writes to a terminal of 100 columns."""
    main, child = pty.openpty()
    os.set_blocking(main, True)
    process = subprocess.Popen(
        [*COMMAND, *map(str, args)],
        stdout=child,
        stderr=subprocess.PIPE,
        env=os.environ | {"COLUMNS": "100"} | env,
    )
    os.close(child)
    said = b""
    while True:
        try:
            some = os.read(main, 65536)
        except OSError:
            break
        if not some:
            break
        said += some
    process.wait(30)
    os.close(main)
    return said.decode()


def test_colour_is_for_terminals_and_obeys_no_color(file):
    args = ("assign", file, "-m", "gigpo")
    colour = re.compile(r"\x1b\[[0-9;]*3[0-9;]*m")
    assert colour.search(_on_a_terminal(args, {"TERM": "xterm-256color", "NO_COLOR": ""}))
    assert not colour.search(_on_a_terminal(args, {"TERM": "xterm-256color", "NO_COLOR": "1"}))
    assert "\x1b" not in _on_a_terminal(args, {"TERM": "dumb"})
    assert "\x1b" not in _run(*args, env=os.environ | {"TERM": "xterm-256color"}).stdout


def test_markup_in_rollouts_is_no_markup_on_a_terminal(evil):
    said = _on_a_terminal(("show", evil, "-m", "gigpo", "--rollout", f"g0r0{EVIL}"), {"TERM": "xterm"})
    assert "[bold]" in said
    assert "\x1b[31mred" not in said


def test_piped_columns_do_not_depend_on_the_terminal(file):
    args = ("assign", file, "-m", "gigpo")
    assert (
        _run(*args, env=os.environ | {"COLUMNS": "40"}).stdout
        == _run(*args, env=os.environ | {"COLUMNS": "400"}).stdout
    )


# -- pipes, interrupts, encodings -------------------------------------------------------------------


@pytest.mark.parametrize("closed", ["sys.stdout = None", "sys.stderr = None"])
def test_closed_streams_are_no_traceback(file, closed):
    """``>&-`` gives Python no stream at all."""
    code = f"import sys; {closed}; from accredit.cli import main; main(['check', {file!r}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.parametrize(
    "verb",
    ["show FILE -m dr-grpo --rollout g0r1 --step 0 " + how for how in ("--json", "--all")],
)
def test_a_reader_that_goes_away_ends_the_verb_quietly(tmp_path, verb):
    path = tmp_path / "many.jsonl"  # many enough that what is told of them is more than a pipe holds
    path.write_text("".join(json.dumps(r) + "\n" for r in records(n_groups=1, size=5000)))
    line = (
        f"{sys.executable} -m accredit {verb.replace('FILE', str(path))} | head -1; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert "" == done.stderr
    assert done.returncode in (0, 141)  # 0 where the kernel took all of it before the reader left
    assert 1 == len(done.stdout.splitlines())


def test_ctrl_c_ends_with_130_and_one_line():
    code = """
import os, signal, time
import accredit
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job is started to ignore it
def read(*args, **options):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
accredit.read = read
from accredit.cli import main
main(["check", "rollouts.jsonl"])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert 130 == done.returncode
    assert "" == done.stdout
    assert "interrupted" in done.stderr
    assert "run the same command again" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_ascii_terminal_gets_the_text_it_can_show(file):
    done = _run("show", file, "-m", "gigpo", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (0, "") == (done.returncode, done.stderr)


def test_an_error_of_a_back_end_has_its_own_code(accredit, file, monkeypatch):
    from accredit.errors import BackendError

    def broken(*_args, **_options):
        raise BackendError("the model server answered 500")

    monkeypatch.setattr("accredit.assign", broken)
    done = accredit("assign", file, "-m", "grpo")
    assert (4, "accredit: the model server answered 500\n") == (done.code, done.err)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device", "credit.parquet"), MemoryError()])
def test_a_full_disk_and_full_memory_are_one_sentence(accredit, file, monkeypatch, error):
    def full(*_args, **_options):
        raise error

    monkeypatch.setattr("accredit.assign", full)
    done = accredit("assign", file, "-m", "grpo")
    assert 3 == done.code
    assert 1 == len(done.err.splitlines())


# -- imports --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args", [["--help"], ["--version"], ["methods"], ["methods", "gigpo"], ["methods", "nope"]]
)
def test_help_and_catalogue_import_no_number_library(args):
    code = f"""
import sys
from pathlib import Path
from accredit.cli import run
run({args!r})
print("MODULES", *sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert not set(done.stdout.rpartition("MODULES")[2].split()) & {"numpy", "scipy", "pyarrow", "rich"}


def test_the_bundled_files_are_found_by_name():
    assert "textworld" in samples.names()
    assert samples.path("textworld").exists()
    with pytest.raises(KeyError, match="there are textworld"):
        samples.path("nope")


@pytest.mark.parametrize(
    ("verb", "source", "output"),
    [
        ("assign -m grpo", "r.jsonl", "r.jsonl"),
        ("assign -m grpo", "r.jsonl", "link.jsonl"),
        ("assign -m grpo -m gigpo", "r-gigpo.jsonl", "r.jsonl"),
        ("report -m grpo", "r.html", "r.html"),
    ],
)
def test_output_does_not_replace_the_rollouts(accredit, write, tmp_path, verb, source, output):
    """``assign -o`` onto its own input replaced the rollouts by credit without a word."""
    file = write(name=source)
    before = Path(file).read_bytes()
    (tmp_path / "link.jsonl").symlink_to(file)
    done = accredit(*verb.split(), file, "-o", tmp_path / output)
    assert 2 == done.code
    assert "would replace the rollouts that are read" in done.err
    assert before == Path(file).read_bytes()


def test_output_does_not_replace_a_file_of_the_folder_that_is_read(accredit, file, tmp_path):
    """``assign FOLDER -o`` onto one of its files replaced that one."""
    before = Path(file).read_bytes()
    assert 2 == accredit("assign", tmp_path, "-m", "grpo", "-o", file).code
    assert before == Path(file).read_bytes()
