"""Tokens and signals: what cannot be, and what is not everywhere."""

from __future__ import annotations

import math

import accredit as ac
from tests.findings.planted import clean


def _codes(records, **options):
    return set(ac.check(records, **options).by_code())


def test_probabilities_given_as_logprobs_are_told():
    records = clean()
    for record in records:
        for step in record["steps"]:
            step["logprobs"] = [0.9, 0.1]
    (found,) = ac.check(records).by_code()["ACC305"]
    assert 96 == found.count
    assert "they look like probabilities" in found.message


def test_a_logprob_rounded_to_just_above_0_is_clean():
    records = clean()
    records[0]["steps"][0]["logprobs"] = [1e-4, -1.0]
    assert set() == _codes(records)


def test_gaps_of_several_signals_are_told_apart():
    records = clean()
    for name in ("value", "logprobs"):
        del records[0]["steps"][1][name]
    found = ac.check(records).by_code()["ACC313"]
    assert [
        "1 of 48 steps without logprob, which others have",
        "1 of 48 steps without value, which others have",
    ] == [f.message for f in sorted(found, key=lambda f: f.message)]


def test_steps_of_the_environment_need_no_logprobs():
    records = clean()
    for name in ("tokens", "logprobs", "entropies"):
        del records[0]["steps"][1][name]
    assert "logprob" not in " ".join(f.message for f in ac.check(records))


def test_values_may_lie_a_little_outside_the_returns():
    records = clean()
    records[0]["steps"][0]["value"] = 1.9
    assert set() == _codes(records)
    records[0]["steps"][0]["value"] = 2.1
    assert {"ACC315"} == _codes(records)


def test_values_of_tokens_and_final_states_are_judged_too():
    records = clean()
    for record in records:
        record["final_value"] = 0.5
        for step in record["steps"]:
            step["token_values"] = [0.5, 0.5]
    assert set() == _codes(records)
    records[3]["final_value"] = -40.0
    records[3]["steps"][2]["token_values"] = [0.5, 40.0]
    found = ac.check(records).by_code()["ACC315"]
    assert {"rollout 'g0-r3'", "rollout 'g0-r3' step 2"} == {f.where for f in found}


def test_numbers_and_absences_are_one_kind():
    records = clean()
    for record in records[1:]:
        record["steps"][0]["progress"] = 0.5
    assert set() == _codes(records)


def test_negative_ids_in_a_prompt_are_found():
    records = clean()
    records[2]["steps"][1]["context_tokens"] = [1, -1]
    (found,) = ac.check(records).by_code()["ACC310"]
    assert "rollout 'g0-r2' step 1" == found.where


def test_a_mask_that_leaves_some_tokens_is_only_told():
    records = clean()
    records[0]["trainable"] = False
    report = ac.check(records)
    assert report.ok
    assert 3 == report.by_code()["ACC317"][0].count


def test_rejected_rollouts_are_not_counted_again_as_untrained():
    records = clean()
    records[0]["status"] = "rejected"
    assert {"ACC207"} == _codes(records)


def test_every_signal_that_is_not_a_number_is_named():
    records = clean()
    records[0]["steps"][0] |= {"value": math.nan, "entropies": [math.inf, 1.0]}
    (found,) = ac.check(records).by_code()["ACC306"]
    assert (2, {"signal 'value'", "signal 'entropies'"}) == (found.count, set(found.examples))
