"""Two processes share a generation batch of TRL, and one of its groups lies on both."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import accredit as ac

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

ROOT = Path(__file__).parents[3]
PER_PROCESS, PROCESSES, GROUP = 6, 2, 4
CODE = f"""
import sys, torch
from tests.slow.trl import tiny

class Watched(tiny.Trainer):
    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        rank = self.accelerator.process_index
        own = list(self._logs["advantages"])[rank * {PER_PROCESS} : (rank + 1) * {PER_PROCESS}]
        tiny.torch.save(
            dict(
                own=own,
                advantages=output["advantages"],
                mask=output["completion_mask"] * output.get("tool_mask", 1),
                steps=self.last_credit.by_rollout(),
                records=list(self.last_credit.batch.records()),
            ),
            f"{{sys.argv[1]}}/{{self._accredit.card.id}}-{{rank}}.pt",
        )
        return output

for credit, options, more in (
    ("grpo", dict(compat="trl"), dict()),
    ("gigpo", dict(), dict(rollout_func=tiny.two_turns)),
):
    reward = tiny.sum_of_steps if more else tiny.noise
    made = tiny.trainer(
        sys.argv[1], credit, kind=Watched, options=options, rewards=reward, more=more,
        per_device_train_batch_size={PER_PROCESS}, max_steps=1, ddp_backend="gloo",
    )
    assert made.accelerator.num_processes == {PROCESSES}
    made.train()
torch.distributed.destroy_process_group()
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    script = folder / "script.py"
    script.write_text(CODE)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={PROCESSES}"]
    done = subprocess.run(
        [*launch, str(script), str(folder)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert 0 == done.returncode, done.stderr[-3000:]
    return {
        method: [torch.load(folder / f"{method}-{rank}.pt", weights_only=False) for rank in range(PROCESSES)]
        for method in ("grpo", "gigpo")
    }


def test_every_process_gets_trls_advantages_of_its_own_rows(both):
    for held in both["grpo"]:
        expected = torch.tensor(held["own"])[:, None] * held["mask"]
        assert expected.abs().max() > 0.2
        assert torch.allclose(expected, held["advantages"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", ["grpo", "gigpo"])
def test_both_processes_hold_the_credit_of_the_whole_batch(both, method):
    one, other = (np.concatenate(held["steps"]) for held in both[method])
    assert PER_PROCESS * PROCESSES == len(both[method][0]["steps"])
    assert np.array_equal(one, other)


def test_credit_of_steps_reaches_the_process_that_holds_the_row(both):
    records = both["gigpo"][0]["records"]
    assert [GROUP] * 3 == np.bincount(
        [list(dict.fromkeys(r["group"] for r in records)).index(r["group"]) for r in records]
    ).tolist()
    expected = np.array([c.tolist() for c in ac.assign(records, "gigpo").by_rollout()])
    found = torch.cat([held["advantages"] for held in both["gigpo"]]).numpy()
    assert np.allclose(expected, found[:, [0, 3]], rtol=1e-6, atol=1e-6)
    assert not found[:, 2].any()
