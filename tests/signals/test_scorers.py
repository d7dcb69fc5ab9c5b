"""Continuations that are scored by something other than their world."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from accredit.errors import ParamError
from accredit.planners import Place, Request
from accredit.signals.continuation import Alone, Ending, Engine, Player, Replay, Workers
from accredit.worlds import TabularWorld, make
from accredit.worlds.acting import UniformActor

START = Place("g", "start")
ASKED = [Request(START, k=12, record=True)]


class Rule:
    """Scores by a function of the ending."""

    def __init__(self, rule: Callable[[Ending], float | None], version: str = "1") -> None:
        self.rule, self.version, self.asked = rule, version, 0

    def score(self, ending: Ending) -> float | None:
        self.asked += 1
        return self.rule(ending)


def steps(ending: Ending) -> float:
    return float(len(ending.path))


def player_of(scorer: Rule | None = None, **options: int) -> Player:
    task = make("rooms", seed=1)
    replay = Replay(lambda group: TabularWorld(task))
    return Player(replay, {"actor": UniformActor()}, scorer=scorer, **options)


def counting() -> Player:
    return player_of(Rule(steps))


def test_a_scorer_is_asked_once_a_continuation_and_its_word_is_the_reward() -> None:
    rule = Rule(lambda e: e.reward + 10 * len(e.path))
    plain = Engine(Alone(player_of())).run(ASKED)[0].outcomes
    scored = Engine(Alone(player_of(rule))).run(ASKED)[0].outcomes
    assert [o.reward + 10 * o.steps for o in plain if o.reward is not None] == [o.reward for o in scored]
    assert [o.path for o in plain] == [o.path for o in scored]
    assert 12 == rule.asked
    with Engine(Workers(counting, 2, chunk=2)) as engine:
        assert [float(o.steps) for o in scored] == engine.run(ASKED)[0].rewards.tolist()


def test_it_sees_how_and_where_it_ended() -> None:
    endings: list[Ending] = []
    rule = Rule(endings.append)  # says nothing
    [answer] = Engine(Alone(player_of(rule))).run([Request(START, k=3, max_steps=2)])
    assert [0.0] * 3 == answer.rewards.tolist()
    assert {"truncated"} == {e.status for e in endings}
    assert all(len(e.path) == 2 and e.place == START and e.seen for e in endings)
    assert {o.final_key for o in answer.outcomes} == {e.key for e in endings}
    [illegal] = Engine(Alone(player_of(rule))).run([Request(START, k=1, forced=("fly",))])
    assert "illegal" == endings[-1].status
    assert [0.0] == illegal.rewards.tolist()


def test_outcomes_of_another_version_are_bought_anew(tmp_path: Path) -> None:
    played = []
    for rule in (None, Rule(steps), Rule(steps), Rule(steps, "2"), None):
        with Engine(Alone(player_of(rule)), journal=str(tmp_path / "j")) as engine:
            engine.run(ASKED)
            played.append(engine.ledger.physical.continuations)
    assert [12, 12, 0, 12, 0] == played


@pytest.mark.parametrize(
    ("rule", "reason"),
    [(lambda e: 1 / 0, "ZeroDivisionError"), (lambda e: float("nan"), "returned nan")],
    ids=["raises", "nan"],
)
def test_what_cannot_be_scored_is_no_outcome_and_never_zero(
    rule: Callable[[Ending], float], reason: str
) -> None:
    broken = Rule(rule)
    engine = Engine(Alone(player_of(broken, retries=2)))
    [answer] = engine.run(ASKED)
    assert [] == answer.rewards.tolist()
    assert {"infra_error"} == {o.status for o in answer.outcomes}
    assert all(reason in o.reason for o in answer.outcomes)
    assert min(o.steps for o in answer.outcomes) > 0
    assert sum(o.steps for o in answer.outcomes) == engine.ledger.physical.environment_steps
    assert 12 * 3 == broken.asked


def test_a_scorer_that_fails_for_a_moment_changes_nothing() -> None:
    class Flaky(Rule):
        def score(self, ending: Ending) -> float | None:
            if super().score(ending) is not None and self.asked % 2:
                raise ConnectionError
            return self.rule(ending)

    steady = Engine(Alone(player_of(Rule(steps)))).run(ASKED)[0].rewards.tolist()
    assert steady == Engine(Alone(player_of(Flaky(steps)))).run(ASKED)[0].rewards.tolist()


def test_a_scorer_needs_a_version() -> None:
    for wrong in (5, object()):
        with pytest.raises(ParamError, match="version"):
            player_of(wrong)  # type: ignore[arg-type]
