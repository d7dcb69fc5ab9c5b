"""A DataProto of the real verl: written by the page's own lines, read back, and credited as inside verl."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import accredit as ac
from accredit.adapters.padded import pad_credit
from accredit.errors import DataError
from tests.slow.verl.test_adapter import SINGLE, config_of, proto

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

PAGE = Path(__file__).parents[3] / "docs" / "formats.md"


def _written(data, folder, monkeypatch):
    """Run the lines of the page in a folder."""
    monkeypatch.chdir(folder)
    [lines] = re.findall(r"```python title=\"verl\"\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(lines, {"data": data})
    return folder / "batch.npz"


@pytest.mark.parametrize(
    ("method", "steps"), [("grpo", True), ("grpo", False), ("reinforce-pp", False), ("gigpo", True)]
)
def test_credit_of_the_file_is_the_credit_inside_verl(tmp_path, monkeypatch, method, steps):
    from verl.trainer.ppo.ray_trainer import compute_advantage

    data = proto(SINGLE, steps=steps)
    batch = ac.read(_written(data, tmp_path, monkeypatch))
    inside = compute_advantage(data, f"accredit/{method}", config=config_of(f"accredit/{method}"))
    mask, tokens = data.batch["response_mask"], data.batch["responses"]
    back = pad_credit(ac.assign(batch, method), mask=mask, tokens=tokens, rollout=batch.ids)
    assert torch.equal(inside.batch["advantages"], back)


def test_a_saved_pickle_is_refused_and_the_mend_reads_it(tmp_path, monkeypatch):
    from verl import DataProto

    data = proto(SINGLE)
    data.save_to_disk(str(tmp_path / "batch.pkl"))
    with pytest.raises(DataError) as caught:
        ac.read(tmp_path / "batch.pkl")
    monkeypatch.chdir(tmp_path)
    mend = caught.value.hint.partition("is installed: ")[2]
    exec(mend, {"DataProto": DataProto, "np": np, "json": json, "path": "batch.pkl"})
    assert len(SINGLE) == len(ac.read(tmp_path / "batch.npz"))


def test_half_precision_and_safetensors_come_back(tmp_path):
    from safetensors.torch import save_file

    data = proto(SINGLE)
    data.batch["old_log_probs"] = data.batch["old_log_probs"].bfloat16()
    save_file({k: v.contiguous() for k, v in data.batch.items()}, tmp_path / "batch.safetensors")
    rest = {k: v.tolist() for k, v in data.non_tensor_batch.items()}
    (tmp_path / "batch.json").write_text(json.dumps(rest, default=str))
    batch = ac.read(tmp_path / "batch.safetensors")
    where = data.batch["response_mask"].bool()
    assert data.batch["old_log_probs"].float()[where].tolist() == batch.logprob_T.tolist()
