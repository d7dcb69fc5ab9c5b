"""Every snippet of the README and the docs runs, in the order of its page.

```python blocks of a page share one namespace; ```pycon blocks run as doctests, so their output is
compared; of ```console blocks the lines that begin with `$ accredit` run. All run in an empty folder
that holds `rollouts.jsonl`, the bundled rollouts.
"""

from __future__ import annotations

import doctest
import gzip
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import accredit
from accredit.methods import _registry

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if "_notes" not in p.parts)]
FENCE = re.compile(r"^```(python|pycon|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAMPLES = Path(accredit.__file__).parent / "samples"
DONE, FINDINGS = 0, 1


def _snippets(page: Path) -> list[tuple[str, str]]:
    return FENCE.findall(page.read_text())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder of a page: the bundled rollouts, unpacked, as rollouts.jsonl."""
    sample = (SAMPLES / "textworld.jsonl.gz").read_bytes()
    (tmp_path / "rollouts.jsonl").write_bytes(gzip.decompress(sample))
    monkeypatch.chdir(tmp_path)
    for name in ("_METHODS", "_ALIASES"):  # methods that a page registers end with the page
        monkeypatch.setattr(_registry, name, dict(getattr(_registry, name)))
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
            command = [sys.executable, "-m", "accredit", *shlex.split(line[2:])[1:]]
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
