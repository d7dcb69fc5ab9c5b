"""The snippets of TRL in README and docs run verbatim in the real TRL."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset

import accredit as ac
from tests.slow.trl import tiny

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

ROOT = Path(__file__).parents[3]
FENCE = re.compile(r'^```python title="trl"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
PAGES = ("README.md", "docs/adapters.md")


@pytest.mark.parametrize("page", PAGES)
def test_the_snippet_trains_verbatim(page, tmp_path):
    (snippet,) = FENCE.findall((ROOT / page).read_text())
    assert 5 == len(snippet.strip().splitlines())
    tiny.model().save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    namespace = {
        "model": str(tmp_path / "model"),
        "reward": tiny.sum_of_steps,
        "args": tiny.config(tmp_path),
        "dataset": Dataset.from_dict({"prompt": ["w1 w2", "w3"] * 16}),
        "rollout": tiny.two_turns,
    }
    exec(compile(snippet, page, "exec"), namespace)
    trainer = namespace["trainer"]
    found = trainer.last_credit
    records = [r | {"group": str(i // 4)} for i, r in enumerate(found.batch.records())]
    assert "gigpo" == found.card.id
    assert np.allclose(ac.assign(records, "gigpo", gamma=0.95).steps, found.steps)
    assert np.isfinite([log["loss"] for log in trainer.state.log_history if "loss" in log]).all()
