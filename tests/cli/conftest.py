"""The command line in this process, and small files of rollouts."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from accredit.cli import run


def records(n_groups=2, size=4):
    """Rollouts of three steps: groups mixed in reward, states shared."""
    return [
        {
            "id": f"g{g}r{r}",
            "group": f"g{g}",
            "reward": float(r % 2),
            "steps": [
                {"state": f"s{t if r % 3 else 0}", "action": f"act {t} {r % 2}", "tokens": [t, r]}
                for t in range(3)
            ],
        }
        for g in range(n_groups)
        for r in range(size)
    ]


@pytest.fixture
def write(tmp_path):
    """Write records (or bytes) to a file of the test's folder; returns its path as text."""

    def write(content=None, name="rollouts.jsonl"):
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            lines = [json.dumps(record) for record in (records() if content is None else content)]
            path.write_text("\n".join(lines) + "\n")
        return str(path)

    return write


@pytest.fixture
def file(write):
    """A file of well-formed rollouts."""
    return write()


@pytest.fixture
def accredit(capsys, monkeypatch):
    """Run the command line in this process: ``.code``, ``.out``, ``.err``, ``.json()``."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*args):
        capsys.readouterr()
        code = run([str(a) for a in args])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return SimpleNamespace(code=code, out=out, err=err, json=lambda: json.loads(out))

    return call
