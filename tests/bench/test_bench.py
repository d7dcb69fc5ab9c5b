"""The bench runs without verl where it needs none of it, and its page tells the truth."""

import json

import numpy as np
import pytest

from accredit import assign, catalog
from bench import catalogue, inputs
from bench.__main__ import main
from bench.growth import exponent
from bench.inputs import agent_columns, agent_records, every_signal
from bench.sketch import gigpo_sketch
from bench.targets import targets
from bench.timing import Contestant, race
from bench.write_docs import page

ALONE = ("gigpo", "growth", "catalogue", "tokens", "spans")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as quick:  # these figures mean nothing: one call a turn will do
        quick.setattr("bench.timing._calls_a_turn", lambda seconds: 1)
        quick.setattr("bench.timing.gc.collect", lambda: 0)
        main([*ALONE, "--small", "--out", str(out), "--docs", str(out / "page.md")])
    return out


def test_sections_without_verl_run_and_leave_their_results(made):
    results = {f.stem: json.loads(f.read_text()) for f in made.glob("*.json")}
    assert set(ALONE) == set(results)
    assert results["gigpo"]["apart_from_sketch"] < 1e-9


# Methods whose needs no made-up rollout meets, and which needs: each is a gap of the bench.
UNMET: dict[str, list[str]] = {}


def _not_run(made, section):
    """What was not timed: unmet needs by method, and what failed for another reason."""
    rows = [row for row in json.loads((made / f"{section}.json").read_text())["rows"] if "not_run" in row]
    return {r["method"]: r["unmet"] for r in rows if r["unmet"]}, [r for r in rows if not r["unmet"]]


def test_every_method_of_the_catalogue_is_timed_but_those_whose_needs_are_not_made(made):
    """A method that needs one more signal: give it to bench/inputs.py, every_signal."""
    assert (UNMET, []) == _not_run(made, "catalogue")


def test_every_method_with_a_number_a_token_is_timed_but_those_whose_needs_are_not_made(made):
    """A method that needs one more signal: give it to bench/inputs.py, every_signal."""
    unmet, failed = _not_run(made, "tokens")
    assert unmet.items() <= UNMET.items()
    assert [] == failed
    rows = json.loads((made / "tokens.json").read_text())["rows"]
    assert {"eapo", "hapo", "lambda-grpo"} <= {row["method"] for row in rows}
    assert all(row["seconds"]["best_s"] > 0 for row in rows if row["method"] not in UNMET)


def test_signals_are_made_only_for_what_is_needed():
    few = every_signal(20, needs={"entropies|logprobs", "reward|rewards"})
    assert {"entropy_T"} == {name for name in few.columns if name.endswith("_T")}
    assert {"hidden_T", "logprob_T", "continuations_S", "cutpoints_S"} <= set(every_signal(20).columns)


def test_the_page_says_that_small_sizes_are_no_figures_and_what_is_absent(made):
    text = (made / "page.md").read_text()
    assert "their figures mean nothing" in text
    assert "No target was measured." in text
    assert "Not measured in this edition: outcome, memory, reading, parity." in text


def test_sketch_gives_the_credit_of_the_method():
    source = agent_columns(500, 5)
    steps, tokens = gigpo_sketch(source)
    credit = assign(source.batch(), "gigpo")
    np.testing.assert_allclose(credit.steps, steps, atol=1e-9)
    np.testing.assert_allclose(credit.tokens, tokens, atol=1e-9)


@pytest.mark.parametrize("tokens", ["counts", "arrays", "arrays+logprobs", "lists"])
def test_records_hold_the_rollouts_of_the_columns(tokens):
    source = agent_columns(500, 5)
    expected = assign(source.batch(), "gigpo")
    credit = assign(agent_records(source, tokens), "gigpo")
    assert credit.findings == expected.findings
    np.testing.assert_array_equal(expected.tokens, credit.tokens)


def test_exponent_of_a_power_law_is_its_power():
    assert exponent([10, 100, 1000], [0.02 * n**1.5 for n in (10, 100, 1000)]) == pytest.approx(1.5)


def test_a_race_takes_turns_and_makes_the_input_of_each_call_anew():
    calls = []
    timings = race(
        {
            "a": Contestant(lambda given: calls.append(("a", given)), before=object),
            "b": Contestant(lambda given: calls.append(("b", given)), before=object),
        },
        3,
    )
    assert [3, 3] == [len(t.seconds) for t in timings.values()]
    given = [made for _, made in calls]
    assert len(given) == len(set(map(id, given)))


def _growth(slope):
    row = {"method": "grpo", "best_s": [1e-3, 1e-2], "worst_over_best": [1.0, 1.0]}
    row |= {"exponent": slope, "steepest": slope}
    section = {"steps": [1000, 10_000], "tokens_a_step": 13, "n": 7, "rows": [row], "small": False}
    moment, machine = {"date": "2026-01-01 00:00 UTC", "load": 0.1}, {"processor": "p", "cores": 2}
    machine |= {"system": "Linux", "python": "3.11.7", "versions": {"numpy": "2.4.6", "verl": None}}
    return {"growth": section | {"moment": moment, "machine": machine}}


def test_a_missed_target_is_called_missed():
    assert [True] == [t.met for t in targets(_growth(1.04))]
    assert [False] == [t.met for t in targets(_growth(1.104))]  # though it is shown as 1.10
    assert "0 of 1 targets are met." in page(_growth(1.104))
    assert "| **no** |" in page(_growth(1.104))


def test_a_token_method_that_did_not_run_misses_its_target():
    row = {"method": "hapo", "tokens": 10_000_000}
    few = {"too_slow": {"tokens": 9, "seconds": 70.0}}
    rows = [row | {"seconds": {"best_s": s}} for s in (1.5, 2.0)] + [row | few, row | {"not_run": "no"}]
    assert [True, False, False, False] == [t.met for t in targets({"tokens": {"rows": rows}})]


def test_an_unknown_section_is_a_usage_error(capsys):
    with pytest.raises(SystemExit):
        main(["gigqo"])
    assert "no section gigqo; there are outcome, parity" in capsys.readouterr().err


def test_a_method_whose_needs_are_not_made_is_listed_with_them(monkeypatch):
    monkeypatch.setattr(inputs, "_continued", lambda rng, plain: {})
    (card,) = [card for card in catalog() if card.id == "vineppo"]
    row = catalogue._row(card, [24], [every_signal(24)], 3)
    assert row["unmet"] == ["continuations"]
    assert "needs continuations" in row["not_run"]
