"""Environments without snapshots: copies, states, transcripts and forks are exact, chance included."""

from __future__ import annotations

import copy
import gc
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.errors import ParamError, ProbeError
from accredit.planners import Place, Request
from accredit.worlds import World
from accredit.worlds.forked import Fork
from accredit.worlds.snapshots import Deepcopy, GetSet, Transcript
from tests.worlds.promises import agrees_with_its_record, continued, goes_on_as_before, scripted
from tests.worlds.toys import Closed, Urn, closed, threaded, urn


def got(play: Urn) -> tuple:
    return play.rng.bit_generator.state, tuple(play.bag), tuple(play.drawn)


def put(play: Urn, state: tuple) -> None:
    play.rng = np.random.default_rng()
    play.rng.bit_generator.state = state[0]
    play.bag, play.drawn = list(state[1]), list(state[2])


def deep() -> Deepcopy:
    return Deepcopy(urn())


def stated() -> GetSet:
    return GetSet(urn(), got, put)


def transcribed() -> Transcript:
    return Transcript(closed())


def forked() -> Fork:
    return Fork(closed)


KINDS: dict[str, Callable[[], World]] = {
    "deepcopy": deep, "get/set": stated, "transcript": transcribed, "fork": forked,
}  # fmt: skip
picks = st.lists(st.integers(0, 2), max_size=6)


@pytest.mark.parametrize("kind", KINDS)
@given(before=picks, after=picks, between=picks)
@settings(max_examples=10, deadline=None)
def test_a_restored_environment_goes_on_as_before(kind, before, after, between) -> None:
    goes_on_as_before(KINDS[kind], before, after, between)


@pytest.mark.parametrize("kind", KINDS)
def test_chance_is_part_of_a_snapshot_also_after_it_was_seeded_anew(kind) -> None:
    world = KINDS[kind]()
    assert isinstance(world, World)
    world.reset(3)
    world.step("draw")
    world.reseed(11)
    token = world.snapshot()
    first = [world.step("draw") for _ in range(4)]
    found = set()
    for seed in range(12):
        world.restore(token)
        world.reseed(seed)
        found.add(tuple(world.step("draw")[0] for _ in range(4)))
    assert len(found) > 6
    world.restore(token)
    assert first == [world.step("draw") for _ in range(4)]
    assert (1, 13) == (world.cost.snapshots, world.cost.restores)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_declared_is_so(kind) -> None:
    world = KINDS[kind]()
    assert (True, False, False) == (world.exact_snapshot, world.deterministic, world.side_effects)
    world.reset(1)
    world.step("draw")
    assert (1.0 if kind == "transcript" else 0.0) == world.snapshot_cost
    before = world.cost.environment_steps
    world.restore(world.snapshot())
    assert world.snapshot_cost == world.cost.environment_steps - before


@pytest.mark.parametrize("kind", KINDS)
def test_fidelity_passes_and_continuations_work(kind) -> None:
    agrees_with_its_record(KINDS[kind], ["draw", "draw", "put back", "draw"])
    actions = ["draw"] * 8
    here = Place("g", "p", ("draw",) * 3)
    answer = continued(KINDS[kind], [Request(here, k=6)], scripted(actions))[0]
    assert {5} == {o.steps for o in answer.outcomes}
    assert len(set(answer.rewards.tolist())) == 1  # all that is left is drawn, in whatever order


class Clocked(Urn):
    """Says that it is over at its third draw, and that this is a limit of its own."""

    def step(self, action: str) -> tuple[str, float, bool]:
        seen, reward, over = super().step(action)
        return seen, reward, over or self.cut()

    def cut(self) -> bool:
        return len(self.drawn) >= 3


@pytest.mark.parametrize("kind", [Deepcopy, Transcript])
def test_an_episode_that_a_limit_ended_is_truncated(kind) -> None:
    actions = ["draw"] * 8
    answer = continued(lambda: kind(Clocked()), [Request(Place("g", "start"), k=3)], scripted(actions))[0]
    assert {(3, "truncated")} == {(o.steps, o.status) for o in answer.outcomes}
    whole = continued(KINDS["deepcopy"], [Request(Place("g", "start"), k=3)], scripted(actions))[0]
    assert {"finished"} == {o.status for o in whole.outcomes}


def test_a_transcript_that_leads_elsewhere_is_refused() -> None:
    class Drifting(Urn):
        """Its chance does not follow the seed."""

        def reset(self, seed: int) -> str:
            super().reset(seed)
            self.rng = np.random.default_rng()
            return self.seen()

    world = Transcript(Drifting())
    world.reset(1)
    for _ in range(6):
        world.step("draw")
    token = world.snapshot()
    with pytest.raises(ProbeError, match="led to"):
        world.restore(token)  # 1 in 20160 is the same


# -- forks ----------------------------------------------------------------------------------------------


def test_only_a_fork_or_a_transcript_can_save_what_cannot_be_copied() -> None:
    with pytest.raises(TypeError, match="pickle"):
        copy.deepcopy(Closed())
    world = forked()
    world.reset(0)
    token = world.snapshot()
    turn = world.step("draw")[0]
    world.restore(token)
    assert turn == world.step("draw")[0]


def test_errors_cross_the_line_and_the_process_stays() -> None:
    world = forked()
    world.reset(0)
    with pytest.raises(ParamError, match="cannot 'fly'"):
        world.step("fly")
    with pytest.raises(RuntimeError, match="ZeroDivisionError: by zero"):
        world.step("divide")
    assert "turn 2" in world.seen()


def test_an_environment_that_dies_is_told_of_and_its_snapshots_live() -> None:
    world = forked()
    world.reset(0)
    token = world.snapshot()
    with pytest.raises(ProbeError, match="process ended"):
        world.step("crash")
    with pytest.raises(ProbeError, match="process ended"):
        world.seen()
    assert "turn 0" in world.restore(token)
    with pytest.raises(ProbeError, match=r"cannot be made: KeyError"):
        Fork(partial({}.__getitem__, "x"))


def test_an_environment_with_threads_is_not_forked() -> None:
    world = Fork(threaded)
    world.reset(0)
    with pytest.raises(ProbeError, match="has threads"):
        world.snapshot()
    assert world.step("draw")


def test_a_process_with_threads_spawns_a_clean_one() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        world = forked()
        seen = world.reset(0)
        token = world.snapshot()
        world.step("draw")
        assert seen == world.restore(token)
    finally:
        stop.set()
        thread.join()


def _descendants() -> set[int]:
    """Processes whose line of parents, or whose session, is ours."""
    found = set()
    for at in Path("/proc").iterdir():
        if at.name.isdigit():
            try:
                said = (at / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if said[0] != "Z" and int(said[3]) == os.getsid(0):
                found.add(int(at.name))
    return found


def test_snapshots_that_nobody_holds_end() -> None:
    gc.collect()
    before = _descendants()
    world = forked()
    world.reset(0)
    tokens = [world.snapshot() for _ in range(5)]
    world.restore(tokens[0])
    assert len(_descendants() - before) >= 6
    del tokens, world
    gc.collect()
    for _ in range(100):
        if not _descendants() - before:
            return
        time.sleep(0.05)
    raise AssertionError(_descendants() - before)
