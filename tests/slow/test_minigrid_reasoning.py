"""BabyAI missions and reasoning-gym questions as worlds, with the real packages."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.data import Batch
from accredit.errors import ParamError
from accredit.oracle import tabulate
from accredit.oracle.named import world_named
from accredit.planners import Request
from accredit.worlds import World
from accredit.worlds.acting import ScriptedActor, UniformActor
from accredit.worlds.babyai import ACTIONS, BabyAIWorld
from accredit.worlds.reasoning import ReasoningWorld
from tests.worlds.promises import (
    agrees_with_its_record,
    continued,
    goes_on_as_before,
    places,
    scripted,
    stand,
)

pytestmark = pytest.mark.slow

LEVELS = ("BabyAI-GoToLocal-v0", "BabyAI-PickupLoc-v0", "BabyAI-PutNextLocal-v0", "BabyAI-OpenTwoDoors-v0")
picks = st.lists(st.integers(0, 5), max_size=12)


def bot(world: BabyAIWorld) -> list[str]:
    """The actions of BabyAI's own bot, up to the end."""
    from minigrid.utils.baby_ai_bot import BabyAIBot

    world.reset(0)
    player, done = BabyAIBot(world._env), list[str]()
    while world.actions():
        action = int(player.replan(world._env.actions(ACTIONS.index(done[-1])) if done else None))
        done.append(ACTIONS[action])
        world.step(done[-1])
    return done


@pytest.mark.parametrize("level", LEVELS)
@given(seed=st.integers(0, 1000), before=picks, after=picks, between=picks)
@settings(max_examples=5, deadline=None)
def test_a_restored_mission_goes_on_as_before(level, seed, before, after, between) -> None:
    goes_on_as_before(partial(BabyAIWorld, seed, level=level), before, after, between)


@pytest.mark.parametrize("level", LEVELS)
def test_the_bot_fulfils_the_mission_and_the_record_is_kept(level) -> None:
    make = partial(BabyAIWorld, 4, level=level, horizon=60)
    actions = bot(make())
    world = make()
    assert isinstance(world, World)
    assert (True, 0.0, True, False) == (
        world.exact_snapshot, world.snapshot_cost, world.deterministic, world.side_effects,
    )  # fmt: skip
    world.reset(0)
    assert [0.0] * (len(actions) - 1) + [1.0] == [world.step(a)[1] for a in actions]
    agrees_with_its_record(make, actions)
    here, _ = places(make, actions)
    wins = continued(make, [Request(p) for p in here[:: max(len(here) // 4, 1)]], scripted(actions))
    assert {1.0} == {a.mean for a in wins}


@given(seed=st.integers(0, 300), walk=picks)
@settings(max_examples=15, deadline=None)
def test_the_key_does_not_depend_on_the_way(seed, walk) -> None:
    """MiniGrid's own hash does: it prints the place, which is a tuple at first and an array later."""
    world = BabyAIWorld(seed)
    world.reset(0)
    for pick in walk:
        if world.actions():
            world.step(ACTIONS[pick])
    before = stand(world)[:3]
    for _ in range(4):
        if not world.actions():
            return
        world.step("turn left")
    if world.actions():
        assert before == stand(world)[:3]


def test_what_is_carried_and_what_was_done_first_are_in_the_key() -> None:
    world = BabyAIWorld(4, level="BabyAI-PutNextLocal-v0", horizon=60)
    world.reset(0)
    picked = bot(BabyAIWorld(4, level="BabyAI-PutNextLocal-v0", horizon=60))
    for action in picked[: picked.index("pick up") + 1]:
        world.step(action)
    assert "You carry a " in world.seen()
    key, carried = world.key(), world._env.carrying
    world._env.carrying = None
    assert key != world.key()
    world._env.carrying = carried
    assert key == world.key()


def test_things_in_view_are_told_where_they_are() -> None:
    """Checked against the grid itself: one step ahead is the cell that the agent faces."""
    for seed in range(30):
        world = BabyAIWorld(seed)
        world.reset(0)
        for _ in range(4):
            ahead = world._env.grid.get(*world._env.front_pos)
            told = [line for line in world.seen().split("\n") if line.endswith(" 1 step ahead.")]
            assert (ahead is not None) == bool(told)
            if ahead is not None and told:
                assert ahead.type in told[0]
            world.step("turn right")


def test_an_episode_is_cut_at_its_horizon_and_levels_are_named() -> None:
    world = BabyAIWorld(3, horizon=2)
    world.reset(0)
    assert [(0.0, False), (0.0, True)] == [world.step("turn left")[1:] for _ in range(2)]
    assert world.cut()
    with pytest.raises(ParamError, match="over"):
        world.step("turn left")
    with pytest.raises(ParamError, match="BabyAI-GoToLocal-v0"):
        BabyAIWorld(3, level="BabyAI-GoToLocl-v0")


def test_continuations_of_a_small_mission_average_to_the_exact_value() -> None:
    make = partial(BabyAIWorld, 1, level="BabyAI-GoToObjS4-v0", horizon=6)
    table = tabulate(make(), UniformActor())
    assert 0 < table.value < 1
    world = make()
    world.reset(0)
    here, _ = places(make, ["turn left"])
    answer = continued(make, [Request(here[0], k=300)], slots=8)[0]
    assert abs(answer.mean - table.value) <= 4 * np.sqrt(table.value * (1 - table.value) / 300)


# -- reasoning-gym ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["chain_sum", "countdown", "mini_sudoku", "leg_counting"])
def test_a_question_is_answered_once_and_scored(kind) -> None:
    make = partial(ReasoningWorld, 7, kind=kind)
    world = make()
    assert isinstance(world, World)
    asked = world.reset(0)
    token = world.snapshot()
    assert (None, 1) == (world.actions(), world.steps_left())
    assert (asked, 1.0, True) == world.step(f" {world.solution} ")
    assert ([], 0) == (world.actions(), world.steps_left())
    with pytest.raises(ParamError, match="answered"):
        world.step("2")
    other = make()
    assert asked == other.restore(token) == world.restore(token)
    assert stand(world) == stand(other)
    assert world.step("nonsense")[1] < 1
    agrees_with_its_record(make, [str(world.solution)])


def test_other_seeds_ask_other_questions_and_kinds_are_checked() -> None:
    assert ReasoningWorld(1).seen() != ReasoningWorld(2).seen()
    assert ReasoningWorld(1).seen() == ReasoningWorld(1).seen()
    with pytest.raises(ParamError, match="no 'chainsum' like this"):
        ReasoningWorld(1, kind="chainsum")


def test_continuations_of_a_question_are_answers() -> None:
    make = partial(ReasoningWorld, 3)
    here, _ = places(make, [str(make().solution)])
    right = ScriptedActor(lambda scene: str(make().solution))
    wrong = ScriptedActor(lambda scene: "I do not know", name="wrong")
    assert [1.0] == [a.mean for a in continued(make, [Request(here[0], k=2)], right)]
    assert 1.0 > continued(make, [Request(here[0], k=2)], wrong)[0].mean


def test_both_are_made_by_name() -> None:
    batch = Batch.from_records([{"id": "a", "group": "g4", "steps": []}])
    mission = world_named("babyai", batch, horizon=7)("g4")
    mission.reset(0)
    assert 7 == mission.steps_left()
    assert ReasoningWorld(5).seen() == world_named("reasoning:5", batch)("any").seen()
    with pytest.raises(ParamError, match="no horizon"):
        world_named("reasoning:5", batch, horizon=3)
