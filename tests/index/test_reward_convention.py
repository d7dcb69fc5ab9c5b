"""The reward convention: where the outcome goes, and what a rollout without step rewards keeps."""

from __future__ import annotations

from typing import Any

import pytest

import accredit as ac
from accredit.index import Index


def rollout(name: str, reward: float, *paid: float | None) -> dict[str, Any]:
    steps = [{"action": "go"} if r is None else {"action": "go", "reward": r} for r in paid]
    return {"id": name, "group": "g", "reward": reward, "steps": steps}


def index_of(*rows: dict[str, Any], **options: Any) -> Index:
    return Index(ac.Batch.from_records(rows), **options)


def test_outcome_comes_on_top_unless_the_steps_add_up_to_it() -> None:
    apart = index_of(rollout("a", 1, 0.5, 0.25), rollout("b", 0, 0, 0))
    assert [0.5, 1.25, 0, 0] == apart.reward_S.tolist()
    within = index_of(rollout("a", 1, 0.5, 0.5), rollout("b", 0, 0, 0))
    assert [0.5, 0.5, 0, 0] == within.reward_S.tolist()
    assert [1, 0] == within.score_R.tolist()


@pytest.mark.parametrize("rule", ["auto", "yes"])
def test_a_rollout_without_step_rewards_keeps_its_outcome(rule: Any) -> None:
    """A winner without step rewards scored 0 where its siblings' steps added up to their outcomes."""
    index = index_of(
        rollout("a", 1, 0, 1), rollout("b", 1, None, None), rollout("c", 0, 0, 0), outcome_in_steps=rule
    )
    assert index.outcome_in_steps
    assert [1, 1, 0] == index.score_R.tolist()
    assert [0, 1, 0, 1, 0, 0] == index.reward_S.tolist()


def test_no_step_rewards_at_all_leave_the_outcome_whatever_is_said() -> None:
    assert [0, 1] == index_of(rollout("a", 1, None, None), outcome_in_steps="yes").reward_S.tolist()
