"""The code-repair workspace: planted bugs show, mends pay, folders come back.

The code is ours, and run as ourselves; the sandbox is tested in tests/slow.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.data import Batch
from accredit.errors import DataError, ParamError, SandboxError
from accredit.oracle.named import world_named
from accredit.planners import Request
from accredit.worlds import World
from accredit.worlds import sandbox as sandboxes
from accredit.worlds.programs import PROGRAMS
from accredit.worlds.repair import RepairWorld, repair_task
from accredit.worlds.workspaces import Copies, GitTrees, folder_digest
from tests.worlds.promises import agrees_with_its_record, continued, goes_on_as_before, places, scripted

FREE = partial(RepairWorld, unsandboxed=True)
SEED = 5  # lengths of runs; no bug of it loops for ever


def answers_of(source: str, name: str, inputs: tuple) -> list:
    space: dict = {}
    exec(source, space)
    found = []
    for given_ in inputs:
        try:
            found.append(space[name](*json.loads(json.dumps(given_))))
        except Exception as error:  # noqa: BLE001 - a bug may raise anything
            found.append(error)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_a_planted_bug_shows_in_the_tests_and_the_right_module_passes_them(seed: int) -> None:
    task = repair_task(seed)
    assert list(task.answers) == answers_of("\n".join(task.right), task.name, task.inputs)
    ((n, given_),) = [(n, a) for n, (a, b) in enumerate(zip(task.lines, task.right, strict=True)) if a != b]
    assert {given_, task.right[n]} <= set(task.choices[n + 1])
    if task.name != "position":  # where a bug may loop for ever; the slow tests run it
        assert list(task.answers) != answers_of("\n".join(task.lines), task.name, task.inputs)


def test_each_program_comes_up_and_bugs_are_as_many_as_asked() -> None:
    assert {p.right.__name__ for p in PROGRAMS} == {repair_task(seed).name for seed in range(20)}
    for bugs in (1, 2, 3):
        task = repair_task(5, bugs)
        assert bugs == sum(a != b for a, b in zip(task.lines, task.right, strict=True))
    with pytest.raises(ParamError, match="bugs"):
        repair_task(5, 4)


@pytest.mark.parametrize("snapshots", ["git", "copy"])
def test_a_restored_workspace_goes_on_as_before(snapshots) -> None:
    goes_on_as_before(partial(FREE, SEED, snapshots=snapshots), [0, 6], [6, 3, 6], [1, 6, 2])
    goes_on_as_before(partial(FREE, SEED, snapshots=snapshots), [], [7], [4])


def test_the_solution_pays_and_the_module_as_given_does_not() -> None:
    world = FREE(SEED, bugs=1)
    world.reset(0)
    seen = ""
    for action in world.solution()[:-1]:
        seen, reward, over = world.step(action)
        assert (0.0, False) == (reward, over)
    assert "40 of 40 tests pass." in seen
    assert (1.0, True, []) == (*world.step("submit")[1:], world.actions())
    with pytest.raises(ParamError, match="over"):
        world.step("submit")
    world.reset(0)
    assert (0.0, True) == world.step("submit")[1:]


def test_a_module_is_written_only_where_that_is_allowed() -> None:
    world = FREE(SEED, free=True)
    world.reset(0)
    right = "\n".join(world.task.right)
    assert "40 of 40" in world.step("write\n" + right)[0] + world.step("run tests")[0]
    assert 1.0 == world.step("submit")[1]
    for odd in ("write\n" + right, "set line 1 to import os", "set line 99 to x"):
        listed = FREE(SEED)
        listed.reset(0)
        with pytest.raises(ParamError, match="cannot"):
            listed.step(odd)


@pytest.mark.parametrize(
    "source",
    [
        "raise SystemExit(0)",
        "import os; os._exit(0)",
        "runs = 3",
        "def runs(text): return True",
        "def runs(text): return float('nan')",
        "print('[{\"answer\": 0}]'); import os; os.write(1, b'[]'); os._exit(0)",
        "import sys; sys.stdout.write('[' * 100000); sys.__stdout__.flush()",
        "",
        "\ud800",
    ],
)
def test_odd_modules_fail_and_break_nothing(source: str) -> None:
    world = FREE(SEED, free=True)
    world.reset(0)
    world.step("write\n" + source)
    assert "0 of 40 tests pass." in world.step("run tests")[0]
    assert 0.0 == world.step("submit")[1]


def test_it_keeps_the_promises_of_a_world() -> None:
    world = FREE(SEED)
    assert isinstance(world, World)
    assert (True, 0.0, True, False) == (
        world.exact_snapshot, world.snapshot_cost, world.deterministic, world.side_effects,
    )  # fmt: skip
    agrees_with_its_record(partial(FREE, SEED), world.solution())


def test_continuations_win_along_the_solution_and_lose_from_a_wrong_edit() -> None:
    make = partial(FREE, SEED)
    solution = make().solution()
    here, _ = places(make, solution)
    wins = continued(make, [Request(p) for p in here], scripted(solution))
    assert [1.0] * len(here) == [a.mean for a in wins]
    assert [0.0] == [a.mean for a in continued(make, [Request(here[1], forced=("submit",))])]
    uniform = continued(make, [Request(here[2], k=6)])[0]
    assert {0.0, 1.0} >= set(uniform.rewards.tolist())


def test_without_bubblewrap_nothing_is_run_unless_told(monkeypatch) -> None:
    monkeypatch.setattr(sandboxes.shutil, "which", lambda name: None)
    with pytest.raises(SandboxError, match=r"bwrap is not installed.*apt-get install bubblewrap"):
        RepairWorld(SEED)
    batch = Batch.from_records([{"id": "a", "group": "g1", "steps": []}])
    with pytest.raises(SandboxError, match="not installed"):
        world_named("repair", batch)("g1")
    assert 0 == sandboxes.Sandbox(unsandboxed=True).run("print(1)", Path("/")).status


def test_a_python_whose_folder_is_home_is_not_shown(monkeypatch) -> None:
    monkeypatch.setattr(sandboxes.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(sandboxes, "_interpreter", lambda: str(Path.home() / "bin" / "python"))
    with pytest.raises(SandboxError, match="would show your home"):
        sandboxes.Sandbox()


# -- folders --------------------------------------------------------------------------------------------

names = st.sampled_from(
    ["a", "b", "d/a", "d/e/a", ".gitignore", ".gitattributes", "with space", "é", "x.pyc"]
)
contents = st.sampled_from(
    [b"", b"a\r\nb\n", b"*\n", b"* text eol=crlf\n*.pyc ident\n", b"$Id$", bytes(range(256))]
)
changes = st.lists(
    st.tuples(st.sampled_from(["write", "delete", "program", "link"]), names, contents), max_size=6
)


def changed(folder: Path, deeds: list[tuple[str, str, bytes]]) -> None:
    for deed, name, data in deeds:
        at = folder / name
        if at.is_symlink() or at.is_file():
            at.unlink()
        if deed == "delete":
            continue
        at.parent.mkdir(parents=True, exist_ok=True)
        if deed == "link":
            at.symlink_to("/nowhere")
        else:
            at.write_bytes(data)
            at.chmod(0o755 if deed == "program" else 0o644)


@pytest.mark.parametrize("kind", [GitTrees, Copies])
@given(first=changes, second=changes, third=changes)
@settings(max_examples=8, deadline=None)
def test_a_folder_comes_back_byte_for_byte(kind, first, second, third, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("w")
    trees = kind(folder)
    changed(folder, first)
    one, before = trees.save(), folder_digest(folder)
    changed(folder, second)
    two, between = trees.save(), folder_digest(folder)
    changed(folder, third)
    for token, digest in ((one, before), (two, between), (one, before)):
        trees.back(token)
        assert digest == folder_digest(folder)
    other = tmp_path_factory.mktemp("v")
    kind(other).back(two)
    assert between == folder_digest(other)


def test_equal_folders_have_equal_trees_and_the_users_repository_is_not_touched(
    tmp_path, monkeypatch
) -> None:
    (tmp_path / "f").write_text("x")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    one, two = GitTrees(tmp_path), GitTrees(tmp_path)
    before = two.save()
    assert before == one.save()
    (tmp_path / "f").write_text("y")
    assert one.save() != before
    assert ["f"] == [at.name for at in tmp_path.iterdir()]


def test_a_repository_in_the_workspace_is_refused_by_git_and_copied_by_copies(tmp_path) -> None:
    (tmp_path / "sub" / ".git").mkdir(parents=True)
    (tmp_path / "sub" / ".git" / "HEAD").write_text("x")
    with pytest.raises(DataError, match="repository inside the workspace"):
        GitTrees(tmp_path).save()
    copies = Copies(tmp_path)
    token, before = copies.save(), folder_digest(tmp_path)
    (tmp_path / "sub" / ".git" / "HEAD").unlink()
    copies.back(token)
    assert before == folder_digest(tmp_path)
