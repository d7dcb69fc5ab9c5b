"""Ordinary slips of a caller: each is told what is allowed and what was got, by an error of accredit."""

from __future__ import annotations

import re

import numpy as np
import pytest

import accredit as ac

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
}


@pytest.mark.parametrize("told", SLIPS)
def test_a_slip_is_told_as_one(told):
    """Each of these was an error of Python or numpy from deep inside, or passed in silence."""
    with pytest.raises(ac.AccreditError, match=re.escape(told)):
        SLIPS[told]()


@pytest.mark.parametrize("gamma", [np.float32(0.5), np.float64(0.5), np.array(0.5)[()]])
def test_numpy_numbers_are_numbers(gamma):
    assert ac.assign(BATCH, "gigpo", gamma=0.5).params == ac.assign(BATCH, "gigpo", gamma=gamma).params
