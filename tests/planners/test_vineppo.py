"""VinePPO on continuations that were really played, beside exact values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import accredit as ac
from accredit.data import Batch
from accredit.errors import DataError, ParamError
from accredit.index.samples import spread_of_one
from accredit.oracle import solve
from accredit.planners import Answer, Outcome
from accredit.planners.vineppo import VinePlanner
from accredit.signals.continuation import Budget, Engine
from accredit.typing import Floats
from accredit.worlds import make, make_policy, sample
from tests.planners.exact import Exact, engine_of

TASK = make("lock", seed=1, decisions=4)
POLICY = make_policy(TASK, 0.4)
TRUTH = Exact(TASK, POLICY)
RIGHT = [f"turn to {d}" for d in TASK.facts["digits"]]
VALUES = np.array([TRUTH.moments(TRUTH.walk(RIGHT[:t]))[0] for t in range(5)])


def alike(groups: int) -> Batch:
    """One rollout of the right digits in each of many groups of the same task."""
    steps = [{"action": action} for action in RIGHT]
    return Batch.from_records(
        {"id": f"r{g}", "group": f"g{g}", "reward": 1.0, "steps": steps} for g in range(groups)
    )


def credit_of(batch: Batch, k: int, **options: Any) -> Floats:
    """Credit of many equal rollouts, each with continuations of its own ``[groups, steps]``."""
    filled = engine_of(TASK, POLICY).drive(VinePlanner(batch, k, **options)).filled()
    return ac.assign(filled, "vineppo").steps.reshape(-1, len(RIGHT))


def test_values_are_those_of_the_oracle() -> None:
    assert VALUES[0] == pytest.approx(solve(TASK, POLICY).value)
    assert VALUES[-1] == 1.0


def test_credit_is_unbiased_and_neighbours_err_in_opposite_directions() -> None:
    """Seen failing with the main rollout counted among the continuations."""
    n, k = 400, 2
    found = credit_of(alike(n), k)
    v = VALUES * (1 - VALUES) / k
    variance = v[:4] + np.append(v[1:4], 0.0)  # the end is known
    error = np.sqrt(variance / n)
    assert (np.abs(found.mean(0) - np.diff(VALUES)) <= 3 * error).all()
    np.testing.assert_allclose(found.var(0, ddof=1), variance, rtol=0.35)
    for t in range(3):
        measured = float(np.cov(found[:, t], found[:, t + 1])[0, 1])
        assert abs(measured + v[t + 1]) <= 3.5 * np.sqrt(variance[t] * variance[t + 1] / n)
        assert measured < 0


def test_a_common_chance_of_the_episode_takes_noise_out_of_differences() -> None:
    """Seen failing with chance counted from the place, not from the start of the episode."""
    apart, together = credit_of(alike(200), 2), credit_of(alike(200), 2, common_seeds=True)
    assert np.abs(together.mean(0) - np.diff(VALUES)).max() < 0.12
    assert (together[:, :3].var(0) < 0.7 * apart[:, :3].var(0)).all()
    # Both go on alike from the next dial, so the right digit is never worse than the policy's own.
    assert (together >= 0).all()
    assert (apart < 0).any()


def test_many_continuations_come_near_gae_with_exact_values() -> None:
    played = sample(TASK, policy=POLICY, groups=2, group_size=2, seed=3)
    k = 300
    filled = engine_of(TASK, POLICY).drive(VinePlanner(played.batch, k)).filled()
    credit = ac.assign(filled, "vineppo")
    exact = played.batch.with_column("value", played.truth.value)
    expected = ac.assign(exact, "gae", lam=0, granularity="turn").steps
    assert (np.abs(credit.steps - expected) <= 3.5 * credit.extras["se"]).all()
    assert credit.extras["k"].min() == k


def test_order_and_duplicates_change_nothing_and_equal_paths_are_asked_once() -> None:
    played = sample(TASK, policy=POLICY, groups=2, group_size=3, seed=3).batch
    planner = VinePlanner(played, 3)
    assert len(planner.ask()) < played.n_steps
    first = engine_of(TASK, POLICY).drive(planner).filled()
    turned = played.take(np.arange(len(played))[::-1])
    other = engine_of(TASK, POLICY).drive(VinePlanner(turned, 3)).filled()
    again = other.take(np.arange(len(played))[::-1])
    assert first.continuations_S.tolist() == again.continuations_S.tolist()


def test_only_the_first_states_are_asked_on_request() -> None:
    batch = alike(1)
    planner = VinePlanner(batch, 2, max_step=1)
    assert [request.place.step for request in planner.ask()] == [0, 1]
    filled = engine_of(TASK, POLICY).drive(planner).filled()
    assert filled.column("continuations_S").mask(4).tolist() == [True, True, False, False]
    assert ac.assign(filled, "vineppo", max_step=1).steps[2:].tolist() == [0.0, 0.0]


def test_a_state_that_was_not_reached_is_missing_and_never_zero() -> None:
    batch = alike(1)
    planner = VinePlanner(batch, 2)
    lost = Outcome("failed_restore", None)
    planner.tell([Answer(request, (lost, lost)) for request in planner.ask()])
    filled = planner.filled()
    with pytest.raises(DataError, match="ACC420"):
        ac.assign(filled, "vineppo")
    made = filled.column("continuations_S").provenance
    assert made["statuses"] == {"failed_restore": 8}
    assert (made["k"], made["policy"]) == (2, "actor")


def test_a_short_budget_leaves_fewer_outcomes_and_k_says_so() -> None:
    engine = engine_of(TASK, POLICY)
    short = Engine(engine.crew, budget=Budget(per_state=3))
    filled = short.drive(VinePlanner(alike(1), 5)).filled()
    credit = ac.assign(filled, "vineppo")
    assert credit.extras["k"].tolist() == [3.0] * 4
    outcomes = [c["reward"] for c in filled.continuations_S[3]]
    assert credit.extras["se"][3] == pytest.approx(np.sqrt(spread_of_one(outcomes) / 3))


def test_a_start_of_its_own_is_a_place_of_its_own() -> None:
    records = [
        {"id": f"r{s}", "group": "g", "reward": 1.0, "start": s, "steps": [{"action": "x"}]} for s in (0, 7)
    ]
    places = [request.place for request in VinePlanner(Batch.from_records(records), 1).ask()]
    assert [place.start for place in places] == [0, 7]


def test_odd_sizes_are_refused() -> None:
    for odd in ({"k": 0}, {"max_step": -1}):
        with pytest.raises(ParamError, match="k must be"):
            VinePlanner(alike(1), **odd)
