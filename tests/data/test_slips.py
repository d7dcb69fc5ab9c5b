"""Ordinary slips of a caller: each is told what is allowed and what was got, by an error of accredit."""

from __future__ import annotations

import re

import numpy as np
import pytest

import accredit as ac
from accredit.readers import convert

RECORD = {"id": "a", "group": "g", "reward": 1.0, "steps": [{"state": "s", "n_tokens": 1}]}
BATCH = ac.Batch.from_records(
    [{"id": f"r{i}", "group": "g", "reward": i, "steps": [{"state": "s", "n_tokens": 1}]} for i in (0, 1)]
)


def _raising(word):
    raise KeyError(word)


SLIPS = {
    "got None": lambda: ac.assign(BATCH, None),
    "got ['grpo']": lambda: ac.assign(BATCH, ["grpo"]),
    "got 1": lambda: ac.compare(BATCH, [1, 2]),
    "are a NoneType": lambda: ac.assign(None, "grpo"),
    "list of them or None; got 3": lambda: ac.assign(BATCH, "gigpo", key=3),
    "a Spread or None; got 3": lambda: ac.assign(BATCH, "grpo", spread=3),
    "clip must be a number, got 'x'": lambda: ac.assign(BATCH, "grpo", spread={"clip": "x"}),
    "from 0 to 0, got '0'": lambda: ac.assign(BATCH, "grpo").explain("r1", "0"),
    "from 0 to 0, got 0.5": lambda: ac.assign(BATCH, "grpo").explain("r1", 0.5),
    "a string; got 1": lambda: ac.assign(BATCH, "grpo").explain(1, 0),
    "failed on 's': KeyError": lambda: ac.assign(BATCH, "gigpo", key=_raising),
    "returned ['s'] for 's'": lambda: ac.assign(BATCH, "gigpo", key=lambda word: [word]),
    "position 99": lambda: BATCH.take([99]),
    "position -1": lambda: BATCH.take([-1]),
    "positions, got ['r1']": lambda: BATCH.take(["r1"]),
    "None, got 'x'": lambda: ac.assign(BATCH, "grpo", seed="x"),
    "None, got 1.5": lambda: ac.assign(BATCH, "grpo", seed=1.5),
    "false, got 'x'": lambda: ac.assign(BATCH, "grpo", strict="x"),
    "got 1e-08 and nan": lambda: ac.assign(BATCH, "grpo", spread={"clip": float("nan")}),
    "got inf and None": lambda: ac.assign(BATCH, "grpo", spread={"eps": float("inf")}),
    "got 'date'": lambda: ac.assign([{**RECORD, "reward": "date"}], "grpo"),
    "a record is null, not an object": lambda: ac.assign([None], "grpo"),
    "a record is a text, not an object": lambda: ac.assign(["rollouts.jsonl"], "grpo"),
    "field of rollout 'a' is named 5": lambda: ac.assign([{**RECORD, 5: 3}], "grpo"),
    "n_tokens of 3": lambda: ac.assign([{**RECORD, "steps": [{"tokens": [1, 2], "n_tokens": 3}]}], "grpo"),
    "save_batch(batch, path) writes one": lambda: convert(BATCH, "out.jsonl"),
    "path is empty": lambda: ac.read(""),
    "cannot be read": lambda: ac.read("a\0b"),
    "no format 5": lambda: ac.read("rollouts.jsonl", format=5),
    "no compat 3": lambda: ac.assign(BATCH, "grpo", compat=3),
    "truth is a file or a Truth, not a ndarray": lambda: ac.compare(BATCH, ["grpo"], truth=np.zeros(2)),
    "a report shows Credits, got 'grpo'": lambda: ac.report("grpo", "out.html"),
}


@pytest.mark.parametrize("told", SLIPS)
def test_a_slip_is_told_as_one(told):
    """Each of these was an error of Python or numpy from deep inside, or passed in silence."""
    with pytest.raises(ac.AccreditError, match=re.escape(told)):
        SLIPS[told]()


@pytest.mark.parametrize("gamma", [np.float32(0.5), np.float64(0.5), np.array(0.5)[()]])
def test_numpy_numbers_are_numbers(gamma):
    assert ac.assign(BATCH, "gigpo", gamma=0.5).params == ac.assign(BATCH, "gigpo", gamma=gamma).params


def test_numpy_counts_are_counts():
    batch = ac.Batch.from_records([{**RECORD, "steps": [{"n_tokens": np.int32(2)}]}])
    assert (2, ()) == (batch.n_tokens, batch.excluded)


def test_a_group_size_of_more_than_all_rollouts_is_one_short_group():
    batch = ac.read([RECORD, {**RECORD, "id": "b"}], group_size=10**11)
    assert ([0, 0], 1) == (batch.group_R.tolist(), batch.n_groups)


@pytest.mark.parametrize("step_reward", [None, 1.7e308])
def test_rewards_too_large_to_add_are_refused_by_every_method(step_reward):
    """Their sums are infinite: methods gave 0 to every step, with a warning of numpy at most."""
    paid = {} if step_reward is None else {"reward": step_reward}
    steps = [{"state": "s", "action": "a", "n_tokens": 1, **paid}] * 2
    records = [
        {"id": f"r{i}", "group": "g", "reward": x, "steps": steps}
        for i, x in enumerate((1.7e308, -1.7e308, 0.0))
    ]
    for method in ("grpo", "spo", "bpo", "gigpo", "reinforce-pp", "crbc"):
        with pytest.raises(ac.AccreditError, match="rewards are too large to be added"):
            ac.assign(records, method)
