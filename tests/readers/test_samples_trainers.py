"""Real files of other people's trainers and data sets: their README's right answers.

The files are not part of the project. They lie beside a working checkout, at ``../shared/samples``; the
look-alikes of the other modules hold the same traps.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from accredit import assign
from accredit.readers import read
from tests.readers.lookalikes import codes, column, of, rewards, steps

SAMPLES = Path(__file__).parents[2] / ".." / "shared" / "samples"
pytestmark = pytest.mark.skipif(
    not SAMPLES.is_dir(),
    reason="THE REAL SAMPLE FILES ARE ABSENT: ../shared/samples beside the repository is not there, so only "
    "look-alikes of our own making were read",
)


def sample(name):
    return read(SAMPLES / name)


def untokened(batch):
    return batch.n_tokens == 0 and not batch.has("logprob_T")


# -- prime-rl and verifiers ---------------------------------------------------------------------


def test_h4y9_is_two_groups_of_eight_and_the_trainers_advantage_is_reproduced():
    batch = sample("prime-rl-samples/h4y9/results.jsonl")
    assert [2, 2, 2, 2, 3, 3, 5, 4, 2, 2, 2, 2, 2, 2, 2, 4] == steps(batch)
    assert 41 == batch.n_steps
    assert [0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1] == rewards(batch)
    assert [8, 8] == np.bincount(batch.group_R).tolist()
    assert "ACC861" in codes(batch)
    found = [credit[0] for credit in assign(batch, "dr-grpo").by_rollout()]
    assert column(batch, "advantage_R") == pytest.approx(found, rel=1e-12)
    assert untokened(batch)


def test_h4y9_ends_in_turns_known_by_their_reasoning():
    batch = sample("prime-rl-samples/h4y9/results.jsonl")
    last = batch.step_start_R1[1:] - 1
    records = list(batch.records())
    assert all(column(batch, "action_S")[s] for s in last)
    assert 16 == len(records)


def test_iiy6_reproduces_the_trainers_advantage_but_for_the_group_cut_by_paging():
    batch = sample("prime-rl-samples/iiy6/results.jsonl")
    assert [1] * 25 == steps(batch)
    assert ["40"] * 25 == column(batch, "policy_version_R")
    assert [8, 8, 8, 1] == np.bincount(batch.group_R).tolist()
    means = [np.mean(batch.reward_R[batch.group_R == g]) for g in range(3)]
    assert [1.7425, 1.6125, 1.7575] == pytest.approx(means)
    theirs = column(batch, "advantage_R")
    found = [credit[0] for credit in assign(batch, "dr-grpo").by_rollout()]
    assert theirs[:24] == pytest.approx(found[:24], abs=2e-7)
    assert -0.0075 == pytest.approx(theirs[24], abs=2e-7)
    [cut] = [f for f in batch.findings if f.code == "ACC857"]
    assert "1 groups hold fewer rollouts than the run's 8" in cut.message


def test_a_hosted_runs_folder_leaves_its_settings_out():
    batch = sample("prime-rl-samples")
    assert 41 == len(batch)
    assert 6 == batch.n_groups


def test_math_python_is_five_groups_of_three():
    batch = sample("verifiers/math-python-578769a7/results.jsonl")
    assert [3, 2, 4, 2, 3, 3, 2, 3, 2, 4, 4, 2, 3, 2, 6] == steps(batch)
    assert [1.0] * 5 + [0.0] + [1.0] * 9 == rewards(batch)
    assert [3] * 5 == np.bincount(batch.group_R).tolist()
    assert untokened(batch)
    for r, record in enumerate(batch.records()):
        calls = sum(s["action"].count('{"code":') for s in record["steps"])
        assert record["metadata"]["total_tool_calls"] == calls, r


# -- step labels --------------------------------------------------------------------------------


def test_math_shepherd_has_the_signs_of_its_labels():
    batch = sample("step-labels/math-shepherd.jsonl")
    assert [5, 3, 2, 5, 5, 2, 3] == steps(batch)
    signs = ["".join("-+"[int(v)] for v in of(batch, name, "label_S")) for name in batch.ids]
    assert ["++++-", "---", "--", "-----", "+----", "--", "---"] == signs


def test_prm800k_has_a_step_for_each_rated_one_and_keeps_the_siblings():
    batch = sample("step-labels/prm800k.jsonl")
    assert [6, 7, 5, 7, 9, 12] == steps(batch)
    ends = [record["metadata"]["label"]["finish_reason"] for record in batch.records()]
    assert ["solution", "found_error", "solution", "solution", "give_up", "solution"] == ends
    assert [None] * 6 == rewards(batch)
    assert [1, None, 1, 1, 1, 1] == of(batch, batch.ids[0], "label_S")
    assert 5 == len(of(batch, batch.ids[0], "metadata_S")[1]["completions"])
    assert None is of(batch, batch.ids[4], "label_S")[8]


def test_math_aps_trees_have_a_rollout_a_leaf_and_their_roots_values():
    batch = sample("step-labels/math-aps-tree.jsonl")
    assert [137, 85, 20] == np.bincount(batch.group_R).tolist()
    firsts = [batch.steps_of(int(np.argmax(batch.group_R == g)))[0] for g in range(3)]
    assert [0.9375, 0.75, 0.25] == [column(batch, "value_S")[s] for s in firsts]
    assert all((32 * v).is_integer() for v in column(batch, "value_S"))
    assert untokened(batch)
    nodes = [1, 1, 1]
    for r, g in enumerate(batch.group_R):
        fork = column(batch, "fork_step_R")[r]
        nodes[g] += steps(batch)[r] - int(fork or 0)
    assert [143, 90, 24] == nodes
