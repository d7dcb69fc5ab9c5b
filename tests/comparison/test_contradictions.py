"""Methods with opposite rules are told when they are compared."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import accredit as ac
from accredit.comparison.measured import measured
from accredit.methods import catalog, contradictions
from accredit.methods._contradictions import OPPOSED

ROLLOUTS = [
    {"id": n, "group": "g", "reward": r, "steps": [{"entropies": [0.1, 1.5]}, {"entropies": [0.4]}]}
    for n, r in (("a", 1), ("b", 0))
]
FAILURES = "Opposite rules for uncertain decisions of failures: blamed more by hapo, blamed less by eapo"


def test_hapo_and_eapo_contradict_each_other_on_failures_only():
    found = ac.compare(ROLLOUTS, ["grpo", "hapo", "eapo"], n_boot=0)
    assert found.notes[0] == FAILURES
    assert len(found.notes) == 2
    assert list(found.notes) == found.to_dict()["notes"]
    assert FAILURES in repr(found)
    assert "--truth" in repr(found)


def test_who_gave_the_truth_is_not_told_to_give_it(tmp_path):
    truth = tmp_path / "truth.jsonl"
    rows = [{"rollout": n, "step": t, "advantage": a} for n, a in (("a", 0.5), ("b", -0.5)) for t in (0, 1)]
    truth.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = ac.compare(ROLLOUTS, ["hapo", "eapo"], n_boot=0, truth=truth)
    assert FAILURES in repr(found)
    assert "--truth" not in repr(found)


def test_empg_contradicts_hapo_on_both():
    notes = ac.compare(ROLLOUTS, ["hapo", "empg"], n_boot=0).notes
    assert 4 == len(notes)
    assert "credited more by hapo, credited less by empg" in notes[1]


def test_opposite_rules_come_with_what_the_benchmark_measured():
    """The numbers are those of the page of results."""
    found = ac.compare(ROLLOUTS, ["grpo", "hapo", "eapo"], n_boot=0).notes[1]
    page = (Path(__file__).parents[2] / "docs" / "benchmark.md").read_text(encoding="utf-8")
    line = next(row for row in page.splitlines() if row.startswith("| all rules | 0.5 |"))
    hapo, eapo = (cell.strip() for cell in line.split("|")[3:5])
    assert found.startswith("Inside failed rollouts")
    assert found.endswith(f"hapo {hapo}, eapo {eapo}")
    for method in ("hapo", "eapo"):
        notes = (Path(__file__).parents[2] / "docs" / "methods" / f"{method}.md").read_text(encoding="utf-8")
        assert f"| {hapo} | {eapo} |" in notes


def test_a_method_that_was_not_measured_has_no_number():
    cards = {c.id: c for c in catalog() if c.id in ("hapo", "eapo")}
    new = dataclasses.replace(cards["hapo"], id="brand-new")
    (told,) = measured({**cards, "brand-new": new})
    assert "eapo 0." in told
    assert "brand-new" not in told


def test_methods_without_opposite_rules_have_no_note():
    found = ac.compare(ROLLOUTS, ["hapo", "entropy-top", "grpo"], n_boot=0)
    assert () == found.notes
    assert "Opposite" not in repr(found)


def test_a_method_that_cannot_run_is_no_party():
    bare = [{"id": n, "group": "g", "reward": r, "steps": [{}]} for n, r in (("a", 1), ("b", 0))]
    assert () == ac.compare(bare, ["grpo", "hapo", "eapo"], n_boot=0).notes


def test_no_card_claims_both_sides():
    for card in catalog():
        for (more, _), (less, _), _ in OPPOSED:
            assert not {more, less} <= card.tags, card.id


def test_labels_name_the_parties():
    cards = {f"{c.id} (2)": c for c in catalog() if c.id in ("hapo", "eapo")}
    assert "hapo (2)" in contradictions(cards)[0]
