"""`compare(truth=...)`: the benchmark's measures on the user's own rollouts."""

from __future__ import annotations

import json

import numpy as np
import pytest

import accredit as ac
from accredit.cli import run
from accredit.errors import DataError
from accredit.store.truth import NUMBERS, Truth, save_truth
from accredit.views.comparison_tables import comparison_text

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


def _truth(batch, advantage, *, se=None, n=None, source="exact", drop=()):
    rows = [(batch.ids[r], t, s) for r in range(len(batch)) for t, s in enumerate(batch.steps_of(r))]
    rows = [row for row in rows if row[2] not in drop]
    at = [s for _, _, s in rows]
    zero = np.zeros(len(rows))
    numbers = dict.fromkeys(NUMBERS, zero) | {"advantage": advantage[at]}
    known = {name: zero.astype(bool) for name in NUMBERS} | {"advantage": zero == 0}
    if se is not None:
        numbers["se"], known["se"] = np.full(len(rows), se), zero == 0
    return Truth(
        tuple(r for r, _, _ in rows),
        tuple(t for _, t, _ in rows),
        numbers,
        known,
        (n or 0,) * len(rows),
        (source,) * len(rows),
        {},
    )


@pytest.fixture
def batch():
    return ac.Batch.from_records(_rollouts())


def test_a_credit_that_is_the_truth_scores_perfectly(batch):
    credit = ac.assign(batch, "gigpo")
    found = ac.compare(batch, ["grpo", credit], truth=_truth(batch, credit.steps), n_boot=200).against
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
        batch, ["grpo"], truth=_truth(batch, first, se=0.7, n=8, source="mc"), n_boot=0
    ).against
    assert found.reliability.whole == pytest.approx(np.corrcoef(first, second)[0, 1], abs=0.1)
    assert found.reliability.ceiling == pytest.approx(np.corrcoef(first, true)[0, 1], abs=0.06)
    rho = found.reliability.halves
    assert found.reliability.whole == pytest.approx(2 * rho / (1 + rho))


def test_unknown_steps_are_counted_and_left_out(batch):
    steps = ac.assign(batch, "gigpo").steps
    found = ac.compare(batch, ["gigpo"], truth=_truth(batch, steps, drop=range(7)), n_boot=0).against
    assert (7, batch.n_steps - 7) == (found.unknown, found.n_steps)


def test_a_reference_without_errors_says_that_its_reliability_is_unknown(batch):
    steps = ac.assign(batch, "gigpo").steps
    found = ac.compare(batch, ["gigpo"], truth=_truth(batch, steps, source="mc"), n_boot=0)
    assert found.against.reliability is None
    assert "reliability is unknown" in comparison_text(found.to_dict())


def test_a_truth_of_other_rollouts_is_refused(batch):
    other = ac.Batch.from_records([{**r, "id": "x" + r["id"]} for r in _rollouts()])
    with pytest.raises(DataError, match="ACC834"):
        ac.compare(batch, ["grpo"], truth=_truth(other, np.ones(other.n_steps)), n_boot=0)


@pytest.mark.parametrize("name", ["truth.parquet", "truth.jsonl"])
def test_the_command_line_measures_against_a_file(batch, tmp_path, capsys, name):
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_text("\n".join(map(json.dumps, _rollouts())), encoding="utf-8")
    path = save_truth(
        _truth(batch, ac.assign(batch, "gigpo").steps, se=0.1, n=16, source="mc"), tmp_path / name
    )
    args = ["compare", str(rollouts), "-m", "grpo", "-m", "gigpo", "--truth", str(path), "--boot", "50"]
    assert run(args) == 0
    shown = capsys.readouterr().out
    assert "Against the truth of 240 steps" in shown
    assert "reliable" in shown
    assert run([*args, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["truth"]["rows"][1]["numbers"]["nmse"] == pytest.approx(0, abs=1e-9)
