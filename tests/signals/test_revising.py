"""A model as reviser: what it is told, which corrections are taken, and that they are played."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import accredit as ac
from accredit.errors import ParamError
from accredit.planners import Place
from accredit.planners.ibpo import IbpoPlanner
from accredit.signals.asking import Instructions
from accredit.signals.continuation import Budget, Ledger, Replay, RestoreFailed
from accredit.signals.revising import REVISER, LmReviser
from accredit.signals.speaking import Message
from accredit.worlds import TabularWorld, World
from tests.planners.test_ibpo import RIGHT, TASK, chain, engine, wrong_at
from tests.signals.saying import Scripted


def said(step: Any, action: Any) -> str:
    return json.dumps({"step": step, "action": action})


def restorer() -> Replay:
    return Replay(lambda group: TabularWorld(TASK))


def planned(speaker: Scripted, *rows: list[str], **options: Any) -> tuple[IbpoPlanner, LmReviser]:
    reviser = LmReviser(speaker, restorer(), **options)
    planner = IbpoPlanner(chain(*rows), reviser)
    planner.ask()
    return planner, reviser


def test_the_failure_is_shown_step_by_step_with_references_successes_first() -> None:
    speaker = Scripted([said(0, RIGHT[0]), said(2, RIGHT[2])])
    planner, _ = planned(speaker, wrong_at(0), RIGHT, wrong_at(2, 3))
    [_, user] = speaker.asked[1]
    for t, action in enumerate(wrong_at(2, 3)):
        assert f"[step {t}]\ndid: {action}" in user["content"]
    right, wrong = user["content"].index("Success:\n0. "), user["content"].index("Failure:\n0. ")
    assert right < wrong
    assert "\n".join(f"{t}. {a}" for t, a in enumerate(RIGHT)) in user["content"]
    assert "from 0 to 5" in user["content"]
    assert planner.revisions().failures == 2
    asked = Scripted([said(0, RIGHT[0])])
    batch = chain(RIGHT, wrong_at(0)).with_column("task_R", ["Open it.", "Open it."])
    IbpoPlanner(batch, LmReviser(asked)).ask()
    assert asked.asked[0][1]["content"].startswith("The task: Open it.\n\nThis attempt failed:")


def test_a_right_correction_is_played_and_blamed_where_it_is() -> None:
    """Seen failing with the reviser's action taken one step early."""
    speaker = Scripted([said(3, f" {RIGHT[3].upper()}.")])  # an action is known by its words
    planner = IbpoPlanner(chain(RIGHT, wrong_at(3)), LmReviser(speaker, restorer()))
    filled = engine().drive(planner).filled()
    assert filled.revision_R[1] == {"reward": 1.0, "truncated": False, "actions": RIGHT}
    told = planner.revisions()
    assert (told.failures, told.unrevised, told.corrected) == (1, (), ("r1",))
    assert "1 failures, 0 without a correction; revisions: 1 finished; 1 failures corrected" == told.text()
    credit = ac.assign(filled, "ibpo")
    assert np.flatnonzero(credit.by_rollout()[1]).tolist() == [3]


BAD = [
    ("I would turn the third dial.", "no JSON object"),
    (said(6, RIGHT[0]), "from 0 to 5"),
    (said(-1, RIGHT[0]), "from 0 to 5"),
    (said("1", RIGHT[1]), "from 0 to 5"),
    ('{"step": true, "action": "x"}', "from 0 to 5"),
    (said(1, ""), "must be a text"),
    (said(1, ["x"]), "must be a text"),
    (said(1, "fly away"), "is not possible at step 1; possible: turn to"),
    (said(1, wrong_at(1)[1]), "is what the attempt did at step 1"),
    (said(1, wrong_at(1)[1].upper() + "!"), "is what the attempt did at step 1"),
    (json.dumps({"step": 1}), "the names step, not"),
    (json.dumps({"step": 1, "action": RIGHT[1], "why": "x"}), "the names action, step, why"),
]


@pytest.mark.parametrize(("bad", "fault"), BAD)
def test_what_cannot_be_is_told_asked_again_and_kept(bad: str, fault: str) -> None:
    speaker = Scripted([bad, said(1, RIGHT[1])])
    planner, reviser = planned(speaker, RIGHT, wrong_at(1))
    assert fault in speaker.asked[1][-1]["content"]
    [reply] = reviser.refused()
    assert (reply.subject, reply.turn, reply.text) == ("r1", 0, bad)
    assert fault in reply.fault
    assert planner.revisions().unrevised == ()


class Watched(Replay):
    """Says where it was asked to stand, and whether it got its worlds back."""

    def __init__(self) -> None:
        super().__init__(lambda group: TabularWorld(TASK))
        self.stood: list[tuple[str, ...]] = []
        self.out = 0

    def stand(self, place: Place) -> World:
        self.stood.append(place.actions)
        self.out += 1
        return super().stand(place)

    def release(self, world: World, place: Place) -> None:
        self.out -= 1
        super().release(world, place)


class Lost(Replay):
    def stand(self, place: Place) -> World:
        raise RestoreFailed("another state than recorded")


def test_what_is_possible_is_asked_where_the_action_is_to_be_taken() -> None:
    watched = Watched()
    reviser = LmReviser(Scripted([said(2, "fly"), said(2, RIGHT[2])]), watched)
    IbpoPlanner(chain(RIGHT, wrong_at(2)), reviser).ask()
    assert watched.stood == [tuple(RIGHT[:2])] * 2
    assert watched.out == 0
    lost = LmReviser(Scripted([said(2, RIGHT[2])] * 2), Lost(lambda group: TabularWorld(TASK)), repairs=1)
    planner = IbpoPlanner(chain(RIGHT, wrong_at(2)), lost)
    assert planner.ask() == []
    assert {r.fault for r in lost.refused()} == {"the state before step 2 cannot be reached again"}


def test_a_stubborn_reviser_is_given_up_and_its_failures_are_listed() -> None:
    planner, reviser = planned(Scripted(lambda chat, seed: "?"), RIGHT, wrong_at(1), wrong_at(2), repairs=2)
    assert planner.revisions().unrevised == ("r1", "r2")
    assert [(r.subject, r.turn) for r in reviser.refused()] == [
        (r, t) for r in ("r1", "r2") for t in range(3)
    ]
    planner.tell([])
    filled = planner.filled()
    made = filled.column("revision_R").provenance
    assert (made["unrevised"], made["reviser"]) == (2, reviser.version)
    assert ac.assign(filled, "ibpo").extras["phi"].tolist() == [0.0, 0.0, 0.0]


def test_without_a_restorer_the_world_refuses_what_is_not_possible() -> None:
    planner = IbpoPlanner(chain(RIGHT, wrong_at(1)), LmReviser(Scripted([said(1, "fly away")])))
    engine().drive(planner)
    told = planner.revisions()
    assert (told.statuses, told.corrected) == ({"illegal": 1}, ())


def test_questions_are_judge_calls_of_the_budget() -> None:
    ledger = Ledger(Budget(judge_calls=1))
    planner, reviser = planned(Scripted([said(1, RIGHT[1])]), RIGHT, wrong_at(1), wrong_at(2), ledger=ledger)
    assert ledger.physical.judge_calls == 1
    assert planner.revisions().unrevised == ("r2",)
    assert [r.fault for r in reviser.refused()] == ["the budget of questions is spent"]


class Erring(Scripted):
    """Knows the digits; by its seed, blames a wrong step with chance e."""

    def __init__(self, e: float) -> None:
        def say(chat: Sequence[Message], seed: int) -> str:
            did = re.findall(r"did: (.*)", chat[1]["content"])
            at = next(t for t, action in enumerate(did) if action != RIGHT[t])
            if np.random.default_rng(seed).random() < e:
                other = next(a for a in TASK.actions if a != did[at - 1])
                return said(at - 1, other)
            return said(at, RIGHT[at])

        super().__init__(say)


def test_failures_are_corrected_as_often_as_the_reviser_is_right() -> None:
    e, n = 0.3, 120
    rows = [RIGHT, *(wrong_at(1 + i % 5) for i in range(n))]
    planner = IbpoPlanner(chain(*rows), LmReviser(Erring(e), restorer()))
    filled = engine().drive(planner).filled()
    share = len(planner.revisions().corrected) / n
    assert abs(share - (1 - e)) < 3 * np.sqrt(e * (1 - e) / n)
    scored = ac.assign(filled, "ibpo").extras["phi"]
    assert np.count_nonzero(scored) == len(planner.revisions().corrected)


def test_the_version_names_model_and_prompt() -> None:
    other = Instructions(REVISER.system, REVISER.opening + " Think.")
    versions = [LmReviser(Scripted([]), instructions=i).version for i in (REVISER, other)]
    assert versions[0].startswith("reviser:scripted:prompt=")
    assert len({*versions}) == 2
    with pytest.raises(ParamError, match="opening names"):
        LmReviser(Scripted([]), instructions=Instructions("s", "$failure"))
    with pytest.raises(ParamError, match="repairs"):
        LmReviser(Scripted([]), repairs=-1)
    with pytest.raises(ParamError, match="width"):
        Instructions("s", "o", width=0)
