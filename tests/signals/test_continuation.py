"""The continuation engine on a tabular world: what it promises of seeds, cache, budgets and crashes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.errors import DataError, Interrupted, ParamError, ProbeError, StoreError
from accredit.oracle import solve
from accredit.planners import Answer, Outcome, Place, Request
from accredit.signals.continuation import (
    Alone,
    Budget,
    Engine,
    Journal,
    Player,
    Progress,
    Replay,
    Workers,
    check_fidelity,
)
from accredit.signals.continuation.engine import Crew
from accredit.signals.continuation.seeds import seed_of
from accredit.worlds import TabularWorld, Task, make, make_policy
from accredit.worlds.acting import Actor, Choice, Scene, TableActor, UniformActor

START = Place("g", "start")


def task_of(family: str = "rooms") -> Task:
    return make(family, seed=1)


def player_of(family: str = "rooms", slots: int = 8, actor: Actor | None = None, **options: int) -> Player:
    task = task_of(family)
    playing = actor or TableActor(task, make_policy(task, 0.3))
    return Player(
        Replay(lambda group: TabularWorld(task)),
        {"actor": playing, "uniform": UniformActor()},
        slots=slots,
        **options,
    )


def rewards(answers: Sequence[Answer]) -> list[list[float]]:
    return [a.rewards.tolist() for a in answers]


def places(n: int) -> list[Place]:
    """Places of one rollout of uniform actions."""
    world, rng, found, done = TabularWorld(task_of()), np.random.default_rng(3), [], list[str]()
    world.reset(0)
    for t in range(n):
        found.append(Place("g", f"path {t}", tuple(done), 0, world.key(), "r", t))
        done.append(str(rng.choice(world.actions())))
        world.step(done[-1])
    return found


# --- seeds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_there_are_never_more_worlds_than_slots(slots: int) -> None:
    """A bug: one more job was begun after each step, however many ran; a world can be a JVM."""
    task, made = task_of(), list[str]()

    def world(group: str) -> TabularWorld:
        made.append(group)
        return TabularWorld(task)

    Engine(Alone(Player(Replay(world), {"actor": UniformActor()}, slots=slots))).run([Request(START, k=30)])
    assert slots == len(made)


def test_results_do_not_depend_on_order_slots_workers_or_cache() -> None:
    asked = [Request(p, k=5) for p in places(4)]
    alone = rewards(Engine(Alone(player_of(slots=1))).run(asked))
    assert alone == rewards(Engine(Alone(player_of(slots=16))).run(asked))
    assert alone == rewards(Engine(Alone(player_of())).run(asked[::-1]))[::-1]
    with Engine(Workers(partial(player_of, slots=3), 2, chunk=2)) as engine:
        assert alone == rewards(engine.run(asked))
    stepwise = Engine(Alone(player_of()))
    stepwise.run([Request(p, k=2) for p in places(4)])
    assert alone == rewards(stepwise.run(asked))
    assert alone != rewards(Engine(Alone(player_of()), seed=1).run(asked))


def test_asking_for_more_tops_up_and_never_samples_again() -> None:
    engine = Engine(Alone(player_of()))
    few = engine.run([Request(START, k=3)])[0]
    many = engine.run([Request(START, k=7)])[0]
    assert few.rewards.tolist() == many.rewards.tolist()[:3]
    assert [o.cached for o in many.outcomes] == [True] * 3 + [False] * 4
    assert engine.ledger.physical.continuations == 7
    assert engine.ledger.logical.continuations == 10


def test_places_of_one_key_share_their_continuations_unless_told_otherwise() -> None:
    a, b = Place("g", "start", rollout="a"), Place("g", "start", rollout="b")
    shared, own = Engine(Alone(player_of())), Engine(Alone(player_of()))
    one, two = shared.run([Request(a, k=6), Request(b, k=6)])
    assert one.outcomes[0].seed == two.outcomes[0].seed
    assert shared.ledger.physical.continuations == 6
    one, two = own.run([Request(a, k=6, shared=False), Request(b, k=6, shared=False)])
    assert {o.seed for o in one.outcomes}.isdisjoint(o.seed for o in two.outcomes)
    assert own.ledger.physical.continuations == 12


def test_arms_share_their_chance_on_request() -> None:
    left, right = (Request(START, forced=(a,), arm=a) for a in ("go north", "go south"))
    assert seed_of(left, 0, 0) != seed_of(right, 0, 0)
    common = [Request(START, forced=(a,), arm=a, common=True) for a in ("go north", "go south")]
    assert len({seed_of(r, 0, 0) for r in common}) == 1
    assert seed_of(common[0], 0, 0) != seed_of(common[0], 1, 0)


def test_another_version_of_the_policy_is_played_anew(tmp_path: Path) -> None:
    journal = tmp_path / "j.jsonl"
    task = task_of()
    for rate, bought in ((0.3, 4), (0.3, 0), (0.6, 4)):
        actor = TableActor(task, make_policy(task, rate))
        with Engine(Alone(player_of(actor=actor)), journal=str(journal)) as engine:
            engine.run([Request(START, k=4)])
            assert engine.ledger.physical.continuations == bought


# --- what comes back ---------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["rooms", "umbrella"])
def test_means_agree_with_exact_values(family: str) -> None:
    task = task_of(family)
    policy = make_policy(task)
    actor = TableActor(task, policy)
    answer = Engine(Alone(player_of(family, actor=actor))).run(
        [Request(Place("g", f"start {s}", start=s), k=4) for s in range(150)]
    )
    found = np.array([a.mean for a in answer])
    error = found.std(ddof=1) / np.sqrt(found.size)
    assert abs(found.mean() - solve(task, policy).value) <= 3.5 * error


def test_forced_actions_come_first_and_illegal_ones_are_results() -> None:
    world = TabularWorld(task_of())
    world.reset(0)
    legal = world.actions()[0]
    good, bad = Engine(Alone(player_of())).run(
        [Request(START, forced=(legal,), record=True), Request(START, forced=("fly",))]
    )
    path = good.outcomes[0].path
    assert (path[0].action, path[0].logprob) == (legal, None)
    assert all(v.logprob is not None and v.logprob <= 0 for v in path[1:])
    assert sum(v.reward for v in path) == pytest.approx(good.outcomes[0].reward)
    assert (bad.outcomes[0].status, bad.outcomes[0].reward, bad.k) == ("illegal", 0.0, 1)


def test_an_illegal_action_is_a_step_of_its_continuation() -> None:
    """It was chosen, so it can be credited: branches keep it, with a reward of 0."""
    (answer,) = Engine(Alone(player_of())).run([Request(START, forced=("fly",), record=True)])
    assert [(v.action, v.reward) for v in answer.outcomes[0].path] == [("fly", 0.0)]
    assert answer.outcomes[0].steps == 1


def test_a_continuation_that_is_cut_is_a_result() -> None:
    answer, none = Engine(Alone(player_of())).run(
        [Request(START, k=4, max_steps=1), Request(START, k=2, max_steps=0)]
    )
    assert {(o.status, o.steps) for o in answer.outcomes} <= {("truncated", 1), ("finished", 1)}
    assert {(o.status, o.steps, o.reward) for o in none.outcomes} == {("truncated", 0, 0.0)}


def test_a_place_that_is_another_state_than_recorded_is_no_result() -> None:
    wrong = Place("g", "k", (), 0, "another room")
    gone = Place("g", "k2", ("fly",), 0)
    for answer in Engine(Alone(player_of())).run([Request(wrong, k=2), Request(gone, k=1)]):
        assert answer.counts() == {"failed_restore": answer.request.k}
        assert (answer.k, answer.mean, answer.se) == (0, None, None)


class Flaky:
    """An actor that fails in a share of its calls, by a counter of its own."""

    def __init__(self, inner: Actor, share: float) -> None:
        self.inner, self.version = inner, inner.version
        self._rng, self._share = np.random.default_rng(0), share

    def act(self, scenes: Sequence[Scene], rngs: Sequence[np.random.Generator]) -> Sequence[Choice]:
        if self._rng.random() < self._share:
            raise ConnectionError("injected")
        return self.inner.act(scenes, rngs)


def test_transient_faults_change_nothing() -> None:
    task = task_of()
    steady = TableActor(task, make_policy(task, 0.3))
    asked = [Request(p, k=6) for p in places(3)]
    clean = rewards(Engine(Alone(player_of(actor=steady))).run(asked))
    flaky = player_of(actor=Flaky(steady, 0.2), slots=1, retries=200)
    assert clean == rewards(Engine(Alone(flaky)).run(asked))


def test_a_lasting_fault_is_no_result_and_is_tried_again_next_time(tmp_path: Path) -> None:
    journal = str(tmp_path / "j.jsonl")
    task = task_of()
    steady = TableActor(task, make_policy(task, 0.3))
    with Engine(Alone(player_of(actor=Flaky(steady, 1.0))), journal=journal) as engine:
        answer = engine.run([Request(START, k=3)])[0]
        assert (answer.counts(), answer.k) == ({"infra_error": 3}, 0)
        assert "injected" in answer.outcomes[0].reason
    with Engine(Alone(player_of(actor=steady)), journal=journal) as engine:
        assert engine.run([Request(START, k=3)])[0].k == 3


class Outside(TabularWorld):
    side_effects = True


def test_a_world_with_effects_outside_is_refused() -> None:
    player = Player(Replay(lambda group: Outside(task_of())), {"actor": UniformActor()})
    with pytest.raises(ProbeError, match="effects outside"):
        Engine(Alone(player)).run([Request(START)])


def test_a_policy_without_an_actor_is_named() -> None:
    with pytest.raises(ParamError, match="frozen"):
        Engine(Alone(player_of())).run([Request(START, policy="frozen")])


# --- budgets -----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(
    limit=st.integers(0, 30),
    kind=st.sampled_from(["continuations", "environment_steps", "per_state", "per_rollout"]),
    slots=st.integers(1, 9),
)
def test_budgets_are_hard_and_answers_partial(limit: int, kind: str, slots: int) -> None:
    engine = Engine(Alone(player_of(slots=slots)), budget=Budget(**{kind: limit}))
    asked = [Request(p, k=3, max_steps=10, priority=-t) for t, p in enumerate(places(4))]
    answers = engine.run(asked)
    spent = engine.ledger.physical
    got = [len(a.outcomes) for a in answers]
    most = {
        "continuations": spent.continuations,
        "environment_steps": spent.environment_steps,
        "per_state": max(got),
        "per_rollout": sum(got),
    }
    assert most[kind] <= limit
    assert [a.partial for a in answers] == [n < 3 for n in got]
    if kind == "continuations":
        assert sum(got) == min(limit, 12)
        assert got == sorted(got)  # the last place is the first to be bought


@pytest.mark.parametrize("kind", ["tokens", "seconds"])
def test_what_is_spent_begins_nothing_more(kind: str) -> None:
    engine = Engine(Alone(player_of()), budget=Budget(**{kind: 0}))
    answers = engine.run([Request(START, k=3)])
    assert ([()], 0) == ([tuple(a.outcomes) for a in answers], engine.ledger.physical.continuations)
    assert answers[0].partial


def test_what_is_cached_costs_nothing_of_a_budget() -> None:
    with Journal() as journal:
        Engine(Alone(player_of()), journal=journal).run([Request(START, k=5)])
        engine = Engine(Alone(player_of()), journal=journal, budget=Budget(continuations=1))
        assert len(engine.run([Request(START, k=6)])[0].outcomes) == 6


def test_a_budget_below_zero_is_refused() -> None:
    with pytest.raises(ParamError, match="tokens"):
        Budget(tokens=-1)


class Talkative(UniformActor):
    """Uniform, at three tokens an action."""

    def act(self, scenes: Sequence[Scene], rngs: Sequence[np.random.Generator]) -> Sequence[Choice]:
        return [replace(choice, tokens=3) for choice in super().act(scenes, rngs)]


def test_a_continuation_is_cut_off_by_its_tokens_and_is_another_one_then() -> None:
    engine = Engine(Alone(player_of(actor=Talkative())))
    free, cut = engine.run([Request(START, k=4), Request(START, k=4, max_tokens=7)])
    assert {(9, 3, "truncated", "out of tokens")} == {
        (o.tokens, o.steps, o.status, o.reason) for o in cut.outcomes
    }
    assert min(o.steps for o in free.outcomes) > 3
    assert 8 == engine.ledger.physical.continuations
    [done] = engine.run([Request(START, k=4, max_tokens=10_000)])
    assert [(o.steps, o.reward) for o in free.outcomes] == [(o.steps, o.reward) for o in done.outcomes]
    with pytest.raises(ParamError, match="max_tokens"):
        Request(START, max_tokens=-1)


def test_progress_counts_what_is_there() -> None:
    seen: list[Progress] = []
    Engine(Alone(player_of()), progress=seen.append).run([Request(START, k=5)])
    assert [(p.done, p.total, p.played) for p in seen] == [(i, 5, i) for i in range(1, 6)]
    assert seen[-1].rate > 0
    assert seen[-1].left == 0
    assert seen[-1].spent["continuations"] == 5


# --- crashes -----------------------------------------------------------------------------------------


def test_the_journal_gives_back_what_was_played(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    asked = [Request(p, k=4, record=True) for p in places(3)]
    with Engine(Alone(player_of()), journal=str(path)) as engine:
        first = engine.run(asked)
    with Engine(Alone(player_of()), journal=str(path)) as engine:
        again = engine.run(asked)
        assert engine.ledger.physical.continuations == 0
    assert rewards(first) == rewards(again)
    assert [o.path for a in first for o in a.outcomes] == [o.path for a in again for o in a.outcomes]


def test_a_path_that_was_not_kept_is_played_again_with_the_same_chance() -> None:
    engine = Engine(Alone(player_of()))
    plain = engine.run([Request(START, k=3)])[0]
    told = engine.run([Request(START, k=3, record=True)])[0]
    assert plain.rewards.tolist() == told.rewards.tolist()
    assert all(o.path for o in told.outcomes)


@settings(deadline=None, max_examples=30)
@given(share=st.floats(0, 1))
def test_a_torn_tail_loses_only_its_own_continuation(
    share: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("torn") / "j.jsonl"
    asked = [Request(START, k=4)]
    with Engine(Alone(player_of()), journal=str(path)) as engine:
        whole = rewards(engine.run(asked))
    text = path.read_bytes()
    cut = round(share * len(text))
    path.write_bytes(text[:cut])
    left = max(text[:cut].count(b"\n") - 1, 0)
    with Engine(Alone(player_of()), journal=str(path)) as engine:
        assert whole == rewards(engine.run(asked))
        assert engine.ledger.physical.continuations == 4 - left


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with Engine(Alone(player_of()), journal=str(path)) as engine:
        engine.run([Request(START, k=3)])
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2][:-5]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(DataError, match="line 3"):
        Journal(path)
    path.write_text('{"schema": "other"}\n')
    with pytest.raises(DataError, match="no journal"):
        Journal(path)


def test_a_journal_belongs_to_one_run_at_a_time(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.jsonl"), pytest.raises(StoreError, match="in use"):
        Journal(tmp_path / "j.jsonl")


def test_equal_digests_of_unlike_continuations_are_refused() -> None:
    journal = Journal()
    journal.add("id", "mark", Outcome("finished", 1.0))
    assert journal.get("id", "mark") is not None
    with pytest.raises(DataError, match="digest"):
        journal.get("id", "other")


def job(journal: str, crew: str) -> None:
    """Buy what the test below asks."""
    crews: dict[str, Callable[[], Crew]] = {
        "alone": lambda: Alone(player_of(slots=2)),
        "workers": lambda: Workers(partial(player_of, slots=2), 2, chunk=1),
    }
    with Engine(crews[crew](), journal=journal) as engine:
        engine.run([Request(p, k=60) for p in places(6)])


def killed(journal: Path, crew: str, after: float) -> None:
    """Start the job in a process of its own, and end it by SIGKILL some seconds after it began to write."""
    process = multiprocessing.get_context("fork").Process(target=job, args=(str(journal), crew))
    process.start()
    while process.is_alive() and not journal.exists():
        time.sleep(0.001)
    time.sleep(after)
    process.kill()
    process.join()


@pytest.mark.parametrize(
    ("crew", "kills"),
    [
        ("alone", 10),
        ("workers", 10),
        pytest.param("alone", 100, marks=pytest.mark.slow),
        pytest.param("workers", 100, marks=pytest.mark.slow),
    ],
)
def test_a_job_killed_at_random_moments_ends_with_the_numbers_of_an_unbroken_one(
    tmp_path: Path, crew: str, kills: int
) -> None:
    journal, rng = tmp_path / "j.jsonl", np.random.default_rng(7)
    asked = [Request(p, k=60) for p in places(6)]
    kept = 0
    for _ in range(kills):
        killed(journal, crew, float(rng.uniform(0, 0.2)))
        with Journal(journal) as found:
            assert len(found) >= kept  # nothing that was kept is lost
            kept = len(found)
    with Engine(Alone(player_of()), journal=str(journal)) as engine:
        resumed = rewards(engine.run(asked))
        assert engine.ledger.physical.continuations == 360 - kept
    assert resumed == rewards(Engine(Alone(player_of())).run(asked))


class Deadly(TableActor):
    """Kills its process in one state of chance."""

    def act(self, scenes: Sequence[Scene], rngs: Sequence[np.random.Generator]) -> Sequence[Choice]:
        if any(not scene.history for scene in scenes) and os.environ.get("DEADLY") == "yes":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().act(scenes, rngs)


def deadly_player() -> Player:
    task = task_of()
    return player_of(slots=1, actor=Deadly(task, make_policy(task, 0.3)))


def test_a_continuation_that_kills_its_process_is_given_up_and_the_others_are_played(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = [Request(places(1)[0], k=2), Request(places(3)[2], k=6)]
    monkeypatch.setenv("DEADLY", "yes")
    with Engine(Workers(deadly_player, 2, chunk=2)) as engine:
        dead, alive = engine.run(asked)
    assert dead.counts() == {"infra_error": 2}
    assert alive.rewards.tolist() == rewards(Engine(Alone(player_of())).run(asked))[1]


class Interrupting:
    """Presses Ctrl-C after some choices."""

    version = "interrupting"

    def __init__(self, inner: Actor, after: int) -> None:
        self.inner, self.left = inner, after

    def act(self, scenes: Sequence[Scene], rngs: Sequence[np.random.Generator]) -> Sequence[Choice]:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return self.inner.act(scenes, rngs)


def test_ctrl_c_keeps_what_was_played_and_says_how_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    task = task_of()
    actor = Interrupting(TableActor(task, make_policy(task, 0.3)), 60)
    with pytest.raises(Interrupted, match=r"after [1-9]") as caught:
        Engine(Alone(player_of(actor=actor, slots=1)), journal=str(path)).run([Request(START, k=100)])
    assert "same command" in caught.value.hint
    with Journal(path) as journal:
        assert len(journal) > 0


# --- planners ----------------------------------------------------------------------------------------


class Halving:
    """Asks for a second look at the better half."""

    def __init__(self, asked: Sequence[Place]) -> None:
        self.left = list(asked)
        self.rounds = 0

    def ask(self) -> Sequence[Request]:
        return [Request(p, k=4) for p in self.left] if len(self.left) > 1 else []

    def tell(self, answers: Sequence[Answer]) -> None:
        self.rounds += 1
        best = sorted(answers, key=lambda a: -(a.mean or 0.0))
        self.left = [a.request.place for a in best[: len(best) // 2]]


def test_a_planner_is_driven_until_it_asks_no_more() -> None:
    planner = Engine(Alone(player_of())).drive(Halving(places(4)))
    assert (planner.rounds, len(planner.left)) == (2, 1)


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=12))
def test_no_spread_is_not_no_error(found: list[float]) -> None:
    answer = Answer(Request(START), tuple(Outcome("finished", x) for x in found))
    p = (sum(found) + 1) / (len(found) + 2)
    assert answer.se == pytest.approx((p * (1 - p) / len(found)) ** 0.5)
    assert answer.se > 0


# --- fidelity ----------------------------------------------------------------------------------------


def walked(task: Task) -> tuple[list[Place], list[tuple[str, str] | None]]:
    """Places of a walk without slips, and what came next at each."""
    world, rng, found, after, done = TabularWorld(task), np.random.default_rng(3), [], [], list[str]()
    world.reset(0)
    for t in range(6):
        found.append(Place("g", f"path {t}", tuple(done), 0, world.key(), "r", t))
        done.append(str(rng.choice(world.actions())))
        world.step(done[-1])
        after.append((done[-1], world.key()))
    return found, after


class Sure(TabularWorld):
    deterministic = True


def test_a_world_that_is_the_recorded_one_passes_the_check() -> None:
    task = make("rooms", seed=1, slip=0.0)
    found = check_fidelity(Replay(lambda group: Sure(task)), *walked(task))
    assert (found.restores, found.mismatches, found.rate) == (18, 0, 0.0)
    found.refuse()


def test_another_world_fails_it_by_group_and_step() -> None:
    where, after = walked(make("rooms", seed=1, slip=0.0))
    other = make("rooms", seed=2, slip=0.0)
    found = check_fidelity(Replay(lambda group: Sure(other)), where, after, times=2)
    assert found.mismatches == found.restores == 12
    assert found.by_group == {"g": 12}
    assert found.by_step == dict.fromkeys(range(6), 2)
    with pytest.raises(ProbeError, match="12 of 12 restored states"):
        found.refuse()


def test_a_step_that_leads_elsewhere_is_found() -> None:
    task = make("rooms", seed=1, slip=0.0)
    where, after = walked(task)
    after[2] = (after[2][0], "somewhere else")
    found = check_fidelity(Replay(lambda group: Sure(task)), where, after, times=1)
    assert found.by_step == {2: 1}
