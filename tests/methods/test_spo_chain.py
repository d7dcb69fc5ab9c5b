"""spo-chain: the card's rule by hand and by a plain loop, edges, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from tests.dear import dear

Record = dict[str, Any]


def step(logprobs: list[float], points: list[int], values: list[float | None]) -> Record:
    return {"logprobs": logprobs, "cutpoints": points, "cutpoint_values": values}


def record(*steps: Record, reward: float | None = 1.0, **more: Any) -> Record:
    return {"id": "r", "group": "g", "reward": reward, "steps": list(steps)} | more


@st.composite
def rollouts(draw: st.DrawFn) -> list[Record]:
    """Up to three rollouts; steps with and without tokens, cut points and known values."""
    found = []
    for r in range(draw(st.integers(1, 3))):
        steps: list[Record] = []
        for _ in range(draw(st.integers(0, 4))):
            n = draw(st.integers(0, 4))
            own: Record = {
                "n_tokens": n,
                "logprobs": draw(st.lists(st.sampled_from([-2.0, -0.05]), min_size=n, max_size=n)),
            }
            if draw(st.booleans()):
                points = sorted(draw(st.sets(st.integers(-1, n - 1), max_size=n + 1)))
                values = [draw(st.sampled_from([0.0, 0.25, 0.5, 1.0, None])) for _ in points]
                own |= {"cutpoints": points, "cutpoint_values": values}
            steps.append(own)
        reward = draw(st.sampled_from([0.0, 1.0, None])) if r else 1.0
        found.append(record(*steps, reward=reward) | {"id": f"r{r}"})
    found[0]["steps"].append(step([-2.0, -0.05], [-1], [0.5]))
    return found


def slow(records: list[Record], mask: float) -> list[list[float]]:
    """The card's text as plain loops, one rollout after the other."""
    found = []
    for r in records:
        marks: dict[int, float] = {}
        logprobs: list[float] = []
        for s in r["steps"]:
            for c, v in zip(s.get("cutpoints", []), s.get("cutpoint_values", []), strict=True):
                if v is not None:
                    marks[len(logprobs) + c + 1] = v
            logprobs += s["logprobs"]
        own = []
        for k, logprob in enumerate(logprobs):
            before = [m for m in marks if m <= k]
            after = [m for m in marks if m > k]
            if not before or r["reward"] is None or np.exp(np.float32(logprob)) > mask:
                own.append(0.0)
            else:
                own.append((marks[min(after)] if after else r["reward"]) - marks[max(before)])
        found.append(own)
    return found


@dear
@given(rollouts(), st.sampled_from([0.9, 1.0]))
def test_equals_the_slow_loop(records: list[Record], mask: float) -> None:
    """Seen failing with segments that end with their step, and with cuts of the rollout before."""
    credit = ac.assign(records, "spo-chain", prob_mask=mask)
    for own, parts in zip(slow(records, mask), credit.tokens_by_rollout(), strict=True):
        np.testing.assert_allclose(np.concatenate([*parts, []]), own, atol=1e-12)


def test_hand_example() -> None:
    """Cut points after tokens -1, 1 and 2 with values 0.5, 0.25, 1; the outcome is 0."""
    got = ac.assign([record(step([-1.0] * 5, [-1, 1, 2], [0.5, 0.25, 1.0]), reward=0.0)], "spo-chain")
    assert got.tokens.tolist() == [-0.25, -0.25, 0.75, -1.0, -1.0]
    assert got.steps.tolist() == pytest.approx([-0.35])
    assert got.coverage["steps"] == 1.0


def test_segments_run_through_steps_and_likely_tokens_get_0() -> None:
    steps = [step([-1.0, -0.01], [0], [0.5]), step([-0.01, -1.0], [], [])]
    got = ac.assign([record(*steps)], "spo-chain")
    assert got.tokens.tolist() == [0.0, 0.0, 0.0, 0.5]
    assert got.extras["unmasked"].tolist() == [0.0, 0.5, 0.5, 0.5]


def test_unscored_dropped_and_uncut_rollouts_get_0_and_unknown_values_are_counted() -> None:
    cut = step([-1.0], [-1], [0.5])
    records = [
        record(cut),
        record(cut, reward=None) | {"id": "unscored"},
        record(cut, status="truncated") | {"id": "cut off"},
        record({"logprobs": [-1.0]}) | {"id": "uncut"},
        record(step([-1.0], [-1], [None])) | {"id": "unknown"},
    ]
    got = ac.assign(records, "spo-chain", truncated="drop")
    assert got.tokens.tolist() == [0.5, 0.0, 0.0, 0.0, 0.0]
    assert got.fallbacks["no_value"] == 1
    assert ac.assign(records, "spo-chain").tokens.tolist() == [0.5, 0.0, 0.5, 0.0, 0.0]


@pytest.mark.parametrize(
    ("points", "values"),
    [([0, 0], [0.5, 0.5]), ([2], [0.5]), ([-2], [0.5]), ([0], [0.5, 0.5]), ([0.5], [0.5]), ([0], ["x"])],
)
def test_cut_points_that_cannot_be_are_refused(points: list[Any], values: list[Any]) -> None:
    with pytest.raises(ac.AccreditError, match="'r' has cut points"):
        ac.assign([record(step([-1.0, -1.0], points, values))], "spo-chain")
