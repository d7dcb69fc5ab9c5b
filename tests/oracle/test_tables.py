"""Explored worlds on disk and played: nothing is lost, and continuations are worth what the tables say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accredit.data import Batch
from accredit.errors import DataError, ParamError, StoreError, VersionError
from accredit.oracle import Explored, TablesActor, player_of, read_tables, save_tables, table_truth, tabulate
from accredit.oracle.played import TableWorld
from accredit.planners import Place, Request, branched
from accredit.planners.truth import places_of
from accredit.signals.continuation import Alone, Engine
from accredit.typing import Floats
from accredit.worlds import TabularWorld, Task, make, make_policy
from accredit.worlds.acting import Scene, TableActor


class Sure(TabularWorld):
    """A tabular world that leaves nothing to chance, and says so."""

    deterministic = True


class Repeating(TableActor):
    """Likes to do again what it did last, if that is possible."""

    def probs(self, scenes: Sequence[Scene]) -> Sequence[Floats]:
        found = []
        for scene, row in zip(scenes, super().probs(scenes), strict=True):
            again = np.array([a in scene.history[-1:] for a in scene.actions or ()], float)
            found.append((row + again) / (row + again).sum())
        return found


def rooms() -> Task:
    return make("rooms", seed=1, slip=0.0)


@pytest.fixture(scope="module")
def explored() -> Explored:
    """The same rooms under a policy of the state, and under one that also looks at the last action."""
    task = rooms()
    policy = make_policy(task, 0.6)
    return Explored(
        {
            "plain": tabulate(Sure(task), TableActor(task, policy), "plain"),
            "repeating": tabulate(Sure(task), Repeating(task, policy), "repeating", memory=1),
        },
        {"policy": "0.6"},
    )


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_what_is_read_is_what_was_written(explored: Explored, tmp_path: Path, suffix: str) -> None:
    path = save_tables(explored, tmp_path / f"tables{suffix}")
    found = read_tables(path)
    assert found.about == {"policy": "0.6"}
    for group, table in explored.tables.items():
        other = found.tables[group]
        assert (other.nodes, other.start, other.moves) == (table.nodes, table.start, table.moves)
        assert (other.states, other.memory, other.task.horizon) == (
            table.states,
            table.memory,
            table.task.horizon,
        )
        np.testing.assert_array_equal(other.policy.probs_NA, table.policy.probs_NA)
        np.testing.assert_array_equal(other.tables.A, table.tables.A)
    again = save_tables(found, tmp_path / f"again{suffix}")
    assert again.read_bytes() == path.read_bytes()


def test_parquet_is_refused_before_anything_is_explored(explored: Explored, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not Parquet"):
        save_tables(explored, tmp_path / "tables.parquet")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda row: row["policy"][0].update(state=99), "no state 99"),
        (lambda row: row["policy"][0]["probs"].append(0.0), "sum to 1"),
        (lambda row: row["policy"][0]["probs"].__setitem__(0, -1.0), "sum to 1"),
        (lambda row: row["policy"].pop(), "missing"),
        (lambda row: row["states"][0]["moves"][0].__setitem__(1, -1), "leads nowhere"),
        (lambda row: row["states"].append(row["states"][0]), "alike"),
        (lambda row: row.update(start=-1), "the start"),
        (lambda row: row.update(horizon=0), "horizon is 0"),
        (lambda row: row.update(horizon="no"), "Expected `int`"),
    ],
)
def test_tables_that_cannot_be_are_refused(
    explored: Explored, tmp_path: Path, change: Any, said: str
) -> None:
    header, row, *_ = save_tables(explored, tmp_path / "t.jsonl").read_text().splitlines()
    told = json.loads(row)
    change(told)
    (tmp_path / "t.jsonl").write_text(f"{header}\n{json.dumps(told)}\n")
    with pytest.raises(DataError, match=said):
        read_tables(tmp_path / "t.jsonl")


def test_other_files_are_named(explored: Explored, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    for text, error, said in (
        ('{"schema": "accredit.tables/2"}\n', VersionError, "accredit.tables/2"),
        ('{"schema": "accredit.truth/1"}\n', DataError, "read_truth"),
        ('{"schema": "accredit.tables/1"}\n', DataError, "no group"),
    ):
        path.write_text(text)
        with pytest.raises(error, match=said):
            read_tables(path)
    lines = save_tables(explored, path).read_text().splitlines()
    path.write_text("\n".join([*lines, lines[1]]))
    with pytest.raises(DataError, match="twice"):
        read_tables(path)


def test_continuations_are_worth_what_the_tables_say(explored: Explored) -> None:
    """Of 120 from the first steps of a rollout, the mean is never further than 4 standard errors from V.

    Seen failing with an actor that draws by the square roots of its chances, or remembers the first actions.
    """
    engine = Engine(Alone(player_of(explored.tables)), seed=3)
    starts = [Request(Place(group, "start"), 1, record=True) for group in explored.tables]
    batch = Batch.from_records(branched(engine.run(starts)))
    exact = table_truth(batch, explored.tables).value
    steps = [s for r in range(len(batch)) for s in batch.steps_of(r)[:3]]
    answers = engine.run([Request(p, 120, arm="test") for p in places_of(batch, steps, markov=False)])
    z = [
        (a.rewards.mean() - exact[s]) / np.sqrt(a.variance / a.k) for s, a in zip(steps, answers, strict=True)
    ]
    assert len(z) == 6
    assert np.abs(z).max() < 4
    assert abs(np.mean(z)) < 3 / np.sqrt(len(z))


def test_the_greedy_policy_takes_the_likeliest_action(explored: Explored) -> None:
    engine = Engine(Alone(player_of(explored.tables)))
    (answer,) = engine.run([Request(Place("plain", "start"), 1, "greedy", record=True)])
    table = explored.tables["plain"]
    visits = answer.outcomes[0].path
    at, _ = table.walk([v.action for v in visits], [v.key for v in visits])
    assert visits
    for visit, node in zip(visits, at.tolist(), strict=True):
        chances = table.chances(node)
        assert chances[visit.action] == max(chances.values())


def test_a_table_plays_as_its_world_does(explored: Explored) -> None:
    """The same actions show the same states and rewards, and snapshots come back."""
    rng = np.random.default_rng(0)
    table, world = TableWorld(explored.tables["plain"]), Sure(rooms())
    for seed in range(20):
        assert table.reset(seed) == world.reset(seed)
        over = False
        while not over:
            assert sorted(table.actions()) == sorted(world.actions())
            assert table.steps_left() == world.steps_left()
            action = str(rng.choice(world.actions()))
            token = table.snapshot()
            first = table.step(action)
            seen, reward, over = world.step(action)
            assert first[:2] == (seen, reward)
            assert first[2] == (over and reward == 1)
            table.restore(token)
            assert table.step(action) == first
        with pytest.raises(ParamError, match="cannot 'wait' here"):
            table.step("wait")
    assert table.cost.restores > 20


def test_a_continuation_up_to_the_horizon_is_truncated(explored: Explored) -> None:
    """It was called finished: methods took the last state of a cut rollout for an end that pays nothing."""
    (answer,) = Engine(Alone(player_of(explored.tables))).run([Request(Place("plain", "start"), 50)])
    horizon = explored.tables["plain"].task.horizon
    assert {o.status for o in answer.outcomes if o.steps == horizon and not o.reward} == {"truncated"}
    assert {o.status for o in answer.outcomes if o.reward} == {"finished"}
    assert answer.counts()["truncated"] > 3


def test_a_state_that_is_not_there_is_named(explored: Explored) -> None:
    for group in ("plain", "other"):
        with pytest.raises(DataError, match="no state 'nowhere'"):
            TablesActor(explored.tables).probs([Scene(group, "nowhere", "", ("go north",))])
