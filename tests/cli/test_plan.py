"""``accredit plan``: what it prints, writes and returns."""

from __future__ import annotations

import json

from tests.test_planning import outcomes


def test_the_verb_prints_odds_and_writes_json(accredit, write):
    path = write(outcomes([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1]]))
    done = accredit("plan", path, "-m", "grpo", "-m", "reinforce-pp")
    assert 0 == done.code
    for said in (
        "With 4 rollouts a group: P(no signal) = ",
        "Wasted here: 4 of 12 rollouts (33 %)",
        "all fail",
    ):
        assert said in done.out
    told = accredit("plan", path, "--json").json()
    assert "accredit.plan/1" == told["schema"]
    assert {"value", "low", "high"} == set(told["sizes"][0]["tie"])
    assert json.dumps(told, allow_nan=False)


def test_the_verb_takes_rates_alone_and_refuses_nothing_at_all(accredit):
    done = accredit("plan", "--success-rate", "0.2", "--group-size", "8")
    assert (0, True) == (done.code, "P(no signal) = 17 %" in done.out)
    assert 2 == accredit("plan").code
    assert 2 == accredit("plan", "--success-rate", "2").code
    assert 3 == accredit("plan", "nowhere.jsonl").code


def test_the_verb_groups_by_position_as_others_do(accredit, write):
    records = [{**r, "group": None} for r in outcomes([[1, 1, 0, 0], [0, 0, 0, 0]])]
    told = accredit("plan", write(records), "--group-size", "4", "--json").json()
    assert (4, 2) == (told["size"], told["waste"]["of_groups"])


def test_the_verb_ends_with_1_where_a_named_method_could_not_run(accredit, write):
    path = write(outcomes([[1, 1], [0, 1]]))
    assert 1 == accredit("plan", path, "-m", "remax").code
