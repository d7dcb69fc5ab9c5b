"""Every snippet of the README and the docs runs, in the order of its page.

```python blocks of a page share one namespace; ```pycon blocks run as doctests, so their output is
compared; of ```console blocks the lines that begin with `$ accredit` run, in this process but without
what the page registered. All run in a folder that holds `rollouts.jsonl`, the bundled rollouts (for the
command line the five games of coins among them), and `truth.parquet`, a truth about some of their steps.
"""

from __future__ import annotations

import doctest
import gzip
import io
import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

import accredit
import accredit.readers
from accredit.cli import run, verbs
from accredit.methods import _registry
from accredit.store.truth import read_truth, save_truth

formats = sys.modules["accredit.readers.formats"]  # readers.formats is the function of that name
ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if "_notes" not in p.parts)]
FENCE = re.compile(r"^```(python|pycon|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAMPLES = Path(accredit.__file__).parent / "samples"
REGISTRIES = ((_registry, "_METHODS"), (_registry, "_ALIASES"), (formats, "_FORMATS"))
DONE, FINDINGS = 0, 1
LONG = {"bench", "demo"}  # have tests of their own: here their options are parsed


def _snippets(page: Path) -> list[tuple[str, str]]:
    return FENCE.findall(page.read_text())


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The bundled rollouts, few of them, and a made-up truth: the step that got a reward was worth it."""
    made = tmp_path_factory.mktemp("files")
    rollouts = gzip.decompress((SAMPLES / "textworld.jsonl.gz").read_bytes())
    (made / "rollouts.jsonl").write_bytes(rollouts)
    records = [json.loads(line) for line in rollouts.splitlines()]
    coins = [r for r in records if r.get("group", "coin-").startswith("coin-")]  # and the header
    (made / "coins.jsonl").write_text("".join(json.dumps(r) + "\n" for r in coins))
    rows = [
        {"rollout": r["id"], "step": t, "advantage": float(step.get("intermediate_reward") or 0)}
        for r in records
        for t, step in enumerate(r.get("steps", ()))
    ]
    (made / "truth.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    save_truth(read_truth(made / "truth.jsonl"), made / "truth.parquet")
    return made


@pytest.fixture
def folder(files, tmp_path, monkeypatch):
    """The working folder of a page."""
    monkeypatch.chdir(tmp_path)
    Path("truth.parquet").symlink_to(files / "truth.parquet")
    return tmp_path


def _show(link: Path, rollouts: Path) -> None:
    """Let a name of the page's folder mean these rollouts."""
    link.unlink(missing_ok=True)
    link.symlink_to(rollouts)


@contextmanager
def _registries(tables: list[dict]) -> Iterator[None]:
    """The registries are copies of these tables until the block ends."""
    with pytest.MonkeyPatch.context() as patch:
        for (room, name), table in zip(REGISTRIES, tables, strict=True):
            patch.setattr(room, name, dict(table))
        yield


def _run_doctest(block: str, page: Path, namespace: dict[str, object]) -> None:
    test = doctest.DocTestParser().get_doctest(block, namespace, page.name, str(page), 0)
    report: list[str] = []
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    runner = doctest.DocTestRunner(optionflags=flags, verbose=False)
    runner.run(test, out=report.append, clear_globs=False)
    namespace.update(test.globs)
    assert not runner.failures, "".join(report)


def _run_console(block: str) -> None:
    for line in block.splitlines():
        if line.startswith("$ accredit"):
            verb = shlex.split(line[2:])[1:]
            out, err = io.StringIO(), io.StringIO()
            if verb[0] in LONG:
                verbs.get_command(None, verb[0]).make_context(verb[0], verb[1:])
                continue
            with redirect_stdout(out), redirect_stderr(err):
                code = run(verb)
            assert code in {DONE, FINDINGS}, f"{line}\n{out.getvalue()}{err.getvalue()}"


@pytest.mark.parametrize(
    "page", [p for p in PAGES if _snippets(p)], ids=lambda p: str(p.relative_to(ROOT)).replace("/", "-")
)
def test_snippets_of_the_page_run(page, folder, files):
    namespace: dict[str, object] = {"__name__": "__main__"}
    installed = [getattr(room, name) for room, name in REGISTRIES]
    with _registries(installed):  # what a page registers ends with the page
        for language, block in _snippets(page):
            seen = "coins.jsonl" if language == "console" else "rollouts.jsonl"
            _show(folder / "rollouts.jsonl", files / seen)
            if language == "python":
                exec(compile(block, str(page), "exec"), namespace)
            elif language == "pycon":
                _run_doctest(block, page, namespace)
            else:
                with _registries(installed):  # and is not there in another process
                    _run_console(block)
