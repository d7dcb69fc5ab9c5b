"""ALFWorld-style households, played by TextWorld's PDDL engine with ALFWorld's own domain and grammar."""

from __future__ import annotations

import json
import sys
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.cli import run
from accredit.errors import BackendError, ParamError
from accredit.oracle import tabulate
from accredit.planners import Request
from accredit.store import read_truth
from accredit.worlds import World
from accredit.worlds.acting import UniformActor
from accredit.worlds.household import HouseholdWorld
from accredit.worlds.households import TASKS
from tests.worlds.promises import (
    agrees_with_its_record,
    continued,
    goes_on_as_before,
    places,
    scripted,
    stand,
)

pytestmark = pytest.mark.slow

picks = st.lists(st.integers(0, 30), max_size=6)
seeds = st.integers(0, 10_000)
LIGHT = "look_at_obj_in_light"


@pytest.mark.parametrize("task", TASKS)
def test_the_solution_wins_with_its_last_command(task) -> None:
    """In 12 households of each task, of 3 to 8 receptacles; each command is one of those offered."""
    for seed in range(12):
        world = HouseholdWorld(seed, task=task, size=3 + seed % 6)
        world.reset(0)
        for n, command in enumerate(world.house.solution, start=1):
            assert command in world.actions()
            assert float(n == len(world.house.solution)) == world.step(command)[1]
        assert [] == world.actions()


@given(seeds, picks, picks, picks)
@settings(max_examples=12, deadline=None)
def test_a_restored_household_goes_on_as_before(seed, before, after, between) -> None:
    goes_on_as_before(partial(HouseholdWorld, seed), before, after, between)


@pytest.mark.parametrize("task", TASKS)
def test_states_of_one_key_look_and_go_on_alike(task) -> None:
    """Whatever the way to them; `examine`, `look` and `help`, which the planner notes, change no key."""
    world, rng = HouseholdWorld(2, task=task, size=3, horizon=30), np.random.default_rng(3)
    looks: dict[str, tuple[str, ...]] = {}
    leads: dict[tuple[str, str], tuple[str, float]] = {}
    met = 0
    for _ in range(60):
        world.reset(0)
        while world.steps_left() > 1 and world.actions():
            here = world.key()
            met += here in looks
            assert looks.setdefault(here, (world.seen(), *world.actions())) == (
                world.seen(),
                *world.actions(),
            )
            idle = [command for command in world._commands if command not in world.actions()]
            helpful = [command for command in world.house.solution if command in world.actions()]
            kinds = [world.actions(), idle, helpful or idle]
            action = str(rng.choice(kinds[rng.choice(3, p=[0.3, 0.1, 0.6])]))
            _, reward, _ = world.step(action)
            assert leads.setdefault((here, action), (world.key(), reward)) == (world.key(), reward)
            assert action not in idle or here == world.key()
    assert met > 100
    assert {0.0, 1.0} == {reward for _, reward in leads.values()}


def test_a_lamp_that_was_used_twice_has_been_used() -> None:
    """In ALFWorld a lamp counts from its first use on; what the key says of it is what the task asks."""
    world = HouseholdWorld(1, task=LIGHT, size=3)
    world.reset(0)
    lamp = f"go to {world.house.things['desklamp 1']}"
    for command in (lamp, "use desklamp 1"):
        world.step(command)
    used = stand(world)[:3]
    assert "istoggled(desklamp 1)" in used[0]
    world.step("use desklamp 1")
    assert used == stand(world)[:3]
    again = HouseholdWorld(1, task=LIGHT, size=3)
    again.restore(world.snapshot())
    assert stand(world) == stand(again)
    for command in [c for c in world.house.solution if not c.startswith("use ")]:
        world.step(command)
    assert world.key().endswith("won")


def test_what_cannot_be_done_changes_nothing_and_is_a_step() -> None:
    world = HouseholdWorld(2, horizon=3, free=True)
    world.reset(0)
    before = stand(world)[:2]
    assert (None, 3) == (world.actions(), world.steps_left())
    assert (before[1], 0.0, False) == world.step("fly to the moon")
    assert (*before, 2) == (*stand(world)[:2], world.steps_left())
    assert [False, True] == [world.step("look")[2] for _ in range(2)]
    assert [] == world.actions()
    with pytest.raises(ParamError, match="over"):
        world.step("look")


def test_a_world_leaves_the_command_line_alone() -> None:
    """The translator of PDDL writes into sys.argv."""
    before = list(sys.argv)
    HouseholdWorld(3, size=3)
    assert before == sys.argv


def test_a_python_on_which_the_grammar_does_not_work_is_named(monkeypatch) -> None:
    """TextWorld 1.7 evaluates words by `locals().update`, which changes nothing from Python 3.13 on."""
    from textworld.envs.pddl.textgen import EvalSymbol

    def derive(self, context=None):
        raise NameError("name 'r' is not defined")

    monkeypatch.setattr(EvalSymbol, "derive", derive)
    with pytest.raises(BackendError, match=r"grammar does not work.*3\.11 or 3\.12"):
        HouseholdWorld(3, size=3)


def test_what_is_seen_is_alfworlds() -> None:
    world = HouseholdWorld(3, task="pick_heat_then_place_in_recep", size=3)
    seen = world.reset(0)
    assert seen.startswith(f"Your task is to: {world.house.sentence}.\n\nYou are in the middle of a room. ")
    assert all(f"a {place}" in seen for place in world.house.receptacles)
    source = world.house.things["bread 1"]
    seen = world.step(f"go to {source}")[0]
    assert f"You are facing the {source}." in seen
    assert "a bread 1" in seen
    assert "You are carrying: a bread 1." in world.step(f"take bread 1 from {source}")[0]


def test_it_keeps_the_promises_of_a_world() -> None:
    make = partial(HouseholdWorld, 5)
    world = make()
    assert isinstance(world, World)
    assert (True, 0.0, True, False) == (
        world.exact_snapshot, world.snapshot_cost, world.deterministic, world.side_effects,
    )  # fmt: skip
    agrees_with_its_record(make, world.house.solution)
    here, _ = places(make, world.house.solution)
    wins = continued(make, [Request(p) for p in here], scripted(world.house.solution))
    assert [1.0] * len(here) == [a.mean for a in wins]
    assert HouseholdWorld(5).reset(0) == make().reset(1)
    assert HouseholdWorld(5).reset(0) != HouseholdWorld(6).reset(0)


@pytest.mark.parametrize(
    ("seed", "task"), [(1, LIGHT), (1, "pick_and_place_simple"), (1, "pick_two_obj_and_place")]
)
def test_continuations_of_a_small_household_average_to_the_exact_value(seed, task) -> None:
    make = partial(HouseholdWorld, seed, task=task, size=3, horizon=20)
    table = tabulate(make(), UniformActor())
    assert 0 < table.value < 1
    here, _ = places(make, make().house.solution[:1])
    answer = continued(make, [Request(here[0], k=200)], slots=4)[0]
    assert abs(answer.mean - table.value) <= 3 * np.sqrt(table.value * (1 - table.value) / 200)


def test_truth_by_name_is_that_of_who_played(tmp_path) -> None:
    """Rollouts of a uniform actor, and exact truth; the group's name tells the seed of its household."""
    rng, rollouts = np.random.default_rng(1), []
    for n in range(4):
        world, steps, won = HouseholdWorld(10, horizon=12), list[dict[str, str]](), 0.0
        world.reset(0)
        while options := world.actions():
            steps.append({"state": world.key(), "action": str(rng.choice(options))})
            won = world.step(steps[-1]["action"])[1]
        rollouts.append({"id": f"r{n}", "group": "house-10", "reward": won, "steps": steps})
    path, out = tmp_path / "rollouts.jsonl", tmp_path / "truth.jsonl"
    path.write_text("".join(json.dumps(rollout) + "\n" for rollout in rollouts))
    asked = ["truth", str(path), "--world", "household", "--policy", "uniform", "--horizon", "12"]
    assert 0 == run([*asked, "-o", str(out)])
    found = read_truth(out)
    assert sum(len(rollout["steps"]) for rollout in rollouts) == len(found.step)
    exact = tabulate(HouseholdWorld(10, horizon=12), UniformActor()).value
    first = found.numbers["value"][np.equal(found.step, 0)]
    assert [exact] * 4 == pytest.approx(first.tolist(), abs=1e-12)
