"""TextWorld games and Gymnasium environments keep what every world promises."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from accredit.data import Batch
from accredit.errors import ParamError
from accredit.oracle.named import world_named
from accredit.planners import Place, Request
from accredit.worlds import World
from accredit.worlds.gym import GymWorld
from accredit.worlds.textworld import TextWorldGame, game_file
from tests.worlds.promises import agrees_with_its_record, continued, goes_on_as_before, scripted

pytestmark = pytest.mark.slow

SIZES = ["custom", "--world-size", "2", "--nb-objects", "3", "--quest-length", "3", "--seed", "11"]


@pytest.fixture(
    scope="module", params=["transcript", "copies", "FrozenLake-v1", "Taxi-v4", "CliffWalking-v1"]
)
def make(request, tmp_path_factory) -> Callable[[], World]:
    if request.param.endswith(("v1", "v4")):
        return partial(GymWorld, request.param)
    path = game_file("promises", SIZES, tmp_path_factory.mktemp("games"))
    return partial(TextWorldGame, path, copies=request.param == "copies")


def test_a_restored_world_goes_on_as_before(make) -> None:
    goes_on_as_before(make, [0, 1], [1, 2, 0, 1], [2, 1])
    goes_on_as_before(make, [], [2, 2, 3], [])


def test_fidelity_passes_and_continuations_work(make) -> None:
    world = make()
    assert isinstance(world, World)
    world.reset(0)
    actions: list[str] = []
    while len(actions) < 4 and world.actions():
        actions.append(world.actions()[len(actions) % 2])
        world.step(actions[-1])
    agrees_with_its_record(make, actions)
    uniform = continued(make, [Request(Place("g", "p", tuple(actions[:2])), k=4, max_steps=5)])[0]
    assert 4 == len(uniform.outcomes)
    same = [Request(Place("g", "start"), k=2, max_steps=len(actions))]
    if world.deterministic:
        assert 1 == len(set(continued(make, same, scripted(actions))[0].rewards.tolist()))


def test_an_episode_that_its_horizon_ended_is_cut_off_and_one_that_was_won_is_not(tmp_path) -> None:
    game = partial(TextWorldGame, game_file("promises", SIZES, tmp_path), horizon=2)
    asked = [Request(Place("g", "start"), k=8)]
    assert {"truncated"} == {o.status for o in continued(game, asked)[0].outcomes}
    lake = partial(GymWorld, "FrozenLake-v1", max_episode_steps=9)
    ends = {
        (o.steps < 9, o.status) for o in continued(lake, [Request(Place("g", "start"), k=60)])[0].outcomes
    }
    assert {(True, "finished"), (False, "truncated")} <= ends
    assert (True, "truncated") not in ends


def test_gymnasium_environments_are_made_by_name() -> None:
    batch = Batch.from_records([{"id": "a", "group": "g", "steps": []}])
    world = world_named("gym:FrozenLake-v1", batch)("g")
    world.reset(0)
    assert (["0", "1", "2", "3"], 100) == (world.actions(), world.steps_left())
    short = world_named("gym:Taxi-v4", batch, horizon=7)("g")
    short.reset(0)
    assert 7 == short.steps_left()
    with pytest.raises(ParamError, match="no environment"):
        world_named("gym:FrozenLak-v1", batch)("g")
