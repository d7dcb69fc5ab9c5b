"""Nearly equal states: symmetric clusters of texts and of embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.index import Index

CLOCK = "You are in the kitchen. The clock on the wall says {}. There is a door to the east."


def rollout(name: str, reward: float, *states: Any, group: str = "g", field: str = "state") -> dict[str, Any]:
    return {"id": name, "group": group, "reward": reward, "steps": [{field: s} for s in states]}


def test_similar_texts_are_one_state_and_others_are_not() -> None:
    rows = [rollout("a", 1, CLOCK.format("12:30")), rollout("b", 0, CLOCK.format("09:15"), "A cellar.")]
    assert [0.5, -0.5, 0.0] == ac.assign(rows, "returns", key="similar:0.9").steps.tolist()
    codes = Index(ac.Batch.from_records(rows), "similar:0.9").state_S
    assert codes[0] == codes[1] != codes[2]


def test_clusters_never_cross_groups() -> None:
    rows = [rollout("a", 1, "hall"), rollout("b", 0, "hall", group="h")]
    codes = Index(ac.Batch.from_records(rows), "similar:0.9").anchor_S
    assert codes[0] != codes[1]


@given(
    st.permutations(["hall 1", "hall 2", "hall 12", "cellar", "attic 7"]), st.sampled_from([0.7, 0.9, 1.0])
)
def test_order_of_rollouts_does_not_matter(states: list[str], threshold: float) -> None:
    """Seen failing with the greedy clusters of verl-agent."""
    codes = Index(
        ac.Batch.from_records([rollout(str(i), 1, s) for i, s in enumerate(states)]), f"similar:{threshold}"
    ).state_S
    same = {
        frozenset((a, b))
        for a, i in zip(states, codes, strict=True)
        for b, j in zip(states, codes, strict=True)
        if i == j
    }
    ordered = sorted(states)
    other = Index(
        ac.Batch.from_records([rollout(str(i), 1, s) for i, s in enumerate(ordered)]), f"similar:{threshold}"
    ).state_S
    assert same == {
        frozenset((a, b))
        for a, i in zip(ordered, other, strict=True)
        for b, j in zip(ordered, other, strict=True)
        if i == j
    }


def test_embeddings_are_joined_by_their_angle() -> None:
    rows = [
        rollout("a", 1, [1.0, 0.0], [0.0, 2.0], field="embedding"),
        rollout("b", 0, [3.0, 0.1], [-1.0, 0.0], field="embedding"),
    ]
    for row in rows:
        for t, step in enumerate(row["steps"]):
            step["state"] = f"{row['id']} {t}"
    codes = Index(ac.Batch.from_records(rows), "embedding:0.95").state_S
    assert codes[0] == codes[2]
    assert 3 == np.unique(codes).size
    assert ac.assign(rows, "gigpo", key="embedding:0.95").coverage["steps"] == 0.5


def test_missing_embeddings_and_wrong_thresholds_are_named() -> None:
    rows = [rollout("a", 1, "x"), rollout("b", 0, "y")]
    with pytest.raises(ac.AccreditError, match="needs `embedding`"):
        ac.assign(rows, "gigpo", key="embedding:0.9")
    with pytest.raises(ac.AccreditError, match=r"must be a number in \(0, 1\]"):
        ac.assign(rows, "gigpo", key="similar:2")


def test_state_graph_methods_take_near_states() -> None:
    rows = [
        rollout("a", 1, CLOCK.format("12:30"), "A cellar."),
        rollout("b", 0, CLOCK.format("09:15"), "An attic."),
    ]
    for row, action in zip(rows, ("down", "up"), strict=True):
        for step in row["steps"]:
            step["action"] = action
        row["final_state"] = "END"
    values = ac.assign(rows, "crbc", key="similar:0.9").extras["state_values"]
    assert values[0] == values[2] == pytest.approx(0.98 * 0.98 / 2)
