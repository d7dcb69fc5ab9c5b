"""``accredit truth``: exact and by continuations, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import accredit as ac
from accredit.errors import ParamError, ProbeError
from accredit.store import read_truth
from accredit.worlds import TabularWorld, make, make_policy, sample
from accredit.worlds.acting import TableActor


class Sure(TabularWorld):
    """A tabular world that leaves nothing to chance, and says so."""

    deterministic = True


def world_of_rooms(group: str) -> TabularWorld:
    """What `--world tests.cli.test_truth:world_of_rooms` makes."""
    return Sure(make("rooms", seed=1, slip=0.0))


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    task = make("rooms", seed=1, slip=0.0)
    played = sample(task, policy=make_policy(task, 0.3), groups=2, group_size=4, seed=5)
    path = tmp_path / "rollouts.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in played.batch.records()))
    return path


def test_exact_truth_is_written_and_compared_with(rollouts: Path) -> None:
    task = make("rooms", seed=1, slip=0.0)
    batch = ac.read(rollouts)
    found = ac.truth(batch, world_of_rooms, TableActor(task, make_policy(task, 0.3)))
    assert found.kind == "exact"
    assert [row["value"] for row in found.groups.values()] == pytest.approx([0.3, 0.3], abs=1e-9)
    path = found.save(rollouts.with_name("truth.jsonl"))
    rows = read_truth(path)
    assert len(rows.step) == batch.n_steps
    table = ac.compare(batch, ["grpo", "crbc"], truth=path).to_dict()
    assert "truth" in json.dumps(table)


def test_the_verb_buys_continuations_and_says_what_they_are_worth(accredit, rollouts):
    out = rollouts.with_name("truth.parquet")
    made = [
        "truth",
        rollouts,
        "--world",
        "tests.cli.test_truth:world_of_rooms",
        "--policy",
        "uniform",
        "--continuations",
        "4",
        "--steps",
        "6",
    ]
    first = accredit(*made, "-o", out, "--journal", rollouts.with_name("j.jsonl"), "--json")
    assert first.code == 0, first.err
    told = json.loads(first.out)
    assert (told["kind"], told["steps"], told["spent"]["continuations"]) == ("monte_carlo", 6, 48)
    assert "at most 48 continuations" in first.err
    assert told["verdict"].startswith(("Not truth", "The estimates do not spread"))
    again = accredit(*made, "-o", out, "--journal", rollouts.with_name("j.jsonl"), "--json")
    assert json.loads(again.out)["spent"]["continuations"] == 0
    rows = read_truth(out)
    assert set(rows.source) == {"monte_carlo"}
    assert set(rows.n) == {4}
    assert np.all(rows.numbers["se"] > 0)


def test_a_plan_buys_nothing(accredit, rollouts):
    out = rollouts.with_name("truth.parquet")
    said = accredit(
        "truth",
        rollouts,
        "--world",
        "tests.cli.test_truth:world_of_rooms",
        "--policy",
        "uniform",
        "--half-width",
        "0.1",
        "--plan",
        "-o",
        out,
    )
    assert (said.code, out.exists()) == (0, False)
    assert "193 continuations of each of 2 sides" in said.err


def test_the_verb_shows_tables(accredit, rollouts):
    out = rollouts.with_name("truth.parquet")
    world = "tests.cli.test_truth:world_of_rooms"
    said = accredit("truth", rollouts, "--world", world, "--policy", "uniform", "-o", out)
    assert said.code == 0, said.err
    assert "value of the start" in said.out
    assert "Exact:" in said.out


@pytest.mark.parametrize(
    ("world", "policy", "said"),
    [
        ("nowhere", "uniform", "no world 'nowhere'"),
        ("rooms:1", "table:2", "needs a world with tables, and a rate"),
        ("textworld", "uniform", "how its game was made"),
        ("no.such.module:make", "uniform", "cannot be imported"),
    ],
)
def test_names_that_mean_nothing_are_refused(accredit, rollouts, world, policy, said):
    told = accredit(
        "truth", rollouts, "--world", world, "--policy", policy, "-o", rollouts.with_name("t.jsonl")
    )
    assert told.code in (2, 3)
    assert said in told.err


def test_rollouts_of_another_world_buy_nothing(accredit, rollouts):
    """With slips a replay leads elsewhere; the check finds it before anything is bought."""
    bought = ("--policy", "uniform", "--continuations", "4", "-o", rollouts.with_name("t.jsonl"))
    told = accredit("truth", rollouts, "--world", "rooms:1", *bought)
    assert told.code == 4
    assert "restored states are not the recorded ones" in told.err


def test_a_function_that_makes_no_world_is_named(accredit, rollouts):
    told = accredit(
        "truth",
        rollouts,
        "--world",
        "builtins:len",
        "--policy",
        "uniform",
        "-o",
        rollouts.with_name("t.jsonl"),
    )
    assert told.code == 2
    assert "builtins:len returned int, not a World" in told.err


def test_a_name_that_cannot_be_written_is_refused_before_anything_is_bought(accredit, rollouts):
    bought = ("--policy", "uniform", "--continuations", "4", "-o", rollouts.with_name("t.txt"))
    told = accredit("truth", rollouts, "--world", "tests.cli.test_truth:world_of_rooms", *bought)
    assert told.code == 3
    assert "kind of file is not clear" in told.err
    assert "continuations of each" not in told.err


def test_a_world_of_chance_has_no_exact_truth(rollouts: Path) -> None:
    with pytest.raises(ProbeError, match="deterministic"):
        ac.truth(ac.read(rollouts), "rooms:1", "uniform")
    with pytest.raises(ParamError, match="belong to continuations"):
        ac.truth(ac.read(rollouts), "rooms:1", "uniform", steps=[0])
