"""A credit travels between processes, and nobody can write into it."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import dataclass

import numpy as np
import pytest

import accredit as ac
from accredit.battery import Subject
from accredit.data import Parts
from accredit.methods import _registry
from tests.methods.test_battery import ALL

RECORDS = [
    {"id": "a", "group": "g", "reward": 1, "steps": [{"state": "s", "n_tokens": 2}, {"state": "t"}]},
    {"id": "b", "group": "g", "reward": 0, "steps": [{"state": "s", "n_tokens": 1}]},
]


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_a_credit_of_every_method_survives_a_pickle_with_its_tokens_and_explanations(case):
    """Explainers are local functions: no credit could be pickled, and no worker could return one."""
    subject = Subject(case.name, case.params, 0, case.decorate)
    credit = subject.run(subject.records("ragged"))
    if credit.card.yields == "table":
        return
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(credit))))
    assert credit.batch == again.batch
    assert credit.params == again.params
    np.testing.assert_array_equal(credit.steps, again.steps)
    np.testing.assert_array_equal(credit.tokens, again.tokens)
    assert set(credit.parts) == set(again.parts)
    for r in range(0, len(credit.batch), 4):
        name = credit.batch.ids[r]
        for step in range(len(credit.batch.steps_of(r))):
            assert credit.explain(name, step).text() == again.explain(name, step).text()


def test_a_comparison_survives_a_pickle():
    found = ac.compare(RECORDS, ["grpo", "gigpo"], n_boot=0)
    assert found.to_dict() == pickle.loads(pickle.dumps(found)).to_dict()


def test_a_credit_under_a_local_key_travels_and_says_why_it_cannot_explain():
    credit = pickle.loads(pickle.dumps(ac.assign(RECORDS, "gigpo", key=lambda word: word)))
    assert [2, 1] == [len(steps) for steps in credit.by_rollout()]
    with pytest.raises(ac.AccreditError, match="pickled without what explains it"):
        credit.explain("a", 0)


@pytest.mark.parametrize("way", [lambda c: c, lambda c: pickle.loads(pickle.dumps(c)), copy.deepcopy])
def test_a_credit_cannot_be_written(way):
    """Credit could be changed in place, and then contradicted its own explanation and parts."""
    credit = way(ac.assign(RECORDS, "gigpo"))
    arrays = (credit.steps, credit.tokens, *credit.parts.values(), *credit.extras.values())
    for array in (*arrays, credit.batch.reward_R, credit.batch.token_start_S1):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 9
    for mapping in (credit.params, credit.parts, credit.extras):
        with pytest.raises(TypeError):
            mapping["gamma"] = 9


def test_credit_has_no_negative_zero():
    """A step without credit, or a token that is not trained, could print as -0.0."""
    credit = ac.assign([r | {"reward": -0.0} for r in RECORDS], "rloo")
    valued = [{**RECORDS[1], "trainable": False, "steps": [{"value": 0.5, "tokens": [1, 2]}]}]
    masked = ac.assign(valued, "gae")
    for values in (credit.steps, credit.tokens, masked.steps, masked.tokens):
        assert not np.signbit(values[values == 0]).any()


def test_the_parameters_of_a_credit_are_json():
    assert json.dumps(dict(ac.assign(RECORDS, "grpo").params))


@dataclass(frozen=True, slots=True)
class NoParams:
    """Nothing to set."""


def test_a_method_that_gives_a_table_says_so_where_steps_are_asked_for(monkeypatch):
    """Both ended in numpy's own errors about shapes and bounds."""
    monkeypatch.setattr(_registry, "_METHODS", dict(_registry._METHODS))

    @ac.method("shares", title="of players", params=NoParams, needs={"reward"}, yields="table")
    def shares(index, params):
        return Parts(np.zeros(0), table={"player": ["a"], "share": [1.0]})

    credit = pickle.loads(pickle.dumps(ac.assign(RECORDS, "shares")))
    assert {"player": ["a"], "share": [1.0]} == credit.table
    for ask in (lambda: credit.tokens, lambda: credit.explain("a", 0)):
        with pytest.raises(ac.AccreditError, match=r"ACC833.*'shares' gives a table.*credit\.table"):
            ask()
