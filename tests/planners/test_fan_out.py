"""Trees of pipelines: their shape, that subtree means are unbiased, and their variance."""

from __future__ import annotations

import numpy as np
import pytest

import accredit as ac
from accredit.data import Batch
from accredit.errors import ParamError
from accredit.index import Forks, Index
from accredit.planners.treemem import FanOut
from accredit.worlds import make, make_policy
from tests.planners.exact import Exact, engine_of

TASK = make("team", seed=5, agents=3, choices=4)
POLICY = make_policy(TASK)
TRUTH = Exact(TASK, POLICY)


def tree(sizes: tuple[int, ...], groups: int) -> Batch:
    found = engine_of(TASK, POLICY).drive(FanOut({f"h{i}": 0 for i in range(groups)}, sizes)).batch
    assert found is not None
    return found


def expected(action: str, J: int, K: int) -> tuple[float, float]:
    """Q of a first message, and the variance of its subtree mean over J answers with K answers each."""
    start = TRUTH.start()
    ((_, node, paid),) = TRUTH.edges(start, TASK.actions.index(action))
    ways = [(POLICY.probs_NA[node, a], *TRUTH.after(node, a)) for a in TRUTH.acts(node)]
    mean = sum(p * q for p, q, _ in ways)
    between = sum(p * (q - mean) ** 2 for p, q, _ in ways)
    within = sum(p * v for p, _, v in ways)
    return paid + mean, between / J + within / (J * K)


@pytest.mark.parametrize(("G", "J", "K"), [(3, 2, 2), (2, 4, 1), (2, 1, 4)])
def test_subtree_means_are_unbiased_and_spread_by_the_formula(G: int, J: int, K: int) -> None:
    batch = tree((G, J, K), 100)
    assert len(batch) == 100 * G * J * K
    credit = ac.assign(batch, "treemem")
    first = batch.step_start_R1[:-1]
    node = Forks(Index(batch), "links").node_S[first]
    heads = first[np.unique(node, return_index=True)[1]]
    assert heads.size == 100 * G
    action = batch.column("action_S").decoded()
    z = []
    for s in heads.tolist():
        q, variance = expected(str(action[s]), J, K)
        z.append((credit.extras["node_value"][s] - q) / np.sqrt(variance))
    assert abs(np.mean(z)) < 3.5 / np.sqrt(len(z))
    assert 0.7 < np.mean(np.square(z)) < 1.4
    assert credit.extras["leaves"][heads].tolist() == [J * K] * heads.size


def test_widening_near_the_message_is_never_worse_for_it() -> None:
    for action in TASK.actions:
        assert expected(action, 4, 1)[1] <= expected(action, 2, 2)[1] <= expected(action, 1, 4)[1]


def test_upper_messages_are_made_once() -> None:
    planner = FanOut({"h": 0}, (3, 2, 2))
    engine = engine_of(TASK, POLICY)
    batch = engine.drive(planner).batch
    assert batch is not None
    forks = Forks(Index(batch), "links")
    assert np.bincount(forks.depth_N).tolist() == [1, 3, 6, 12]
    assert planner.counts == {"finished": 12}
    assert engine.ledger.physical.continuations == 12


def test_a_level_of_one_asks_nothing() -> None:
    batch = tree((2, 1, 1), 1)
    assert len(batch) == 2
    with pytest.raises(ParamError, match="sizes"):
        FanOut({"h": 0}, ())
