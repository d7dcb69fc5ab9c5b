"""A report with a truth: the numbers of `compare`, and the true advantage of each step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import accredit as ac
from accredit.errors import DataError
from accredit.store import save_truth
from accredit.views import report
from tests.against.made import truth_rows
from tests.views.made import made, result, value_result
from tests.views.test_report import Page, page_of

MEASURES = ("rank", "sign", "cosine", "bias", "nmse", "tau")


@pytest.fixture(scope="module")
def case():
    """A batch, two results, and a truth near the second."""
    batch = made()
    noise = np.random.default_rng(1).normal(0, 0.1, batch.n_steps)
    near = value_result(batch)
    return batch, [ac.assign(batch, "grpo"), near], truth_rows(batch, near.steps + noise)


def index_of(credits, tmp_path, **options):
    return page_of(credits, tmp_path, **options).block("index")


def test_the_table_holds_the_numbers_of_compare_to_the_last_digit_best_first(case, tmp_path):
    batch, credits, truth = case
    index = index_of(credits, tmp_path, truth=truth)
    shown = index.head["truth"]
    found = ac.compare(batch, credits, truth=truth).against
    labels = [m["label"] for m in index.head["methods"]]
    assert ["values", "grpo"] == [labels[row["m"]] for row in shown["rows"]]
    theirs = {row.label: row for row in found.rows}
    for row in shown["rows"]:
        for name in MEASURES:
            estimate = getattr(theirs[labels[row["m"]]], name)
            expected = None if estimate is None else [estimate.value, estimate.low, estimate.high]
            assert expected == row[name], name
    assert all(row["rank"][1] < row["rank"][0] < row["rank"][2] for row in shown["rows"])
    sizes = (found.n_steps, found.n_rollouts, found.n_groups, found.n_clear)
    assert sizes == tuple(shown[name] for name in ("steps", "rollouts", "groups", "clear"))
    assert shown["lines"][0] == "Exact truth"


def test_a_file_and_its_rows_give_one_report(case, tmp_path):
    _, credits, truth = case
    path = save_truth(truth, tmp_path / "truth.parquet")
    first = report(credits, tmp_path / "a.html", truth=path)
    assert first.read_bytes() == report(credits, tmp_path / "b.html", truth=truth).read_bytes()


def test_each_step_has_its_true_advantage_beside_it(case, tmp_path):
    _, credits, truth = case
    index = index_of(credits, tmp_path, truth=truth)
    true = truth.numbers["advantage"]
    assert np.allclose(index.arrays["truth"], true, rtol=1e-6)
    assert np.where(np.abs(true) > 0.05, 2, 1).tolist() == index.arrays["truth_sure"].tolist()
    assert "truth_se" not in index.arrays
    assert len(index.head["truth"]["worst"]) == len(credits)


def test_the_steps_that_are_linked_are_those_furthest_from_the_truth(case, tmp_path):
    batch, credits, truth = case
    head = index_of(credits, tmp_path, truth=truth).head
    credit, true = credits[1].steps, truth.numbers["advantage"]
    gap = np.abs(credit / np.sqrt(np.mean(credit**2)) - true / np.sqrt(np.mean(true**2)))
    assert int(np.argmax(gap)) == head["truth"]["worst"][1][0]
    told = page_of(credits, tmp_path, truth=truth).block("g0").head["methods"][1]["explain"]
    first = [s for s in head["truth"]["worst"][1] if s < batch.step_start_R1[8]]
    assert {str(s) for s in first} <= told.keys()


def test_without_a_truth_the_page_is_as_it_was(case, tmp_path):
    _, credits, truth = case
    without = index_of(credits, tmp_path)
    assert "truth" not in without.head
    assert not [name for name in without.arrays if name.startswith("truth")]
    with_it = index_of(credits, tmp_path, truth=truth)
    assert {"truth"} == with_it.head.keys() - without.head.keys()
    assert {"truth", "truth_sure"} == with_it.arrays.keys() - without.arrays.keys()


def test_steps_without_a_known_truth_are_left_out_and_counted(case, tmp_path):
    batch, credits, truth = case
    rows = truth_rows(batch, truth.numbers["advantage"], drop=range(50))
    index = index_of(credits, tmp_path, truth=rows)
    shown = index.head["truth"]
    assert batch.n_steps - 50 == shown["steps"]
    assert "50 steps have no known truth" in shown["lines"]
    assert not index.arrays["truth_sure"][:50].any()
    assert not index.arrays["truth"][:50].any()
    assert index.arrays["truth_sure"][50:].all()
    assert min(s for steps in shown["worst"] for s in steps) >= 50


def test_a_truth_of_other_rollouts_is_refused_and_nothing_is_written(case, tmp_path):
    _, credits, truth = case
    others = replace(truth, rollout=tuple(f"x{name}" for name in truth.rollout))
    with pytest.raises(DataError, match="its rollouts are others, 'xg00-r00' for one; these have 'g00-r00'"):
        report(credits, tmp_path / "report.html", truth=others)
    assert [] == list(tmp_path.iterdir())
    with pytest.raises(DataError, match="cannot be read"):
        report(credits, tmp_path / "report.html", truth=tmp_path / "missing.parquet")


def test_a_sign_within_the_error_of_continuations_is_not_judged(case, tmp_path):
    batch, credits, _ = case
    true = np.resize([0.3, 0.3, 0.01], batch.n_steps)
    se = np.resize([0.1, 0.2, 0.001], batch.n_steps)
    header = {"kind": "monte_carlo", "continuations": 8, "verdict": "Not truth: few."}
    rows = truth_rows(batch, true, se=se, n=8, source="monte_carlo", header=header)
    index = index_of(credits, tmp_path, truth=rows)
    assert [2, 1, 1] == index.arrays["truth_sure"][:3].tolist()
    assert np.allclose(index.arrays["truth_se"], se)
    lines = index.head["truth"]["lines"]
    assert ["Monte carlo truth, 8 continuations a side", "Not truth: few."] == lines[:2]
    assert "reliable" in lines[2]


def test_rollouts_that_a_method_did_not_count_are_not_judged(tmp_path):
    rows = [
        {
            "id": f"r{r}",
            "group": "g",
            "reward": None if r == 0 else float(r % 2),
            "steps": [{"action": "a"}] * 2,
        }
        for r in range(5)
    ]
    credit = ac.assign(rows, "grpo")
    truth = truth_rows(credit.batch, np.array([9.0, -9, 0.1, 0.2, 0.1, -0.1, 0.2, 0.1, 0.3, 0.4]))
    index = index_of(credit, tmp_path, truth=truth)
    assert (8, 4) == (index.head["truth"]["steps"], index.head["truth"]["rollouts"])
    assert not {0, 1} & {s for steps in index.head["truth"]["worst"] for s in steps}
    assert [2, 2] == index.arrays["truth_sure"][:2].tolist()  # what is known is shown all the same


def test_what_a_truth_file_says_is_made_harmless(case, tmp_path):
    _, credits, truth = case
    said = "</script><script>window.pwned = 1</script>\x1b[31m\u202e" + "long " * 500
    header = {"kind": said, "world": said, "policy": said, "verdict": said}
    page = page_of(credits, tmp_path, truth=replace(truth, header=header))
    told = "".join(page.block("index").head["truth"]["lines"])
    assert not set(told) & set("\x1b\u202e")
    assert len(told) < 1500
    assert page.text.count("<script>") == 1


def test_credit_and_truth_too_large_for_float32_still_open(tmp_path):
    batch = made()
    credit = result(batch, np.full(batch.n_steps, 1e40), "huge")
    index = index_of(credit, tmp_path, truth=truth_rows(batch, np.full(batch.n_steps, -1e40), se=1e39))
    assert all(np.isfinite(index.arrays[name]).all() for name in ("truth", "truth_se", "credit.0"))


def test_a_folder_holds_the_truth_of_all_its_pages(tmp_path, monkeypatch):
    monkeypatch.setattr("accredit.views.write.FOLDER_PAST", 40)
    monkeypatch.setattr("accredit.views.write.PART_ROLLOUTS", 16)
    monkeypatch.setattr("accredit.views.write.SAMPLED_ROLLOUTS", 10)
    batch = made(groups=7, rollouts=8)
    credit = ac.assign(batch, "gigpo")
    true = credit.steps + np.linspace(-1, 1, batch.n_steps)
    index_path = report(credit, tmp_path / "all.html", truth=truth_rows(batch, true))
    parts = [Page(p).block("index") for p in sorted(index_path.parent.glob("part-*.html"))]
    assert np.allclose(np.concatenate([part.arrays["truth"] for part in parts]), true, rtol=1e-6)
    index = Page(index_path).block("index")
    assert all(part.head["truth"]["rows"] == index.head["truth"]["rows"] for part in parts)
    gap = np.abs(credit.steps / np.sqrt(np.mean(credit.steps**2)) - true / np.sqrt(np.mean(true**2)))
    at = index.head["truth"]["worst"][0][0]
    assert float(index.arrays["truth"][at]) == pytest.approx(true[np.argmax(gap)], rel=1e-6)
