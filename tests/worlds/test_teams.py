"""Teams: whose turn it is decides who is asked, and planners of teams meet exact values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import accredit as ac
from accredit.data import Batch
from accredit.errors import ProbeError
from accredit.oracle.tabulated import tabulate
from accredit.planners import Place, Request, branched
from accredit.planners.c3 import Alternatives
from accredit.planners.treemem import FanOut
from accredit.signals.continuation import Alone, Engine, Player, Replay
from accredit.worlds import Policy, TabularWorld, make, make_policy
from accredit.worlds.acting import Choice, Scene, ScriptedActor, TableActor, UniformActor
from accredit.worlds.protocol import agent_of
from accredit.worlds.teams import TeamActor
from tests.planners.exact import Exact

TASK = make("team", seed=3, agents=3, choices=4, interaction=3.0)
TABLE = make_policy(TASK)
ERROR = 0.2
MEMBERS = {
    "agent 0": TableActor(TASK, TABLE),
    "agent 1": UniformActor(),
    "agent 2": ScriptedActor(lambda scene: "choice 2", error=ERROR),
}


def rows_of_team() -> Policy:
    """The team as one table: each state has the probabilities of the agent that decides there."""
    probs = TABLE.probs_NA.copy()
    allowed = TASK.allowed_NA / np.maximum(TASK.allowed_NA.sum(1, keepdims=True), 1)
    by_rule = np.eye(TASK.n_actions)[TASK.actions.index("choice 2")] * (1 - ERROR) + ERROR * allowed
    for n in np.flatnonzero(TASK.live_N).tolist():
        probs[n] = {"agent 1": allowed[n], "agent 2": by_rule[n]}.get(TASK.agents[n], probs[n])
    return Policy(probs, np.log(np.maximum(probs, 1e-300)))


TRUTH = Exact(TASK, rows_of_team())


def engine(seed: int = 0) -> Engine:
    player = Player(Replay(lambda group: TabularWorld(TASK)), {"actor": TeamActor(MEMBERS)}, slots=64)
    return Engine(Alone(player), seed=seed)


def references(n: int) -> Batch:
    starts = [Request(Place(f"g{i}", "start"), record=True) for i in range(n)]
    return Batch.from_records(branched(engine().run(starts)))


def actions(record: dict, upto: int) -> list[str]:
    return [step["action"] for step in record["steps"][:upto]]


class Listening:
    """Says its name, and remembers how many scenes it was asked at a time."""

    version = "listening"

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def act(self, scenes: Sequence[Scene], rngs: Sequence[np.random.Generator]) -> Sequence[Choice]:
        self.asked.append([scene.key for scene in scenes])
        return [Choice(f"{scene.key} {rng.random():.6f}") for scene, rng in zip(scenes, rngs, strict=True)]


def test_each_agent_is_asked_once_with_its_own_scenes_and_generators():
    a, b = Listening(), Listening()
    turns = ["x", "y", "x", "y", "y"]
    scenes = [Scene("g", f"{i}", "", None, agent=turn) for i, turn in enumerate(turns)]
    found = TeamActor({"x": a, "y": b}).act(scenes, [np.random.default_rng(i) for i in range(5)])
    assert (a.asked, b.asked) == ([["0", "2"]], [["1", "3", "4"]])
    assert [f"{i} {np.random.default_rng(i).random():.6f}" for i in range(5)] == [c.action for c in found]


def test_the_version_names_every_member():
    one, other = TeamActor(MEMBERS).version, TeamActor({**MEMBERS, "agent 1": MEMBERS["agent 0"]}).version
    assert one != other
    assert all(actor.version in one for actor in MEMBERS.values())


@pytest.mark.parametrize(("agent", "hint"), [("agent 7", "Did you mean .agent"), ("", "whose turn")])
def test_an_agent_outside_the_team_stops_the_job(agent: str, hint: str):
    scene = Scene("g", "s", "s", ("a",), agent=agent)
    with pytest.raises(ProbeError, match=hint):
        TeamActor(MEMBERS).act([scene], [np.random.default_rng(0)])


def test_probabilities_come_from_the_agent_that_decides_or_are_refused():
    world = TabularWorld(TASK)
    world.reset(0)
    for _ in range(2):
        scene = Scene("g", world.key(), world.seen(), tuple(world.actions()), agent=agent_of(world))
        [found] = TeamActor(MEMBERS).probs([scene])
        node = TASK.keys.index(world.key())
        assert rows_of_team().probs_NA[node] == pytest.approx(found)
        world.step("choice 1")
    scene = Scene("g", world.key(), world.seen(), tuple(world.actions()), agent=agent_of(world))
    with pytest.raises(ProbeError, match="gives no probabilities"):
        TeamActor(MEMBERS).probs([scene])


def test_the_exact_table_of_a_world_asks_whose_turn_it_is():
    class Sure(TabularWorld):
        deterministic = True

    mixed = TeamActor({**MEMBERS, "agent 2": UniformActor()})
    probs = rows_of_team().probs_NA.copy()
    last = np.array([agent == "agent 2" for agent in TASK.agents]) & TASK.live_N
    probs[last] = 1 / TASK.n_actions
    exact = Exact(TASK, Policy(probs, probs))
    assert exact.moments(exact.start())[0] == pytest.approx(tabulate(Sure(TASK), mixed).value, abs=1e-12)


def test_a_recorded_step_says_whose_it_was():
    for record in references(3).records():
        assert [step["agent"] for step in record["steps"]] == ["agent 0", "agent 1", "agent 2"]


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_c3_credit_of_each_agent_is_unbiased(turn: int):
    """Of the first alternative of each context, given what was tried: its mean, and its slope on the truth.

    Alternatives are alike before they are tried, so the mean alone would be 0 for any team that goes on.
    """
    batch = references(240)
    steps = batch.step_start_R1[:-1] + turn
    found = engine(1).drive(Alternatives(batch, steps, n=3, c=2)).filled()
    credit = ac.assign(found, "c3")
    trees: dict[str, dict[str, tuple[float, float]]] = {}
    for r, record in enumerate(found.records()):
        assert record["steps"][turn]["agent"] == f"agent {turn}"
        path = actions(record, turn + 1)
        q, _ = TRUTH.after(TRUTH.walk(path[:-1]), TASK.actions.index(path[-1]))
        arm = record["id"].rpartition(":")[2].split()[1].split(".")[0]
        value = float(credit.steps[int(found.step_start_R1[r]) + turn])
        trees.setdefault(record["tree"], {})[arm] = (value, q)
    rows = []
    for (value, q), *others in (list(arms.values()) for arms in trees.values()):
        truth = q - float(np.mean([x for _, x in others]))
        rows.append((value - truth, (value - truth) * truth))
    errors = np.array(rows)
    assert errors.shape == (240, 2)
    # The last message decides the reward: its continuations leave nothing to chance.
    se = errors.std(0, ddof=1) / np.sqrt(len(errors)) if turn < 2 else 1e-12
    assert np.all(np.abs(errors.mean(0)) <= 3 * se)


def test_means_below_a_message_are_its_exact_value():
    """The subtree mean that treemem reads, of the first message, over tasks."""
    grown = engine(2).drive(FanOut({f"g{i}": 0 for i in range(60)}, (2, 2, 2))).batch
    assert grown is not None
    below: dict[tuple[str, str], list[float]] = {}
    for record in grown.records():
        root = record["id"].partition("@0:")[2].partition("@")[0]
        below.setdefault((record["group"], root), []).append(record["reward"])
        below[record["group"], root][-1] -= TRUTH.after(
            TRUTH.start(), TASK.actions.index(actions(record, 1)[0])
        )[0]
    errors = np.array([np.mean(rewards) for rewards in below.values()])
    assert errors.size == 120
    assert abs(errors.mean()) <= 3 * errors.std(ddof=1) / np.sqrt(errors.size)
