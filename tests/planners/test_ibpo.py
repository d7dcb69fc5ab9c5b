"""IBPO's revisions really played: a replayed beginning, another end, and a mask on the planted step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import accredit as ac
from accredit.data import Batch
from accredit.errors import ParamError
from accredit.planners import Answer, Outcome
from accredit.planners.ibpo import Draft, IbpoPlanner, Reviser, nearest_repair
from accredit.signals.continuation import Alone, Engine, Player, Replay
from accredit.worlds import TabularWorld, make
from accredit.worlds.acting import ScriptedActor

TASK = make("lock", seed=3, decisions=6)
RIGHT = [f"turn to {d}" for d in TASK.facts["digits"]]


def engine() -> Engine:
    """The reviser knows the right digits."""
    actor = ScriptedActor(lambda scene: RIGHT[len(scene.history)], name="right")
    return Engine(Alone(Player(Replay(lambda group: TabularWorld(TASK)), {"reviser": actor})))


def wrong_at(*dials: int) -> list[str]:
    found = list(RIGHT)
    for dial in dials:
        found[dial] = next(a for a in TASK.actions if a != RIGHT[dial])
    return found


def chain(*rows: list[str]) -> Batch:
    return Batch.from_records(
        {
            "id": f"r{i}",
            "group": "g",
            "reward": float(actions == RIGHT),
            "steps": [{"action": a, "tokens": [int(a[-1]), 7]} for a in actions],
        }
        for i, actions in enumerate(rows)
    )


@pytest.mark.parametrize("planted", range(6))
def test_masked_credit_hits_the_planted_step(planted: int) -> None:
    """Seen failing with the replay begun one step late."""
    batch = chain(RIGHT, wrong_at(planted), wrong_at(0, 1, 2, 3, 4, 5))
    filled = engine().drive(IbpoPlanner(batch)).filled()
    assert filled.revision_R[1] == {"reward": 1.0, "truncated": False, "actions": RIGHT}
    credit = ac.assign(filled, "ibpo")
    blamed = credit.by_rollout()[1]
    assert np.flatnonzero(blamed).tolist() == [planted]
    assert blamed[planted] < 0
    assert np.flatnonzero(credit.tokens_by_rollout()[1][planted]).tolist() == [0, 1]
    plain = ac.assign(batch, "grpo").by_rollout()[1]
    assert blamed[planted] > plain[planted]  # nearer to a success, so blamed less


def test_a_group_of_failures_learns_where_a_correction_succeeds() -> None:
    batch = chain(wrong_at(2), wrong_at(0, 4), wrong_at(1, 3))

    def at_two(draft: Draft) -> Mapping[str, Any] | None:
        return {"step": 2} if draft.rollout == "r0" else {"step": 5}

    assert not ac.assign(batch, "grpo").steps.any()
    credit = ac.assign(engine().drive(IbpoPlanner(batch, at_two)).filled(), "ibpo", positive_on="kept")
    assert (np.delete(credit.by_rollout()[0], 2) > 0).all()
    assert credit.by_rollout()[0][2] == 0
    assert (credit.by_rollout()[1] < 0).all()


def test_actions_of_the_reviser_are_taken_first() -> None:
    def says(draft: Draft) -> Mapping[str, Any]:
        return {"step": 1, "actions": [wrong_at(1)[1]]}

    batch = chain(RIGHT, wrong_at(1, 2))
    planner = IbpoPlanner(batch, says)
    found = engine().drive(planner).filled().revision_R[1]
    assert found["actions"] == wrong_at(1)
    assert found["reward"] == 0.0


def test_right_siblings_are_shown_first_and_only_so_many() -> None:
    seen: list[Draft] = []

    def judge(draft: Draft) -> Mapping[str, Any] | None:
        seen.append(draft)
        return None

    batch = chain(wrong_at(0), wrong_at(1), RIGHT, RIGHT, wrong_at(2))
    assert IbpoPlanner(batch, judge, references=3).ask() == []
    assert [(d.rollout, d.references, d.right) for d in seen] == [
        ("r0", ("r2", "r3", "r1"), ("r2", "r3")),
        ("r1", ("r2", "r3", "r0"), ("r2", "r3")),
        ("r4", ("r2", "r3", "r0"), ("r2", "r3")),
    ]


def test_the_nearest_success_says_where_to_begin() -> None:
    batch = chain(wrong_at(4), wrong_at(0, 1, 2), RIGHT)
    requests = IbpoPlanner(batch).ask()
    assert [(r.place.rollout, r.place.step) for r in requests] == [("r0", 4), ("r1", 0)]
    alone = IbpoPlanner(chain(wrong_at(4)))
    assert alone.ask() == []
    wrong = IbpoPlanner(chain(wrong_at(4), wrong_at(4, 5))).ask()
    assert [r.place.step for r in wrong] == [5, 5]  # no success: the nearest failure


def test_several_revisions_and_those_that_could_not_be_played() -> None:
    batch = chain(RIGHT, wrong_at(3))
    planner = IbpoPlanner(batch, k=2)
    (request,) = planner.ask()
    assert (request.k, request.record, request.shared) == (2, True, False)
    planner.tell([Answer(request, (Outcome("failed_restore", None), Outcome("truncated", 0.0)))])
    filled = planner.filled()
    assert [one["reward"] for one in filled.revision_R[1]] == [None, 0.0]
    assert filled.column("revision_R").provenance["statuses"] == {"failed_restore": 1, "truncated": 1}
    assert ac.assign(filled, "ibpo").extras["phi"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("step", [-1, 6, "2", None, True])
def test_a_step_that_is_not_there_is_refused(step: Any) -> None:
    reviser: Reviser = lambda draft: {"step": step}  # noqa: E731
    with pytest.raises(ParamError, match=r"rollout 'r1' has steps 0 \.\. 5"):
        IbpoPlanner(chain(RIGHT, wrong_at(3)), reviser).ask()
    with pytest.raises(ParamError, match="k must be"):
        IbpoPlanner(chain(RIGHT), nearest_repair, 0)
