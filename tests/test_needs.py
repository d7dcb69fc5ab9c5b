"""What a method needs, and who makes it."""

from __future__ import annotations

import dataclasses

import pytest

import accredit as ac
from accredit.data import Batch
from accredit.data.vocabulary import STEP_FIELDS
from accredit.engine import missing_needs
from accredit.methods import get_method


def lacking(step, need):
    card = dataclasses.replace(get_method("grpo")[0].card, needs=frozenset({need}))
    return missing_needs(Batch.from_records([{"id": "a", "group": "g", "steps": [step]}]), card)


def test_any_perturbation_meets_the_need_of_perturbed_logprobs():
    need = "perturbed_logprobs"
    assert [] == lacking({"perturbed_logprobs": {"mask": [-1.0]}}, need)
    assert [need] == lacking({"logprobs": [-1.0]}, need)
    assert [need] == lacking({"perturbed_logprobs": {"mask": None}, "n_tokens": 1}, need)


@pytest.mark.parametrize("need", ["hidden", "student_logits", "fisher_moments"])
def test_vectors_of_tokens_meet_their_need(need):
    assert [] == lacking({need: [[0.5, 1.0]]}, need)
    assert [need] == lacking({"logprobs": [-1.0]}, need)


def test_missing_signal_names_the_command_that_makes_it():
    records = [{"id": n, "group": "g", "reward": 1, "steps": [{"n_tokens": 1}]} for n in "ab"]
    with pytest.raises(ac.AccreditError, match="accredit probe FILE --model MODEL --want logprob"):
        ac.assign(records, "gaca")
    made = [
        f for f in STEP_FIELDS.values() if f.kind in ("vectors", "signals") or f.name.startswith("logprobs")
    ]
    assert all("accredit probe FILE --model MODEL" in f.probe for f in made)


def test_named_signals_are_not_taken_for_a_misspelling():
    step = {"tokens": [1], "perturbed_logprobs": {"x": [-1.0]}}
    assert "ACC124" not in [f.code for f in ac.check([{"id": "a", "group": "g", "steps": [step]}]).findings]
