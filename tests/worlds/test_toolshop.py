"""The help desk over SQLite: judged by the tables it leaves, restored exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accredit as ac
from accredit.data import Batch
from accredit.errors import DataError, ParamError, ProbeError
from accredit.oracle import tabulate
from accredit.oracle.named import world_named
from accredit.planners import Request
from accredit.worlds import World
from accredit.worlds.acting import UniformActor
from accredit.worlds.shops import changed, digest, opened, shop_task
from accredit.worlds.toolshop import ToolShop
from tests.dear import dear
from tests.worlds.promises import (
    agrees_with_its_record,
    continued,
    goes_on_as_before,
    places,
    scripted,
    walked,
)

picks = st.lists(st.integers(0, 30), max_size=7)


def played(world: ToolShop, calls: tuple[str, ...]) -> float:
    world.reset(0)
    return sum(world.step(call)[1] for call in calls)


@dear
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_the_solution_of_every_task_is_possible_and_pays(seed: int, wishes: int) -> None:
    world = ToolShop(seed, wishes=wishes)
    assert 1.0 == played(world, world.task.solution)
    assert [] == world.actions()
    assert 0.0 == played(world, (world.task.solution[0], "done"))


@given(st.integers(0, 500), picks, picks, picks)
@settings(max_examples=30)
def test_a_restored_shop_goes_on_as_before(seed, before, after, between) -> None:
    goes_on_as_before(lambda: ToolShop(seed), before, after, between)


@given(st.integers(0, 500), picks)
@settings(max_examples=30)
def test_two_worlds_of_a_seed_do_the_same_and_do_not_share_a_database(seed, before) -> None:
    one, two = ToolShop(seed), ToolShop(seed)
    one.reset(0)
    first = walked(one, before)
    two.reset(5)
    assert first == walked(two, before)


@given(st.integers(0, 500), st.lists(st.none() | st.integers(0, 30), max_size=10))
@settings(max_examples=40)
def test_stock_and_money_are_conserved_whatever_is_called(seed, picks) -> None:
    """Goods in stock and goods that customers keep stay the same number; each repayment is one item's.

    None = the next call of the solution, so that every tool is come by.
    """
    world = ToolShop(seed, wishes=3)
    world.reset(0)
    wanted = iter(world.task.solution[:-1])
    count = "SELECT (SELECT sum(stock) FROM products) + (SELECT count(*) FROM items WHERE status IN {})"
    kept = count.format("('kept', 'exchanged')")
    total = world._db.execute(kept).fetchone()
    for pick in picks:
        call = next(wanted, None) if pick is None else None
        if call in world.actions():
            world.step(call)
        elif pick is not None:
            walked(world, [pick])
    assert total == world._db.execute(kept).fetchone()
    gone = "SELECT count(*) FROM items WHERE status != 'kept'"
    assert world._db.execute(gone).fetchone() == world._db.execute("SELECT count(*) FROM payments").fetchone()


def test_the_order_of_the_right_calls_does_not_matter_but_one_more_does() -> None:
    world = ToolShop(seed=1)  # moves one order and cancels another
    find, show1, do1, show2, do2, done = world.task.solution
    assert 1.0 == played(world, (find, show2, do2, show1, do1, done))
    assert 0.0 == played(world, (find, show1, do1, show2, done))
    spoilt = do1.replace("move", "cancel")
    assert 0.0 == played(world, (find, show1, do1, spoilt, show2, do2, done))


def test_a_call_against_the_rules_is_an_error_and_changes_nothing() -> None:
    world = ToolShop(seed=1)
    find, show, move, *_ = world.task.solution
    world.reset(0)
    world.step(find)
    world.step(show)
    before = digest(world._db)
    refund = next(call for call in world.actions() if call.startswith("refund"))
    seen, _, _ = world.step(refund)
    assert "is pending, not delivered" in seen
    assert before == digest(world._db)
    seen, _, _ = world.step(move)
    assert "Error" not in seen
    assert before != digest(world._db)


def test_what_was_not_looked_up_cannot_be_changed() -> None:
    world = ToolShop(seed=1)
    world.reset(0)
    with pytest.raises(ParamError, match="cannot"):
        world.step(world.task.solution[2])
    with pytest.raises(ParamError, match="cannot"):
        world.step("cancel order 1; DROP TABLE orders")
    with pytest.raises(ParamError, match="no tool"):
        changed(opened(world.task.start), "drop table orders", "")


def test_an_episode_is_cut_at_its_horizon_without_pay() -> None:
    world = ToolShop(seed=1, horizon=5)
    assert 0.0 == played(world, world.task.solution[:5])
    assert (0, []) == (world.steps_left(), world.actions())
    with pytest.raises(ParamError, match="over"):
        world.step("done")


def test_sizes_are_checked() -> None:
    for size in ({"wishes": 0}, {"wishes": 3, "orders": 2}, {"orders": 9}):
        with pytest.raises(ParamError, match="wishes"):
            shop_task(1, **size)


def test_it_keeps_the_promises_of_a_world() -> None:
    world = ToolShop(seed=2)
    assert isinstance(world, World)
    assert (True, 0.0, True, False) == (
        world.exact_snapshot, world.snapshot_cost, world.deterministic, world.side_effects,
    )  # fmt: skip
    agrees_with_its_record(lambda: ToolShop(seed=2), world.task.solution)


def test_continuations_from_each_step_of_the_solution_win_and_from_a_mistake_lose() -> None:
    solution = ToolShop(seed=1).task.solution
    here, _ = places(lambda: ToolShop(seed=1), solution)
    wins = continued(lambda: ToolShop(seed=1), [Request(p) for p in here], scripted(solution))
    assert [1.0] * len(here) == [a.mean for a in wins]
    wrong = solution[2].replace("move", "cancel")
    lost = continued(lambda: ToolShop(seed=1), [Request(here[2], forced=(wrong,))], scripted(solution))
    assert [0.0] == [a.mean for a in lost]


def test_the_mean_of_continuations_is_the_exact_value() -> None:
    def make() -> ToolShop:
        return ToolShop(seed=1, wishes=1, orders=1, horizon=6)

    table = tabulate(make(), UniformActor())
    assert 0 < table.value < 1
    here, _ = places(make, make().task.solution)
    request = Request(here[2], k=300)
    answer = continued(make, [request], slots=8)[0]
    exact = table.tables.V[2, table.walk(make().task.solution, [None] * 4)[0][2]]
    assert abs(answer.mean - exact) <= 4 * np.sqrt(exact * (1 - exact) / 300)


def test_truth_of_its_rollouts_is_bought_by_the_worlds_name() -> None:
    """The verb checks restored states first; a rollout of another shop is refused."""
    solution = ToolShop(seed=1).task.solution
    here, _ = places(lambda: ToolShop(seed=1), solution)
    steps = [{"state": p.state, "action": a} for p, a in zip(here, solution, strict=True)]
    batch = Batch.from_records([{"id": "a", "group": "shop-1", "reward": 1.0, "steps": steps}])
    last = len(solution) - 1
    found = ac.truth(batch, "toolshop:1", "uniform", continuations=20, steps=[last])
    assert "monte_carlo" == found.kind
    assert 1.0 == found.truth.numbers["q"][0]  # `done` pays at once, for sure
    assert found.truth.numbers["value"][0] < 1
    with pytest.raises(ProbeError, match="not the recorded ones"):
        ac.truth(batch, "toolshop:2", "uniform", continuations=2)


def test_it_is_made_by_name_with_a_seed_or_the_number_of_a_group() -> None:
    batch = Batch.from_records([{"id": "a", "group": "shop-7", "steps": []}])
    for name, group in (("toolshop:7", "any"), ("toolshop", "shop-7")):
        made = world_named(name, batch, horizon=9)(group)
        assert made.task == shop_task(7)
        made.reset(0)
        assert 9 == made.steps_left()
    with pytest.raises(DataError, match="does not end in a seed"):
        world_named("toolshop", batch)("shop")
