"""Entropy forks: the chance of a fork, where branches leave, how many, and what AEPO changes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.data import Batch
from accredit.errors import ParamError
from accredit.index import Index
from accredit.planners import Place, Request, branched
from accredit.planners.entropy_forks import (
    AEPO,
    ARPO,
    EntropyForks,
    ForkLaw,
    entropy_forks,
    global_share,
    recorded_entropy,
    streaks,
    window_entropy,
)
from accredit.planners.growing import Grower
from accredit.typing import Floats
from accredit.worlds import make, make_policy
from tests.planners.exact import engine_of

rises = st.floats(-5, 5)


# --- the law -------------------------------------------------------------------------------------------


def test_worked_examples_of_the_card() -> None:
    assert ARPO.chance(0.15) == pytest.approx(0.53)
    assert AEPO.chance(0.3, 2) == pytest.approx(0.504)
    assert [global_share(16, 0.4, 0.0), global_share(16, 0.4, 0.0, code=True)] == [9, 9]
    assert [global_share(16, -1.2, 0.0), global_share(16, -1.2, 0.0, code=True)] == [6, 6]
    assert global_share(16, 0.4, None) == 16


@given(rises, rises, st.integers(0, 30), st.sampled_from(["chance", "threshold", "code"]))
def test_the_chance_rises_with_entropy_and_falls_with_the_streak(
    a: float, b: float, streak: int, form: Any
) -> None:
    """Seen failing with the weight subtracted."""
    law = ForkLaw(penalty=0.05, form=form)
    low, high = sorted((a, b))
    assert 0 <= law.chance(low, streak) <= law.chance(high, streak) <= 1
    if form == "chance" and low >= 0:
        assert law.chance(low, streak + 1) <= law.chance(low, streak)


@given(rises)
def test_without_weight_the_chance_is_the_base_and_aepo_without_a_streak_is_arpo(rise: float) -> None:
    assert ForkLaw(weight=0.0).chance(rise) == 0.5
    assert AEPO.chance(rise, 0) == ARPO.chance(rise)
    assert ForkLaw(penalty=0.05, form="code").chance(rise) == pytest.approx(ARPO.chance(rise))
    assert ForkLaw(form="threshold").chance(rise) == float(0.5 + 0.2 * rise > 0.5)


@pytest.mark.parametrize(("rise", "streak"), [(0.7, 0), (-1.0, 0), (0.7, 3), (-0.4, 6)])
def test_the_code_form_is_what_their_inequality_does(rise: float, streak: int) -> None:
    """x = (u + w dH) (1 - .05 l), fork iff x >= p, counted over uniform u."""
    u = (np.arange(100_000) + 0.5) / 100_000
    share = ((u + 0.2 * rise) * (1 - 0.05 * streak) >= 0.5).mean()
    assert ForkLaw(penalty=0.05, form="code").chance(rise, streak) == pytest.approx(share, abs=1e-4)


def test_odd_laws_are_refused() -> None:
    for odd in ({"base": 1.5}, {"penalty": -1.0}, {"form": "coin"}):
        with pytest.raises(ParamError, match="base is in"):
            ForkLaw(**odd)  # type: ignore[arg-type]


# --- entropy -----------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.floats(-12, -0.01), min_size=1, max_size=14), max_size=25))
def test_window_entropy_equals_the_slow_loop(rows: list[list[float]]) -> None:
    """Seen failing with the smallest probabilities kept instead of the largest."""
    total, tokens = 0.0, 0
    for row in rows[:20]:
        tokens += 1
        for x in sorted(row, reverse=True)[:10]:
            total -= math.exp(x) * x / math.log(1000)
    assert window_entropy(rows, vocabulary=1000, form="sum") == pytest.approx(total, abs=1e-12)
    mean = total / tokens if tokens else 0.0
    assert window_entropy(rows, vocabulary=1000, form="mean") == pytest.approx(mean, abs=1e-12)
    assert window_entropy(rows, vocabulary=1000) == pytest.approx(20 * mean, abs=1e-12)


def test_entropy_is_read_from_top_logprobs_else_from_the_mean_of_the_step() -> None:
    even = [[math.log(0.5)] * 2] * 4
    steps = [
        {"action": "a", "top_logprobs": even, "node_entropy": 9.0},
        {"action": "b", "node_entropy": 1.0},
        {},
    ]
    batch = Batch.from_records([{"id": "a", "group": "g", "steps": steps}])
    found = recorded_entropy(vocabulary=4)(Index(batch))
    assert found[:2].tolist() == pytest.approx([20 * 0.5, 20 / math.log(4)])
    assert np.isnan(found[2])
    with pytest.raises(ParamError, match="vocabulary"):
        window_entropy([[0.0]], vocabulary=1)


# --- the rule ------------------------------------------------------------------------------------------


def recorded(index: Index) -> Floats:
    return index.batch.column("h_S").values


def chain(name: str, entropies: list[float], **more: Any) -> dict[str, Any]:
    steps = [{"action": f"{name} {t}", "h": h} for t, h in enumerate(entropies)]
    return {"id": name, "group": "g", "reward": 1, "steps": steps} | more


def test_boundaries_are_forked_as_often_as_the_law_says() -> None:
    """4 standard errors, by the rise of entropy."""
    for rise in (-1.5, 0.0, 1.0, 3.0):
        n = 1500
        batch = Batch.from_records([chain(f"r{i}", [0.5, 0.5 + rise, 0.0]) for i in range(n)])
        share = entropy_forks(recorded, total=10**6)(Index(batch), 0).size / n
        chance = ARPO.chance(rise)
        assert abs(share - chance) <= 4 * math.sqrt(max(chance * (1 - chance), 1e-9) / n)


def test_early_rollouts_get_the_slots_and_unknown_entropy_forks_nothing() -> None:
    batch = Batch.from_records([chain(n, [0.0, 9.0]) for n in "abcd"])
    found = entropy_forks(recorded, total=6)(Index(batch), 0)
    assert [batch.ids[r] for r in Index(batch).rollout_S[found]] == ["a", "b"]
    unknown = entropy_forks(lambda index: np.full(index.batch.n_steps, np.nan), ForkLaw(base=1.0), total=99)
    assert unknown(Index(batch), 0).size == 0


def test_streaks_count_boundaries_in_a_row_that_were_forked_on_the_path() -> None:
    first = chain("a", [0.0] * 5)
    branch = chain("b", [0.0] * 5, parent="a", fork_step=1)
    second = chain("c", [0.0] * 5, parent="b", fork_step=2)
    index = Index(Batch.from_records([first, branch, second]))
    assert streaks(index).reshape(3, 5).tolist() == [[0, 0, 1, 0, 0], [0, 0, 1, 2, 0], [0, 0, 1, 2, 0]]


def test_a_branch_is_first_visited_at_the_next_boundary() -> None:
    branch = chain("b", [0.0, 9.0, 9.0], parent="a", fork_step=1)
    batch = Batch.from_records([chain("a", [0.0, 9.0, 9.0]), branch])
    index, rule = Index(batch), entropy_forks(recorded, ForkLaw(base=1.0), total=99)
    assert [(int(index.rollout_S[s]), int(index.position_S[s])) for s in rule(index, 0)] == [(0, 1)]
    assert [(int(index.rollout_S[s]), int(index.position_S[s])) for s in rule(index, 1)] == [(0, 2), (1, 2)]


# --- growing ---------------------------------------------------------------------------------------------

TASK = make("team", seed=2, agents=5, choices=3)
POLICY = make_policy(TASK)


def exact_entropy(index: Index) -> Floats:
    """Entropy of the policy in each step's state, from the table."""
    logs = np.log(np.where(POLICY.probs_NA > 0, POLICY.probs_NA, 1.0))
    by_key = dict(zip(TASK.keys, -(POLICY.probs_NA * logs).sum(1), strict=True))
    return np.array([by_key[str(s)] for s in index.batch.column("state_S").decoded()])


def start(groups: int, n: int) -> Batch:
    asked = [Request(Place(f"g{i}", "begin"), k=n, record=True) for i in range(groups)]
    return Batch.from_records(branched(engine_of(TASK, POLICY).run(asked)))


@pytest.mark.parametrize("law", [ARPO, AEPO, ForkLaw(form="threshold")])
def test_a_task_never_has_more_than_its_rollouts_and_is_filled_up(law: ForkLaw) -> None:
    planner = EntropyForks(start(12, 3), exact_entropy, law, total=8)
    batch = engine_of(TASK, POLICY).drive(planner).batch
    assert {len(part) for _, part in batch.groups()} == {8}
    assert planner.missing() == {}
    assert sum(planner.counts.values()) == 12 * 5
    forks = [r for r in batch.records() if "parent" in r]
    assert len(forks) > 20
    assert {r["fork_step"] for r in forks} <= {1, 2, 3, 4}


def test_without_filling_the_shortfall_is_told() -> None:
    never = ForkLaw(base=0.0, weight=0.0)
    planner = EntropyForks(start(1, 3), exact_entropy, never, total=8, fill=False)
    assert len(engine_of(TASK, POLICY).drive(planner).batch) == 3
    assert planner.missing() == {"g0": 5}
    fresh = EntropyForks(start(1, 3), exact_entropy, never, total=8)
    batch = engine_of(TASK, POLICY).drive(fresh).batch
    assert len(batch) == 8
    assert not any("parent" in r for r in batch.records())
    assert len({tuple(s["action"] for s in r["steps"]) for r in batch.records()}) > 3


def test_forks_on_a_world_follow_the_law_and_stand_where_entropy_rose() -> None:
    """First boundary of many tasks: share of forks against the sum of chances, 4 standard errors."""
    law = ForkLaw(base=0.4, weight=0.8)
    rule = entropy_forks(exact_entropy, law, total=10**6)
    batch = engine_of(TASK, POLICY).drive(Grower(start(80, 5), rule, rounds=1)).batch
    index = Index(batch)
    entropy = exact_entropy(index).reshape(len(batch), 5)
    roots = [r for r, record in enumerate(batch.records()) if "parent" not in record]
    chance = np.array([law.chance(float(entropy[r, 1] - entropy[r, 0])) for r in roots])
    found = len(batch) - len(roots)
    assert np.ptp(chance) > 0.2
    assert abs(found - chance.sum()) <= 4 * math.sqrt(float((chance * (1 - chance)).sum()))


def test_odd_sizes_are_refused() -> None:
    with pytest.raises(ParamError, match="total and copies"):
        EntropyForks(start(1, 1), exact_entropy, total=0)
