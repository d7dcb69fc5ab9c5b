"""The four numbers by group against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata

from accredit.against import Judge
from accredit.data import Batch

ACTIONS = ("go", "take", "wait")


@st.composite
def judged(draw):
    """Ragged groups in mixed order, what each step could do, credit and truth with ties, some unknown."""
    n = draw(st.integers(1, 7))
    groups = [draw(st.sampled_from("abc")) for _ in range(n)]
    records = []
    for r, group in enumerate(groups):
        steps = []
        for _ in range(draw(st.integers(0, 4))):
            state = draw(st.sampled_from("st"))
            chance = np.array([1.0, 2.0, 5.0]) if state == "s" else np.array([3.0, 3.0, 2.0])
            logs = np.log(chance / chance.sum()).tolist()
            metadata = {"commands": list(ACTIONS), "choice_logprobs": logs}
            steps.append({"state": state, "action": draw(st.sampled_from(ACTIONS)), "metadata": metadata})
        records.append({"id": f"r{r}", "group": group, "reward": 1.0, "steps": steps})
    batch = Batch.from_records(records)
    few = st.sampled_from([-1.0, -0.25, -0.04, 0.0, 0.04, 0.5, 1.0])
    numbers = st.lists(few, min_size=batch.n_steps, max_size=batch.n_steps).map(np.array)
    known = st.lists(st.booleans(), min_size=batch.n_steps, max_size=batch.n_steps)
    return batch, draw(numbers).astype(float), draw(numbers).astype(float), np.array(draw(known), bool)


def plain(batch, credit, truth, known):
    """Lists of one number a group, by loops over records."""
    steps: dict[str, list[tuple[int, dict]]] = {}
    at = 0
    for record in batch.records():
        for step in record["steps"]:
            if known[at]:
                steps.setdefault(record["group"], []).append((at, step))
            at += 1
    whole = [s for rows in steps.values() for s, _ in rows]
    square = sum(credit[s] ** 2 for s in whole)
    scale = max(0.0, sum(credit[s] * truth[s] for s in whole) / square) if square else 0.0
    ranks, signs, cosines, biases = [], [], [], []
    for rows in steps.values():
        at = [s for s, _ in rows]
        if len(set(truth[at])) > 1:
            ranks.append(correlation(rankdata(credit[at]), rankdata(truth[at])))
        clear = [s for s in at if abs(truth[s]) > 0.05]
        if clear:
            signs.append(sum(np.sign(credit[s]) == np.sign(truth[s]) for s in clear) / len(clear))
        mine, true = gradient(rows, credit), gradient(rows, truth)
        if moves(true, truth[at]):
            dot = sum(mine[k] * true[k] for k in true)
            size = math.hypot(*mine.values()) * math.hypot(*true.values())
            cosines.append(dot / size if moves(mine, credit[at]) else 0.0)
        biases.append(sum(scale * credit[s] - truth[s] for s in at) / len(at))
    return ranks, signs, cosines, biases


def moves(grad, values):
    """Whether a gradient is more than what rounding leaves of one that cancels."""
    return max(map(abs, grad.values())) > 1e-12 * sum(map(abs, values))


def correlation(a, b):
    if len(set(a)) < 2:
        return 0.0
    return np.corrcoef(a, b)[0, 1]


def gradient(rows, values):
    found: dict[tuple[str, str], float] = {}
    for s, step in rows:
        told = step["metadata"]
        for name, log in zip(told["commands"], told["choice_logprobs"], strict=True):
            move = values[s] * (float(name == step["action"]) - math.exp(log))
            found[step["state"], name] = found.get((step["state"], name), 0.0) + move
    return found


@settings(deadline=None)
@given(judged())
def test_numbers_are_those_of_plain_loops(case):
    batch, credit, truth, known = case
    judge = Judge(batch, truth, known)
    found = judge.near(credit, resamples=0)
    for mine, theirs in zip(found, plain(batch, credit, truth, known), strict=True):
        if not theirs:
            assert mine is None
        else:
            assert mine.value == pytest.approx(np.mean(theirs), abs=1e-7)
            assert mine.low is None


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {"commands": ["go"]},
        {"commands": ["go", "wait"], "choice_logprobs": [0.0]},
        {"commands": ["wait"], "choice_logprobs": [0.0]},
        {"commands": [["go"]], "choice_logprobs": [0.0]},
        {"commands": ["go"], "choice_logprobs": [900.0]},
        {"commands": ["go"], "choice_logprobs": ["0"]},
        {"commands": "go", "choice_logprobs": "00"},
    ],
)
def test_without_how_likely_each_action_was_there_is_no_cosine(metadata):
    """Metadata is the user's own: what it holds must not stop a comparison."""
    step = {"action": "go"} | ({} if metadata is None else {"metadata": metadata})
    batch = Batch.from_records(
        [{"id": i, "group": "g", "reward": r, "steps": [step, step]} for i, r in (("a", 1), ("b", 0))]
    )
    truth = np.array([0.5, -0.5, 0.1, 0.0])
    found = Judge(batch, truth, np.ones(4, bool)).near(truth)
    assert found.cosine is None
    assert found.rank.value == pytest.approx(1.0)


def test_the_interval_is_over_groups():
    records = [
        {"id": f"{g}{r}", "group": f"g{g}", "reward": 1.0, "steps": [{"action": "go"}] * 5}
        for g in range(9)
        for r in range(2)
    ]
    batch = Batch.from_records(records)
    rng = np.random.default_rng(0)
    truth, credit = rng.normal(size=(2, batch.n_steps))
    rank = Judge(batch, truth, np.ones(batch.n_steps, bool)).near(credit).rank
    assert rank.low < rank.value < rank.high
    one = Judge(batch, truth, np.arange(batch.n_steps) < 10).near(credit).rank
    assert (one.low, one.high) == (None, None)
