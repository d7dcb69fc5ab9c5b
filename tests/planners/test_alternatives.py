"""Contexts of C3: what is asked, how it becomes trees, and that the credit obeys the printed law."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import accredit as ac
from accredit.data import Batch
from accredit.errors import ParamError
from accredit.index import Index
from accredit.metrics import contrast_law
from accredit.planners import Place, Request, branched
from accredit.planners.c3 import Alternatives, decision_points
from accredit.signals.continuation import Alone, Engine, Player, Replay
from accredit.worlds import TabularWorld, make, make_policy
from accredit.worlds.acting import Choice
from tests.planners.exact import Exact, engine_of

TASK = make("team", seed=3, agents=3, choices=4)
POLICY = make_policy(TASK)
TRUTH = Exact(TASK, POLICY)


def references(groups: int, seed: int = 0) -> Batch:
    starts = [Request(Place(f"g{i}", "start"), record=True) for i in range(groups)]
    return Batch.from_records(branched(engine_of(TASK, POLICY, seed).run(starts)))


def contexts(groups: int, step: int, seed: int = 1, **options: Any) -> Batch:
    batch = references(groups)
    steps = batch.step_start_R1[:-1] + step
    return engine_of(TASK, POLICY, seed).drive(Alternatives(batch, steps, **options)).filled()


def tried(batch: Batch, credit: ac.Credit, step: int) -> dict[str, list[tuple[float, str, list[str]]]]:
    """Credit, action and path before it of each alternative, by context."""
    found: dict[str, dict[int, tuple[float, str, list[str]]]] = {}
    for r, record in enumerate(batch.records()):
        s = int(batch.step_start_R1[r]) + step
        path = [one["action"] for one in record["steps"]]
        arm = int(record["id"].rpartition(":")[2].split()[1].split(".")[0])
        found.setdefault(record["tree"], {})[arm] = (float(credit.steps[s]), path[step], path[:step])
    return {tree: list(arms.values()) for tree, arms in found.items()}


def drawn(node: int, c: int) -> float:
    """Variance of another alternative's mean of c, before it is drawn."""
    ways = [(POLICY.probs_NA[node, a], *TRUTH.after(node, a)) for a in TRUTH.acts(node)]
    mean = sum(p * q for p, q, _ in ways)
    return float(sum(p * ((q - mean) ** 2 + v / c) for p, q, v in ways))


@pytest.mark.parametrize(("step", "n", "c"), [(0, 4, 3), (1, 3, 4), (1, 2, 1)])
def test_credit_is_unbiased_and_as_noisy_as_the_law_says(step: int, n: int, c: int) -> None:
    """Given the alternatives, and against the advantage of the first one of each context alone."""
    batch = contexts(150, step, n=n, c=c)
    credit = ac.assign(batch, "c3")
    z, error, apart, before = [], [], [], []
    for arms in tried(batch, credit, step).values():
        node = TRUTH.walk(arms[0][2])
        exact = np.array([TRUTH.after(node, TASK.actions.index(a)) for _, a, _ in arms])
        found = np.array([value for value, _, _ in arms])
        law = contrast_law(exact[:, 0], exact[:, 1], np.full(len(arms), float(c)))
        z.append(((found - law.mean) / np.sqrt(law.variance))[0])
        error.append(found[0] - (exact[0, 0] - TRUTH.moments(node)[0]))
        before.append(error[-1] / np.sqrt(exact[0, 1] / c + drawn(node, c) / (len(arms) - 1)))
        apart.append(((found[0] - law.mean[0]) * law.mean[0], law.variance[0] * law.mean[0] ** 2))
    size = len(z)
    assert size == 150
    assert abs(np.mean(z)) < 3.5 / np.sqrt(size)
    assert 0.6 < np.mean(np.square(z)) < 1.6
    assert abs(np.mean(error)) < 3.5 * np.std(error) / np.sqrt(size)
    assert 0.6 < np.mean(np.square(before)) < 1.6
    total, variance = np.sum(apart, axis=0)  # credit grows with the truth by a slope of 1
    assert abs(total) < 3.5 * np.sqrt(variance)


def test_continuations_that_share_their_chance_differ_less() -> None:
    """The contrast's noise falls where common chance makes both arms meet alike teammates."""
    spread = {}
    for common in (False, True):
        batch = contexts(120, 1, n=3, c=2, common=common)
        apart = []
        for arms in tried(batch, ac.assign(batch, "c3"), 1).values():
            node = TRUTH.walk(arms[0][2])
            exact = [TRUTH.after(node, TASK.actions.index(a))[0] for _, a, _ in arms]
            apart.append(arms[0][0] - (exact[0] - np.mean(exact[1:])))
        spread[common] = float(np.var(apart))
    assert spread[True] < 0.9 * spread[False]


def test_a_context_is_one_tree_whose_alternatives_are_siblings() -> None:
    batch = contexts(2, 1, n=3, c=2)
    records = list(batch.records())
    assert len(records) == 2 * 3 * 2
    assert len({r["tree"] for r in records}) == 2
    first = [r for r in records if r["tree"] == records[0]["tree"]]
    assert [(r.get("parent"), r.get("fork_step")) for r in first] == [
        (None, None),
        (first[0]["id"], 2),
        (first[0]["id"], 1),
        (first[2]["id"], 2),
        (first[0]["id"], 1),
        (first[4]["id"], 2),
    ]
    for r in first:
        assert r["steps"][0]["action"] == first[0]["steps"][0]["action"]
        assert r["steps"][1]["action_logprob"] < 0
    credit = ac.assign(batch, "c3")
    assert credit.extras["count"].reshape(-1, 3)[:, 1].tolist() == [2.0] * 12
    assert not credit.steps.reshape(-1, 3)[:, 0].any()
    assert dict(batch.provenance)["contexts"]["statuses"] == {"finished": 12}


def test_an_alternative_that_the_world_refuses_counts_with_what_it_got() -> None:
    """Seen failing where the engine left illegal actions out of paths: then it was drawn anew in effect."""

    class Stubborn:
        version = "stubborn"

        def act(self, scenes: Any, rngs: Any) -> list[Choice]:
            return [Choice("fly" if rng.random() < 0.5 else "choice 0", -0.7) for rng in rngs]

    player = Player(Replay(lambda group: TabularWorld(TASK)), {"actor": Stubborn()})
    batch = Engine(Alone(player)).drive(Alternatives(references(6), [0, 3, 6], n=6, c=1)).filled()
    firsts = [r["steps"][0]["action"] for r in batch.records()]
    assert len(batch) == 18
    assert 3 <= firsts.count("fly") <= 15
    credit = ac.assign(batch, "c3")
    refused = [float(row[0]) for row, a in zip(credit.by_rollout(), firsts, strict=True) if a == "fly"]
    assert any(refused)
    assert {r["status"] for r in batch.records() if r["steps"][0]["action"] == "fly"} == {"failed"}


def test_one_path_is_one_context_and_the_recorded_action_can_be_an_alternative() -> None:
    batch = references(1)
    twice = Batch.concat([batch, Batch.from_records([r | {"id": "again"} for r in batch.records()])])
    planner = Alternatives(twice, [0, 3], n=3, c=1, reuse=True)
    asked = planner.ask()
    assert [r.k for r in asked] == [2]
    engine = engine_of(TASK, POLICY)
    planner.tell(engine.run(asked))
    more = planner.ask()
    assert len(more) == 3
    assert more[0].forced == (next(iter(batch.records()))["steps"][0]["action"],)
    with pytest.raises(ParamError, match="n and c"):
        Alternatives(batch, [0], n=0)


def test_decision_points_do_not_see_actions_or_outcomes() -> None:
    batch = references(5)
    points = decision_points(Index(batch), per_group=2)
    assert np.bincount(Index(batch).group_S[points]).tolist() == [2] * 5
    blind = [
        {k: v for k, v in r.items() if k != "reward"} | {"steps": [{"action": "x"} for _ in r["steps"]]}
        for r in batch.records()
    ]
    np.testing.assert_array_equal(points, decision_points(Index(Batch.from_records(blind)), per_group=2))
    other = decision_points(Index(batch), per_group=2, seed=1)
    assert points.tolist() != other.tolist()
