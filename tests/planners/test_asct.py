"""Searches of states that were really played: visits, rules, bias, variance, and what is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import accredit as ac
from accredit.data import Batch
from accredit.errors import ParamError
from accredit.planners.asct import AsctPlanner, Spent, Work, uct_scores
from accredit.signals.continuation import Alone, Budget, Engine, Player, Replay
from accredit.signals.continuation.legal import legal_actions
from accredit.worlds import TabularWorld, make, make_policy
from accredit.worlds.acting import TableActor, UniformActor, WeighedActor
from tests.planners.exact import Exact

TASK = make("lock", seed=1, decisions=3)
POLICY = make_policy(TASK, 0.4)
TRUTH = Exact(TASK, POLICY)
RIGHT = [f"turn to {d}" for d in TASK.facts["digits"]]
RULES = ("uniform", "uct", "agent_uct", "actor_rollout")


def engine(planner: AsctPlanner | None = None, budget: Budget | None = None) -> Engine:
    actors = {"actor": TableActor(TASK, POLICY), "uniform": UniformActor()}
    if planner is not None:
        actors |= {"work": WeighedActor(lambda scene: planner.weights(scene.history, scene.actions or ()))}
    player = Player(Replay(lambda group: TabularWorld(TASK)), actors, slots=64)
    return Engine(Alone(player), budget=budget)


def rollouts(n: int, actions: list[str] = RIGHT) -> Batch:
    """One rollout of the same actions in each of n groups."""
    steps = [{"action": a} for a in actions]
    return Batch.from_records(
        {"id": f"r{g}", "group": f"g{g}", "reward": 1.0, "steps": steps} for g in range(n)
    )


def probs(t: int) -> dict[str, float]:
    row = POLICY.probs_NA[TRUTH.walk(RIGHT[:t])]
    return {a: float(row[i]) for i, a in enumerate(TASK.actions)}


def planned(n: int, rule: str, at: tuple[int, ...] = (0, 1, 2), **options: Any) -> AsctPlanner:
    batch = rollouts(n)
    told = [probs(s % 3) for s in range(batch.n_steps)]
    steps = [s for s in range(batch.n_steps) if s % 3 in at]
    return AsctPlanner(batch, told, rule, steps=steps, **options)


def searched(n: int, rule: str, at: tuple[int, ...] = (0, 1, 2), **options: Any) -> AsctPlanner:
    return engine().drive(planned(n, rule, at, **options))


def q_of(t: int) -> np.ndarray:
    node = TRUTH.walk(RIGHT[:t])
    return np.array([TRUTH.after(node, a)[0] for a in range(len(TASK.actions))])


def credits_at(planner: AsctPlanner, t: int) -> np.ndarray:
    credit = ac.assign(planner.filled(), "asct", standardise="none", missing="zero")
    return credit.steps.reshape(-1, 3)[:, t]


def test_worked_example_of_selection() -> None:
    mean, n, work = np.array([0.52, 0.61, 0.40]), np.array([4, 5, 3]), np.array([1200, 3000, 800])
    assert uct_scores(mean, n, 12).round(4).tolist() == [1.6411, 1.6127, 1.6945]
    assert uct_scores(mean, n, 12, 1.4, 1e-4, work).round(4).tolist() == [1.5211, 1.3127, 1.6145]
    told = Work()
    for action, w in zip("abc", work.tolist(), strict=True):
        told.add(0, action, w)
    assert told.weights(0, "abc", 1e-4).round(3).tolist() == [0.348, 0.290, 0.362]
    assert told.expected(1, "abc").tolist() == [0.0, 0.0, 0.0]  # optimistic where nothing is known


def test_trials_completed_by_the_actor_are_unbiased_and_spread_by_the_law() -> None:
    """Seen failing with the first action of a trial left to the actor."""
    n, each = 300, 3
    found = credits_at(searched(n, "actor_rollout", (0,), budget=3 * each), 0)
    q, p = q_of(0), np.array(list(probs(0).values()))
    own = TASK.actions.index(RIGHT[0])
    centred = (np.arange(3) == own) - p
    variance = float((centred**2 * q * (1 - q)).sum() / each)
    assert abs(found.mean() - float(centred @ q)) <= 3 * np.sqrt(variance / n)
    assert found.var(ddof=1) == pytest.approx(variance, rel=0.3)


def test_trials_completed_at_random_are_values_of_random_play() -> None:
    """So they are biased for the actor: the price of asking nobody."""
    found = credits_at(searched(300, "uniform", (0,), budget=3, c_tok=0.0), 0)
    own = TASK.actions.index(RIGHT[0])
    random_play = (1 - probs(0)[RIGHT[0]]) / 9  # two more dials of three digits
    assert abs(found.mean() - random_play) <= 3 * found.std() / np.sqrt(300)
    exact = float(((np.arange(3) == own) - np.array(list(probs(0).values()))) @ q_of(0))
    assert abs(random_play - exact) > 0.1


def test_where_the_next_action_ends_all_rules_agree() -> None:
    expected = float(q_of(2)[TASK.actions.index(RIGHT[2])] - np.array(list(probs(2).values())) @ q_of(2))
    for rule in RULES:
        np.testing.assert_allclose(credits_at(searched(2, rule, (2,)), 2), expected, rtol=1e-9)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("budget", [4, 12])
def test_every_action_is_tried_and_the_budget_is_spent(rule: str, budget: int) -> None:
    planner = searched(6, rule, budget=budget)
    for table in planner.filled().search_S:
        n = [told["n"] for told in table.values()]
        assert sum(n) == budget
        assert min(n) >= 1
        if rule in ("uniform", "actor_rollout"):
            assert max(n) - min(n) <= 1
        assert all(0 <= told["mean"] <= 1 for told in table.values())
    assert planner.spent.trials == 6 * 3 * budget


def test_without_a_price_of_work_agent_uct_is_uct() -> None:
    free = searched(3, "agent_uct", c_tok=0.0).filled().search_S.tolist()
    plain = engine()
    planner = planned(3, "uct")
    assert [t.keys() for t in free] == [t.keys() for t in plain.drive(planner).filled().search_S.tolist()]
    one, other = planned(3, "agent_uct", c_tok=0.0), planned(3, "uct")
    for _ in range(2):  # the same first trials of the same chance: then outcomes decide
        a, b = one.ask(), other.ask()
        assert [(r.place, r.forced) for r in a] == [(r.place, r.forced) for r in b]
        answers = plain.run(b)
        one.tell(answers)
        other.tell(answers)


def test_agent_uct_likes_what_ends_soon() -> None:
    task_probs = [{"turn to 0": 0.5, "turn to 1": 0.5}]
    batch = Batch.from_records([{"id": "a", "group": "g", "reward": 0, "steps": [{"action": "turn to 0"}]}])
    planner = AsctPlanner(batch, task_probs, "agent_uct", c_tok=1.0)
    planner.work.add(0, "turn to 0", 50.0)
    assert planner.weights((), ("turn to 0", "turn to 1")).round(6).tolist() == [0.0, 1.0]
    assert planner.ask()[0].forced == ("turn to 1",)


def test_trials_may_be_completed_by_what_the_search_has_learnt() -> None:
    planner = planned(2, "agent_uct", completion="work", budget=6)
    found = engine(planner).drive(planner).filled()
    assert all(sum(t["n"] for t in table.values()) == 6 for table in found.search_S)
    again = planned(2, "agent_uct", completion="work", budget=6)
    assert engine(again).drive(again).filled().search_S.tolist() == found.search_S.tolist()


def test_utility_of_search_and_of_use_pays_for_tokens() -> None:
    spent = Spent(trials=4, utility=2.0, tokens=1000)
    assert 0.475 == pytest.approx(spent.search(beta=1e-4))
    assert 0.4 == pytest.approx(spent.deployed(0.5, uses=10, beta=1e-3))
    assert 0.0 == Spent().search()


def test_ends_that_are_known_cost_nothing() -> None:
    planner = planned(1, "uniform", (2,), budget=12)
    bought = engine()
    bought.drive(planner)
    assert bought.ledger.physical.continuations == 3  # one action ends the episode
    assert (planner.spent.trials, planner.spent.cached) == (12, 9)
    assert planner.spent.search(0.0) == pytest.approx(4 / 12)
    looked = planned(1, "uniform", (2,), budget=12, deterministic=False)
    again = engine()
    again.drive(looked)
    assert again.ledger.physical.continuations == 12
    assert looked.spent.cached == 0


def test_the_seed_changes_the_search_and_never_the_rollouts() -> None:
    first, second = (searched(3, "uct", seed=s) for s in (0, 1))
    a, b = first.filled(), second.filled()
    assert a.search_S.tolist() != b.search_S.tolist()
    assert a.without_column("search") == b.without_column("search")
    assert searched(3, "uct", seed=0).filled().search_S.tolist() == a.search_S.tolist()


def test_a_states_search_does_not_depend_on_the_others() -> None:
    alone, among = searched(1, "uct"), searched(4, "uct")
    assert alone.filled().search_S.tolist() == among.filled().search_S.tolist()[:3]


def test_a_budget_below_the_actions_is_raised_and_said() -> None:
    planner = searched(1, "uniform", (0,), budget=1)
    assert [f.code for f in planner.findings] == ["ACC523"]
    assert [t["n"] for t in planner.filled().search_S[0].values()] == [1, 1, 1]


def test_one_legal_action_is_not_searched() -> None:
    batch = rollouts(1)
    planner = AsctPlanner(batch, [{RIGHT[t]: 1.0} for t in range(3)])
    assert planner.ask() == []
    assert ac.assign(planner.filled(), "asct").steps.tolist() == [0.0, 0.0, 0.0]


def test_a_spent_engine_leaves_what_there_is() -> None:
    planner = planned(1, "actor_rollout", (0,), budget=12)
    engine(budget=Budget(continuations=5)).drive(planner)
    n = [t["n"] for t in planner.filled().search_S[0].values()]
    assert sum(n) == 5
    stopped = planned(1, "uniform", (0,), budget=12)
    engine(budget=Budget(continuations=5)).drive(stopped)
    assert stopped.spent.trials == 5


def test_provenance_says_how_it_was_made() -> None:
    made = searched(1, "uct", (0,), budget=5).filled().column("search_S").provenance
    told = {"by": "AsctPlanner", "rule": "uct", "budget": 5, "completion": "uniform", "seed": 0, "trials": 5}
    assert told.items() <= made.items()


def test_legal_actions_and_their_chances_are_those_of_the_table() -> None:
    restorer = Replay(lambda group: TabularWorld(TASK))
    found = legal_actions(rollouts(2), restorer, TableActor(TASK, POLICY))
    assert [probs(t) for t in range(3)] * 2 == found
    some = legal_actions(rollouts(1), restorer, TableActor(TASK, POLICY), steps=[1])
    assert [{}, probs(1), {}] == some
    lost = legal_actions(rollouts(1, ["fly", "turn to 0"]), restorer, UniformActor())
    assert ([3, 0], {}) == ([len(told) for told in lost], lost[1])


def test_odd_arguments_are_refused() -> None:
    batch = rollouts(1)
    with pytest.raises(ParamError, match="uct"):
        AsctPlanner(batch, [{}] * 3, "utc")
    with pytest.raises(ParamError, match="one mapping a step"):
        AsctPlanner(batch, [{}] * 2)
