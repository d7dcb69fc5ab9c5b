"""`compare(truth=...)`: the benchmark's measures on the user's own rollouts."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import accredit as ac
from accredit.agreement import RESAMPLES
from accredit.benchmark.recorded import recorded
from accredit.cli import run
from accredit.errors import DataError
from accredit.store.truth import save_truth
from accredit.views.comparison_tables import comparison_text
from tests.against.made import truth_rows

GROUPS, SIZE, LENGTH = 12, 4, 5


def _rollouts(seed=0):
    rng = np.random.default_rng(seed)
    return [
        {
            "id": f"g{g}r{r}",
            "group": f"g{g}",
            "reward": float(rng.integers(2)),
            "steps": [
                {"state": f"s{rng.integers(3)}", "action": f"a{rng.integers(2)}"} for _ in range(LENGTH)
            ],
        }
        for g in range(GROUPS)
        for r in range(SIZE)
    ]


@pytest.fixture
def batch():
    return ac.Batch.from_records(_rollouts())


def test_a_credit_that_is_the_truth_scores_perfectly(batch):
    credit = ac.assign(batch, "gigpo")
    found = ac.compare(batch, ["grpo", credit], truth=truth_rows(batch, credit.steps), n_boot=200).against
    grpo, own = found.rows
    assert own.nmse.value == pytest.approx(0, abs=1e-12)
    assert own.numbers["tau"] == pytest.approx(1)
    assert own.numbers["sign"] == 1.0
    assert (0.0, 0.0) == (grpo.numbers["tau"], grpo.tau.value)
    assert grpo.nmse.value == pytest.approx(grpo.numbers["nmse"])
    assert grpo.nmse.low <= grpo.nmse.value <= grpo.nmse.high
    assert (found.reliability.whole, found.reliability.basis) == (1.0, "exact")


def test_reliability_is_what_two_noisy_references_show(batch):
    rng = np.random.default_rng(5)
    true = np.zeros(batch.n_steps) + rng.normal(size=batch.n_steps)
    first, second = (true + rng.normal(0, 0.7, true.size) for _ in range(2))
    found = ac.compare(
        batch, ["grpo"], truth=truth_rows(batch, first, se=0.7, n=8, source="mc"), n_boot=0
    ).against
    assert found.reliability.whole == pytest.approx(np.corrcoef(first, second)[0, 1], abs=0.1)
    assert found.reliability.ceiling == pytest.approx(np.corrcoef(first, true)[0, 1], abs=0.06)
    rho = found.reliability.halves
    assert found.reliability.whole == pytest.approx(2 * rho / (1 + rho))


def test_unknown_steps_are_counted_and_left_out(batch):
    steps = ac.assign(batch, "gigpo").steps
    found = ac.compare(batch, ["gigpo"], truth=truth_rows(batch, steps, drop=range(7)), n_boot=0).against
    assert (7, batch.n_steps - 7) == (found.unknown, found.n_steps)


def test_a_reference_without_errors_says_that_its_reliability_is_unknown(batch):
    steps = ac.assign(batch, "gigpo").steps
    found = ac.compare(batch, ["gigpo"], truth=truth_rows(batch, steps, source="mc"), n_boot=0)
    assert found.against.reliability is None
    assert "reliability is unknown" in comparison_text(found.to_dict())


def test_a_truth_of_other_rollouts_is_refused_before_the_methods_run(batch, monkeypatch):
    other = ac.Batch.from_records([{**r, "id": "x" + r["id"]} for r in _rollouts()])
    monkeypatch.setattr("accredit.comparison.run.assign", None)
    with pytest.raises(DataError, match=r"ACC834: .* its rollouts are others, 'xg0r0' .* 'g0r0'"):
        ac.compare(batch, ["grpo"], truth=truth_rows(other, np.ones(other.n_steps)), n_boot=0)


def test_a_truth_that_knows_no_advantage_does_not_speak_of_other_rollouts(batch):
    rows = truth_rows(batch, np.ones(batch.n_steps))
    rows.known["advantage"][:] = False
    with pytest.raises(DataError, match="ACC834") as told:
        ac.compare(batch, ["grpo"], truth=rows, n_boot=0)
    assert "others" not in str(told.value)


def test_a_truth_of_rollouts_that_a_method_left_out_is_refused_with_the_reason():
    records = _rollouts()
    records[0] |= {"reward": None}
    batch = ac.Batch.from_records(records)
    rows = truth_rows(batch, np.ones(batch.n_steps), drop=range(LENGTH, batch.n_steps))
    with pytest.raises(DataError, match="some method left out each rollout of the 5 steps"):
        ac.compare(batch, ["grpo"], truth=rows, n_boot=0)


def test_what_the_truth_says_of_itself_is_told(batch):
    header = {"kind": "monte_carlo", "world": "rooms:1", "verdict": "Not truth: too few.", "other": {}}
    rows = truth_rows(batch, ac.assign(batch, "gigpo").steps, se=0.1, n=8, source="mc", header=header)
    found = ac.compare(batch, ["grpo"], truth=rows, n_boot=0)
    assert {"kind", "world", "verdict"} == found.against.about.keys()
    told = comparison_text(found.to_dict()).splitlines()
    assert {"Monte carlo truth of rooms:1", "Not truth: too few."} <= set(told)


def test_the_kind_is_the_source_of_the_rows_where_the_file_does_not_tell_it(batch):
    rows = truth_rows(batch, np.arange(batch.n_steps))
    assert {"kind": "exact"} == ac.compare(batch, ["grpo"], truth=rows, n_boot=0).against.about


def test_the_numbers_by_group_are_those_of_bench(batch):
    """`compare --truth`, the report and docs/benchmark.md show one number under one name."""
    rows = truth_rows(batch, ac.assign(batch, "gigpo").steps + np.linspace(-1, 1, batch.n_steps))
    found = ac.compare(batch, ["grpo", "crbc"], truth=rows, n_boot=RESAMPLES).against
    theirs = {row.method: row for row in recorded(batch, rows, ["grpo", "crbc"]).rows}
    for row in found.rows:
        for name in ("rank", "sign", "cosine", "bias"):
            assert getattr(theirs[row.label], name) == getattr(row, name)
    assert found.rows[0].rank.low < found.rows[0].rank.value < found.rows[0].rank.high
    assert found.n_clear == sum(abs(a) > 0.05 for a in rows.numbers["advantage"])


@pytest.mark.parametrize("name", ["truth.parquet", "truth.jsonl"])
def test_the_command_line_measures_against_a_file(batch, tmp_path, capsys, name):
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_text("\n".join(map(json.dumps, _rollouts())), encoding="utf-8")
    path = save_truth(
        truth_rows(batch, ac.assign(batch, "gigpo").steps, se=0.1, n=16, source="mc"), tmp_path / name
    )
    args = ["compare", str(rollouts), "-m", "grpo", "-m", "gigpo", "--truth", str(path), "--boot", "50"]
    assert run(args) == 0
    shown = capsys.readouterr().out
    near = shown.split("Against the truth of 240 steps, 48 rollouts, 12 groups\n")[1].splitlines()
    assert ["rank correlation", "sign", "gradient cosine", "bias"] == [
        name for name in re.split(r"\s{2,}", near[0])[1:] if name != "95 %"
    ]
    assert ["gigpo", "grpo"] == [line.split()[0] for line in near[1:3]]  # best first
    assert "reliable" in shown
    assert run([*args, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["truth"]["rows"][1]["numbers"]["nmse"] == pytest.approx(0, abs=1e-9)
