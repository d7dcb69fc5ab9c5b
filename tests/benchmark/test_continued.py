"""Methods that buy continuations in explored worlds: what they pay, are told, and are measured by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import accredit as ac
from accredit.benchmark.continued import continued
from accredit.benchmark.informed import best_segments, largest_loss, rise_of_entropy
from accredit.benchmark.purchases import FREE, OFFERS, Shop
from accredit.benchmark.recorded import Recorded, recorded
from accredit.cli import run
from accredit.data import Batch
from accredit.errors import DataError, ParamError
from accredit.index import Index
from accredit.oracle import Explored, player_of, save_tables, table_truth, tabulate
from accredit.planners import Place, Request, branched
from accredit.planners.ibpo import Draft
from accredit.planners.prover import Case
from accredit.signals.continuation import Alone, Engine
from accredit.store import save_truth
from accredit.worlds import TabularWorld, make, make_policy
from accredit.worlds.acting import TableActor
from accredit.worlds.truth import truth_rows


class Sure(TabularWorld):
    """A tabular world that leaves nothing to chance, and says so."""

    deterministic = True


@pytest.fixture(scope="module")
def explored() -> Explored:
    tables = {}
    for seed in (1, 2, 3):
        task = make("rooms", seed=seed, rooms=4, extra_doors=1, slip=0.0)
        actor = TableActor(task, make_policy(task, 0.3))
        tables[f"g{seed}"] = tabulate(Sure(task), actor, f"g{seed}")
    return Explored(tables, {"policy": "rooms", "memory": 0})


@pytest.fixture(scope="module")
def batch(explored: Explored) -> Batch:
    starts = [Request(Place(group, "start"), 4, record=True) for group in explored.tables]
    records = branched(Engine(Alone(player_of(explored.tables)), seed=1).run(starts))
    for step in (step for record in records for step in record["steps"]):
        step |= {"logprobs": [step["action_logprob"]], "text": "a long prompt"}
    return Batch.from_records(records)


@pytest.fixture(scope="module")
def found(batch: Batch, explored: Explored) -> Recorded:
    return continued(batch, explored, [4, 1], ["vineppo", "crbc", "c3-bucket"], name="Rooms")


def rows_of(found: Recorded, method: str) -> list[Any]:
    return sorted((r for r in found.rows if r.method == method), key=lambda row: row.environment_steps)


def test_every_budget_is_bought_and_paid(found: Recorded, batch: Batch) -> None:
    """Places of one game, state and step share their continuations."""
    index = Index(batch)
    places = len({(g, s, t) for g, s, t in zip(index.group_S, index.state_S, index.position_S, strict=True)})
    one, four = rows_of(found, "vineppo")
    assert [one.continuations, four.continuations] == [places, 4 * places]
    assert [one.bought, four.bought] == ["1 from each state", "4 from each state"]
    assert four.rank.value > one.rank.value
    assert found.about["budgets"] == [1, 4]


def test_rows_without_continuations_are_those_of_recorded(
    found: Recorded, batch: Batch, explored: Explored
) -> None:
    truth = truth_rows(batch, table_truth(batch, explored.tables), {})
    plain = {row.method: row for row in recorded(batch, truth, ["crbc"]).rows}
    free, *more = rows_of(found, "crbc")
    assert (free.rank, free.sign, free.bias) == (plain["crbc"].rank, plain["crbc"].sign, plain["crbc"].bias)
    assert (free.bought, free.continuations) == ("", 0)
    vines = rows_of(found, "vineppo")
    assert len(more) == len(vines) == 2
    for row, vine in zip(more, vines, strict=True):
        assert row.environment_steps == pytest.approx(vine.environment_steps, rel=0.25)


def test_more_continuations_come_near_the_truth(batch: Batch, explored: Explored) -> None:
    """The exact value in place of the mean of K is the limit; errors are those of K draws."""
    shop = Shop(batch, explored)
    credit = ac.assign(shop.vine(40)[0], "vineppo")
    assert np.corrcoef(credit.steps, shop.truth.advantage)[0, 1] > 0.8
    z = (credit.extras["value"] - shop.truth.value) / np.sqrt(0.25 / 40)
    assert np.abs(z).max() < 4


def test_duels_are_paired_by_game(found: Recorded, batch: Batch, explored: Explored) -> None:
    duels = {(d["k"], d["spent"]): d for d in found.about["duels"] if d["other"] == "crbc"}
    assert set(duels) == {(1, True), (1, False), (4, True), (4, False)}
    one, four = rows_of(found, "vineppo")
    free, *_ = rows_of(found, "crbc")
    assert duels[4, False]["value"] == pytest.approx(four.rank.value - free.rank.value, abs=1e-12)
    assert duels[1, False]["value"] == pytest.approx(one.rank.value - free.rank.value, abs=1e-12)


def test_what_cannot_run_says_why(batch: Batch, explored: Explored) -> None:
    bare = Batch.from_records(
        [
            record | {"steps": [{"state": s["state"], "action": s["action"]} for s in record["steps"]]}
            for record in batch.records()
        ]
    )
    row = continued(bare, explored, [1], ["spo-chain"]).rows[-1]
    assert (row.method, row.rank) == ("spo-chain", None)
    assert "needs logprobs" in row.unable


def test_only_what_is_wanted_is_shown_with_its_parameters(batch: Batch, explored: Explored) -> None:
    """Parameters were ignored, and methods that share a purchase came along unasked."""
    rows = continued(batch, explored, [2], ["c3", "c3:blend=1", "grpo:scale=none"]).rows
    told = {(row.method, row.bought) for row in rows if "rollouts" not in row.bought}
    assert told == {
        ("truth", ""),
        ("c3", "2 forks before each step"),
        ("c3:blend=1", "2 forks before each step"),
        ("grpo:scale=none", ""),
    }
    assert {row.method for row in rows if "more rollouts" in row.bought} == {"grpo:scale=none"}
    by = {row.method: row.rank for row in rows}
    assert by["c3"] != by["c3:blend=1"]


def test_chance_follows_the_seed(batch: Batch, explored: Explored) -> None:
    first, same, other = (continued(batch, explored, [1], ["prover"], seed=s).to_dict() for s in (0, 0, 1))
    assert first == same
    assert first["rows"] != other["rows"]


@pytest.mark.parametrize("offer", [o for o in OFFERS if o.methods != FREE], ids=lambda o: o.methods[0])
def test_every_offer_gives_its_methods_what_they_need(batch: Batch, explored: Explored, offer: Any) -> None:
    """Forks come after the recorded rollouts, so that these keep their steps."""
    shop = Shop(batch, explored)
    for bought in offer.buy(shop, 2):
        credit = ac.assign(bought.batch, bought.method, seed=0)
        assert credit.steps.size == bought.batch.n_steps
        if not bought.others:
            assert bought.batch.ids[: len(batch)] == batch.ids
            own = bought.batch.column("action_S").decoded()[: batch.n_steps]
            assert own.tolist() == batch.column("action_S").decoded().tolist()
            assert bought.cost.continuations > 0 or bought.method == "prover"


def test_forks_are_joined_to_rollouts_that_tell_no_more_than_they_do(
    batch: Batch, explored: Explored
) -> None:
    """A rule that forks at unlikely tokens would else see tokens of some and choices of others."""
    shop = Shop(batch, explored)
    assert set(shop.lean.columns) == {
        "action_S",
        "final_state_R",
        "node_entropy_S",
        "reward_R",
        "start_R",
        "state_S",
        "status_R",
    }
    told = shop.lean.column("node_entropy_S").values
    np.testing.assert_allclose(told, -batch.column("action_logprob_S").values, atol=1e-6)


def test_the_judge_that_knows_proposes_the_largest_rise(batch: Batch, explored: Explored) -> None:
    """Seen failing with the value after the last step but one."""
    value = np.random.default_rng(0).random(batch.n_steps)
    judge = best_segments(value)
    for r, name in enumerate(batch.ids[:6]):
        own = value[list(batch.steps_of(r))]
        rises = {
            (a, b): own[b + 1] - own[a] for a in range(own.size) for b in range(a, min(a + 3, own.size - 1))
        }
        told = [judge(Case(Index(batch), "g1", name, (), 3, turn=turn)) for turn in (0, 1, 10_000)]
        ranked = sorted(rises, key=rises.__getitem__, reverse=True)
        assert [(t["start"], t["end"]) for t in told[:2] if t] == ranked[:2]
        assert told[2] is None


def test_the_reviser_that_knows_takes_back_the_largest_loss(batch: Batch, explored: Explored) -> None:
    shop = Shop(batch, explored)
    reviser = largest_loss(shop.truth.advantage, shop.nodes, shop.tables)
    for r, name in enumerate(batch.ids):
        told = reviser(Draft(shop.index, name, (), ()))
        assert told is not None
        steps = batch.steps_of(r)
        loss = shop.truth.advantage[list(steps)]
        assert loss[told["step"]] == loss.min()
        group, node = shop.nodes[steps[told["step"]]]
        table = explored.tables[group]
        q = {a: table.tables.Q[told["step"], node, table.task.actions.index(a)] for a in table.chances(node)}
        assert q[told["actions"][0]] == max(q.values())


def test_entropy_of_a_choice_is_that_of_an_even_one_at_most(batch: Batch, explored: Explored) -> None:
    shop = Shop(batch, explored)
    got = rise_of_entropy(explored.tables)(shop.index)
    for s, chances in enumerate(shop.chances):
        p = np.array([x for x in chances.values() if x > 0])
        even = np.log(len(chances)) if len(chances) > 1 else 1.0
        assert got[s] == pytest.approx(-(p * np.log(p)).sum() / even, abs=1e-12)


def test_slips_are_named(batch: Batch, explored: Explored) -> None:
    with pytest.raises(ParamError, match="whole numbers"):
        continued(batch, explored, [0])
    with pytest.raises(ParamError, match="none of td buys"):
        continued(batch, explored, [1], ["td"])
    odd = Batch.from_records(
        [{"id": "x", "group": "g1", "reward": 1, "steps": [{"state": "?", "action": "a"}]}]
    )
    with pytest.raises(DataError, match="recorded was"):
        continued(odd, explored, [1])


def test_the_section_says_what_was_bought(found: Recorded, tmp_path: Path) -> None:
    text = found.save_page(tmp_path / "page.md").read_text()
    assert "## Real rollouts: Rooms" in text
    assert "| method | bought | continuations | steps | rank correlation |" in text
    one, four = rows_of(found, "vineppo")
    assert f"| `vineppo` | 4 from each state | {four.continuations:,} | {four.environment_steps:,} |" in text
    assert "| `crbc` | nothing | 0 | 0 |" in text
    duel = next(d for d in found.about["duels"] if (d["other"], d["k"], d["spent"]) == ("crbc", 4, True))
    told = "vineppo at K = 4 minus a method with as many steps as more rollouts, game by game: crbc"
    assert f"{told} {duel['value']:+.2f}" in text
    told = f"vineppo with 1 from each state ({one.environment_steps:,} steps): rank correlation"
    assert f"{told} {one.rank.value:.2f} " in text


def test_the_command_line_buys_from_tables(
    batch: Batch, explored: Explored, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_text("".join(json.dumps(r) + "\n" for r in batch.records()))
    tables = save_tables(explored, tmp_path / "tables.jsonl.gz")
    args = ["bench", "--recorded", str(rollouts), "--tables", str(tables), "--continue", "1"]
    assert run([*args, "--methods", "vineppo", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(row["method"], row["bought"]) for row in told["rows"]] == [
        ("truth", ""),
        ("vineppo", "1 from each state"),
    ]
    assert run([*args, "--methods", "vineppo"]) == 0
    assert "1 from each state" in capsys.readouterr().out
    truth = save_truth(truth_rows(batch, table_truth(batch, explored.tables), {}), tmp_path / "truth.jsonl")
    assert run([*args, "--truth", str(truth)]) == 2
    assert run([*args[:5], "--continue", "four"]) == 2
    assert run([*args[:3], "--truth", str(truth), "--continue", "4"]) == 2
