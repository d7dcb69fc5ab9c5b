"""The snippets of verl in README and docs run verbatim in the real verl."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import accredit as ac
from tests.adapters.made import recorded, tensors_of
from tests.slow.verl.test_adapter import proto

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

ROOT = Path(__file__).parents[3]
FENCE = re.compile(r'^```python title="verl"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (python -m verl\.trainer\.main_ppo .*)$", re.MULTILINE)
PAGES = ("README.md", "docs/adapters.md")


@pytest.mark.parametrize("page", PAGES)
def test_the_snippet_runs_verbatim(page):
    (snippet,) = FENCE.findall((ROOT / page).read_text())
    records = recorded(rows=False)
    namespace = {"data": proto(records)}
    exec(compile(snippet, page, "exec"), namespace)
    expected = ac.assign(records, "gigpo", gamma=0.95).padded(tensors_of(records).mask)
    assert np.array_equal(expected, namespace["data"].batch["advantages"].numpy())


@pytest.mark.parametrize("page", PAGES)
def test_the_command_line_composes_verls_configuration(page):
    from hydra import compose, initialize_config_module

    (command,) = COMMAND.findall((ROOT / page).read_text())
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", shlex.split(command)[3:])
    assert "accredit/gigpo" == config.algorithm.adv_estimator
    assert {"gamma": 0.95} == dict(config.algorithm.accredit)
