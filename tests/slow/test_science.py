"""ScienceWorld in its real simulator: a JVM a world, which comes back to its states and ends with it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from accredit.data import Batch
from accredit.errors import ParamError, ProbeError
from accredit.oracle.named import world_named
from accredit.planners import Request
from accredit.worlds import World
from accredit.worlds.science import ScienceWorld
from tests.worlds.promises import agrees_with_its_record, continued, places, scripted, stand, walked

# A JVM takes seconds to start, and one that is new is slow.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def boil() -> Iterator[ScienceWorld]:
    world = ScienceWorld("boil", 1, free=True)
    yield world
    world.close()


@pytest.fixture(scope="module")
def living() -> Iterator[ScienceWorld]:
    world = ScienceWorld("find-living-thing", 3)
    yield world
    world.close()


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return state.stdout.strip() not in ("", "Z", "Zs")


def java_of(world: ScienceWorld) -> int:
    return int(world._env._gateway.java_process.pid)


def test_the_gold_path_scores_100_in_rises(boil) -> None:
    gold = boil.solution()
    boil.reset(0)
    rewards = [boil.step(action)[1] for action in gold if boil.actions() is None]
    assert 1.0 == pytest.approx(sum(rewards), abs=1e-9)
    assert min(rewards) >= 0
    assert boil.key().startswith("score 100 | done | ")
    assert [] == boil.actions()
    with pytest.raises(ParamError, match="over"):
        boil.step("wait1")


def test_it_comes_back_to_places_of_random_walks_exactly(living) -> None:
    """All objects with their temperatures, all texts, possible actions and rewards; also in another JVM."""
    rng = np.random.default_rng(7)
    other = ScienceWorld("find-living-thing", 3)
    try:
        for _ in range(3):
            living.reset(0)
            walked(living, rng.integers(0, 1000, size=int(rng.integers(1, 8))).tolist())
            here, token = stand(living), living.snapshot()
            ahead = rng.integers(0, 1000, size=5).tolist()
            first = walked(living, ahead)
            for again in (living, other):
                again.restore(token)
                assert here == stand(again)
                assert first == walked(again, ahead)
    finally:
        other.close()


def test_fidelity_passes_and_continuations_of_the_gold_path_score_100(boil) -> None:
    """One JVM for all: the worlds that are asked for are the same one, taken back."""
    assert isinstance(boil, World)
    assert (True, 50.0, True, False) == (
        boil.exact_snapshot, boil.snapshot_cost, boil.deterministic, boil.side_effects,
    )  # fmt: skip
    gold = boil.solution()
    agrees_with_its_record(lambda: boil, gold[:5])
    boil.reset(0)
    needed = next(n for n, action in enumerate(gold, start=1) if boil.step(action)[2])
    here, _ = places(lambda: boil, gold[:needed])
    for k in (0, 12):
        [best] = continued(lambda: boil, [Request(here[k])], scripted(gold), slots=1)
        scored = int(here[k].state.split()[1])  # per cent, of which continuations get the rest
        assert 1 - scored / 100 == pytest.approx(best.mean, abs=0.005)


def otherwise(options: list[str], action: str) -> list[str]:
    """The offered actions that do the same: things have several names, of which one is offered."""
    if action in options or action.startswith(("look", "examine")):
        return [action] if action in options else []
    if action.startswith("open door"):
        return [option for option in options if option.startswith("open ") and "door" in option]
    verb, end = action.split(maxsplit=1)[0], action.rpartition(" to ")[2]
    return [next(o for o in options if o.startswith(f"{verb} ") and o.endswith(f" to {end}"))]


def test_what_is_offered_is_short_and_enough_to_score_100(living) -> None:
    gold, done = living.solution(), list[str]()
    living.reset(0)
    for action in gold:
        for offered in otherwise(living.actions(), action):
            options = living.actions()
            assert 5 <= len(options) == len(set(options)) <= 400
            assert not [o for o in options if o.startswith(("look", "inventory", "task", "connect"))]
            done.append(offered)
            living.step(offered)
    assert living.key().startswith("score 100 | done"), done


def test_a_wrong_focus_fails_the_task_without_a_negative_score(living) -> None:
    living.reset(0)
    wrong = next(action for action in living.actions() if action.startswith("focus on"))
    _, reward, over = living.step(wrong)
    assert (0.0, True, []) == (reward, over, living.actions())


def test_a_question_back_is_answered_by_a_number(boil) -> None:
    """Several things of one name: the simulator asks which, and the key tells that it asked."""
    boil.reset(0)
    before = boil.key()
    seen, reward, over = boil.step("focus on wood cup")
    assert "Ambiguous request" in seen
    assert (0.0, False) == (reward, over)
    assert before != boil.key()


def test_variations_differ_and_wrong_names_are_told(boil) -> None:
    assert "Task Description" in boil.reset(1)
    assert boil.reset(0) == boil.reset(1)
    with pytest.raises(ParamError, match="boil"):
        ScienceWorld("boill")
    with pytest.raises(ParamError, match="0 to 29"):
        ScienceWorld("boil", 30)
    with pytest.raises(ParamError, match="horizon"):
        ScienceWorld("boil", horizon=0)


def test_another_state_than_before_is_refused(boil) -> None:
    boil.reset(0)
    boil.step("wait1")
    given, _ = boil.snapshot()
    with pytest.raises(ProbeError, match="the same actions led to"):
        boil.restore((given, "score 0 | open | 0123456789abcdef"))


def test_a_jvm_ends_with_its_world_by_name() -> None:
    """Collected, or left to the end of the process: none is left behind; the environment is as before."""
    before = dict(os.environ)
    world = world_named("scienceworld:boil:1", Batch.from_records([{"id": "a", "steps": []}]), horizon=2)("g")
    world.reset(0)
    assert (False, True) == (world.step("wait1")[2], world.step("wait1")[2])
    assert before == dict(os.environ)
    java = java_of(world)
    assert alive(java)
    del world
    gc.collect()
    assert not alive(java)
    script = (
        "from accredit.worlds.science import ScienceWorld\n"
        "print(ScienceWorld('boil')._env._gateway.java_process.pid)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not alive(int(ran.stdout))
