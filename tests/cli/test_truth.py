"""``accredit truth``: exact and by continuations, through the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import accredit as ac
from accredit.errors import ParamError, ProbeError
from accredit.oracle import read_tables, table_truth, truths
from accredit.signals.continuation import Workers
from accredit.store import read_truth
from accredit.worlds import TabularWorld, make, make_policy, sample
from accredit.worlds.acting import TableActor
from tests.signals.served import Server, serving
from tests.signals.test_chat_actor import chat


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
    assert told["verdict"] == rows.header["verdict"]
    compared = accredit("compare", rollouts, "-m", "grpo", "--truth", out)
    assert told["verdict"] in compared.out.splitlines()


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


def test_a_plan_refuses_a_world_that_there_is_none_of_and_says_what_is_not_known(accredit, rollouts):
    out = rollouts.with_name("truth.parquet")
    made = ["truth", rollouts, "--policy", "uniform", "--plan", "-o", out]
    for sides in ([], ["--continuations", "4"]):
        said = accredit(*made, "--world", "nosuch", *sides)
        assert (said.code, "no world 'nosuch'" in said.err) == (2, True)
    said = accredit(*made, "--world", "tests.cli.test_truth:world_of_rooms")
    assert (said.code, out.exists()) == (0, False)
    assert "the world is explored once a group" in said.err


def test_the_verb_shows_tables(accredit, rollouts):
    out = rollouts.with_name("truth.parquet")
    world = "tests.cli.test_truth:world_of_rooms"
    said = accredit("truth", rollouts, "--world", world, "--policy", "uniform", "-o", out)
    assert said.code == 0, said.err
    assert "value of the start" in said.out
    assert "Exact:" in said.out


def test_explored_worlds_are_kept_on_request(accredit, rollouts):
    """What is read has the values that the truth has, without the policy being asked again."""
    out, tables = rollouts.with_name("truth.parquet"), rollouts.with_name("tables.jsonl.gz")
    made = ["truth", rollouts, "--world", "tests.cli.test_truth:world_of_rooms", "--policy", "uniform"]
    said = accredit(*made, "-o", out, "--tables", tables)
    assert said.code == 0, said.err
    explored, batch = read_tables(tables), ac.read(rollouts)
    assert (explored.about["kind"], explored.about["policy"]) == ("exact", "uniform")
    found = table_truth(batch, explored.tables)
    assert read_truth(out).numbers["advantage"].tolist() == found.advantage.tolist()
    for more, reason in (
        (["--tables", tables, "--continuations", "4"], "belongs to exact truth"),
        (["--tables", out], "name one file"),
        (["--tables", tables.with_name("tables.parquet")], "not Parquet"),
        (["--tables", rollouts], "replace the rollouts"),
    ):
        told = accredit(*made, "-o", out, *more)
        assert told.code > 0
        assert reason in told.err


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


@pytest.mark.parametrize("journal", ["truth.parquet", "./truth.parquet", "rollouts.jsonl"])
def test_a_journal_that_is_the_result_or_the_rollouts_is_refused(accredit, rollouts, journal, monkeypatch):
    """The result replaced the journal, and with it all continuations that had been paid for."""
    monkeypatch.chdir(rollouts.parent)
    world = ("--world", "tests.cli.test_truth:world_of_rooms", "--policy", "uniform", "--continuations", "2")
    before = sorted(p.name for p in rollouts.parent.iterdir())
    said = accredit("truth", rollouts.name, *world, "--journal", journal, "-o", "truth.parquet")
    assert (said.code, "--journal" in said.err) == (2, True)
    assert before == sorted(p.name for p in rollouts.parent.iterdir())


def test_a_world_of_chance_has_no_exact_truth(rollouts: Path) -> None:
    with pytest.raises(ProbeError, match="deterministic"):
        ac.truth(ac.read(rollouts), "rooms:1", "uniform")
    with pytest.raises(ParamError, match="belong to continuations"):
        ac.truth(ac.read(rollouts), "rooms:1", "uniform", steps=[0])


# --- a policy behind a chat endpoint -------------------------------------------------------------------


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ACCREDIT_API_KEY", "sk-very-secret")
    return "sk-very-secret"


def asked_of(server: Server, rollouts: Path, *more: object) -> list[object]:
    """Four steps, by a chat model that draws one of the possible actions by the request's seed."""
    world = ("--world", "tests.cli.test_truth:world_of_rooms", "--policy", "chat:org/tiny")
    out = ("-o", rollouts.with_name("truth.jsonl"), "--journal", rollouts.with_name("j.jsonl"))
    return ["truth", rollouts, *world, "--from-endpoint", server.url, "--steps", "4", *out, *more]


def test_a_chat_model_that_played_is_asked_to_play_on(accredit, rollouts, key):
    """Its choices are uniform, so its values are those of the uniform policy, which are known exactly."""
    batch = ac.read(rollouts)
    exact = ac.truth(batch, world_of_rooms, "uniform").truth
    with serving(chat) as server:
        done = accredit(*asked_of(server, rollouts, "--continuations", "8", "--json"))
        assert done.code == 0, done.err
        spent = done.json()["spent"]
        assert all(headers["Authorization"] == f"Bearer {key}" for _, _, headers in server.asked)
        assert spent["continuations"] == 4 * 2 * 8
        assert spent["requests"] == len(server.asked) >= spent["environment_steps"] - 4 * 8
        assert spent["unmapped_answers"] == 0 < spent["prompt_tokens"]
        again = accredit(*asked_of(server, rollouts, "--continuations", "8", "--json"))
        assert again.json()["spent"]["requests"] == again.json()["spent"]["continuations"] == 0
        assert len(server.asked) == spent["requests"]
    rows = read_truth(rollouts.with_name("truth.jsonl"))
    assert rows.header["policy"].startswith("chat:org/tiny:T=1:max=32:prompt=")
    known = {(r, s): i for i, (r, s) in enumerate(zip(exact.rollout, exact.step, strict=True))}
    at = [known[where] for where in zip(rows.rollout, rows.step, strict=True)]
    apart = rows.numbers["advantage"] - exact.numbers["advantage"][at]
    assert np.all(np.abs(apart) < 4 * rows.numbers["se"])
    kept = [path.read_text() for path in rollouts.parent.iterdir()]
    assert not any(key in text or "A hall" in text or "Possible actions" in text for text in kept)


def test_a_budget_of_requests_stops_it_and_the_kept_command_goes_on(accredit, rollouts, key):
    """What ``accredit resume`` would run, without the budget: the rest is asked, and no more."""
    journal, out = rollouts.with_name("j.jsonl"), rollouts.with_name("truth.jsonl")
    with serving(chat) as server:
        whole = accredit(*asked_of(server, rollouts, "--continuations", "3"))
        assert whole.code == 0, whole.err
        wanted, all_of_it = out.read_bytes(), len(server.asked)
        journal.unlink(), out.unlink()
        few = accredit(*asked_of(server, rollouts, "--continuations", "3", "--max-requests", all_of_it - 5))
        assert (few.code, out.exists()) == (4, False)
        assert f"budget of {all_of_it - 5} requests is spent" in few.err
        before = len(server.asked)
        words = json.loads(rollouts.with_name("j.jsonl.command.json").read_text())["words"]
        assert words[-2:] == ["--max-requests", str(all_of_it - 5)]
        assert key not in " ".join(words)
        assert accredit(*words[:-2]).code == 0
        assert 5 <= len(server.asked) - before < all_of_it
    assert out.read_bytes() == wanted


@pytest.mark.parametrize(
    ("policy", "url", "said"),
    [
        ("chat:org/tiny", None, "needs a model's name and a server"),
        ("chat:", "http://127.0.0.1:9", "needs a model's name and a server"),
        ("uniform", "http://127.0.0.1:9", "asked for policies chat:MODEL only"),
        ("chat:org/tiny", "http://me:hunter2@127.0.0.1:9", "holds no user, password or query"),
        ("chat:org/tiny", "ftp://127.0.0.1", "begins with http"),
    ],
)
def test_a_server_that_cannot_be_is_refused_before_anything_is_kept(accredit, rollouts, policy, url, said):
    """A URL with a password in it is not written beside the journal either."""
    server = () if url is None else ("--from-endpoint", url)
    args = ("--world", "rooms:1", "--policy", policy, "--continuations", "2", *server)
    kept = ("--journal", rollouts.with_name("j.jsonl"), "-o", rollouts.with_name("t.jsonl"))
    told = accredit("truth", rollouts, *args, *kept)
    assert told.code == 2
    assert said in told.err
    assert [path.name for path in rollouts.parent.iterdir()] == [rollouts.name]


def test_a_chat_model_has_no_exact_truth(accredit, rollouts):
    with serving(chat) as server:
        args = ("--world", "tests.cli.test_truth:world_of_rooms", "--policy", "chat:m", "-o", "t.jsonl")
        told = accredit("truth", rollouts, *args, "--from-endpoint", server.url)
        assert (told.code, server.asked) == (4, [])
    assert "gives probabilities" in told.err


def test_workers_give_the_same_truth(accredit, rollouts, monkeypatch):
    made = []
    monkeypatch.delitem(sys.modules, "torch", raising=False)  # another test's; nothing here uses it
    monkeypatch.setattr(truths, "Workers", lambda make, n: made.append(n) or Workers(make, n))
    args = ("--world", "tests.cli.test_truth:world_of_rooms", "--policy", "uniform", "--steps", "4")
    paths = [rollouts.with_name(f"{n}.jsonl") for n in (1, 2)]
    for n, path in enumerate(paths, 1):
        told = accredit("truth", rollouts, *args, "--continuations", "4", "--workers", n, "-o", path)
        assert told.code == 0, told.err
    assert made == [2]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    exact = accredit("truth", rollouts, *args[:4], "--workers", "2", "-o", paths[0])
    assert (exact.code, "belong to continuations" in exact.err) == (2, True)


def test_models_play_in_one_process(accredit, rollouts):
    with serving(chat) as server:
        told = accredit(*asked_of(server, rollouts, "--continuations", "2", "--workers", "2"))
    assert (told.code, server.asked) == (2, [])
    assert "concurrency" in told.err
