"""Every snippet of the README and the docs runs, in the order of its page.

```python blocks of a page share one namespace; ```pycon blocks run as doctests, so their output is
compared; of ```console blocks the lines that begin with `$ accredit` run. All run in a folder that
holds `rollouts.jsonl`, the bundled rollouts, and `truth.parquet`, a truth about some of their steps.
"""

from __future__ import annotations

import doctest
import gzip
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import accredit
import accredit.readers
from accredit.methods import _registry
from accredit.store.truth import read_truth, save_truth

formats = sys.modules["accredit.readers.formats"]  # readers.formats is the function of that name
ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if "_notes" not in p.parts)]
FENCE = re.compile(r"^```(python|pycon|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAMPLES = Path(accredit.__file__).parent / "samples"
DONE, FINDINGS = 0, 1
LONG = {"bench"}  # takes minutes to hours and has tests of its own: here only its help


def _snippets(page: Path) -> list[tuple[str, str]]:
    return FENCE.findall(page.read_text())


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The bundled rollouts, and a made-up truth: the step that got a reward was worth it."""
    made = tmp_path_factory.mktemp("files")
    rollouts = gzip.decompress((SAMPLES / "textworld.jsonl.gz").read_bytes())
    (made / "rollouts.jsonl").write_bytes(rollouts)
    records = [json.loads(line) for line in rollouts.splitlines()]
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
    for name in ("rollouts.jsonl", "truth.parquet"):
        (tmp_path / name).write_bytes((files / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    for room, name in ((_registry, "_METHODS"), (_registry, "_ALIASES"), (formats, "_FORMATS")):
        # What a page registers ends with the page.
        monkeypatch.setattr(room, name, dict(getattr(room, name)))
    return tmp_path


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
            verb += ["--help"] if verb[0] in LONG else []
            command = [sys.executable, "-m", "accredit", *verb]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode in {DONE, FINDINGS}, f"{line}\n{done.stdout}{done.stderr}"
            assert "Traceback" not in done.stderr, f"{line}\n{done.stderr}"


@pytest.mark.parametrize(
    "page", [p for p in PAGES if _snippets(p)], ids=lambda p: str(p.relative_to(ROOT)).replace("/", "-")
)
def test_snippets_of_the_page_run(page, folder):
    namespace: dict[str, object] = {"__name__": "__main__"}
    for language, block in _snippets(page):
        if language == "python":
            exec(compile(block, str(page), "exec"), namespace)
        elif language == "pycon":
            _run_doctest(block, page, namespace)
        else:
            _run_console(block)
