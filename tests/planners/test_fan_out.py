"""Trees of pipelines and of segments: their shape, that means are unbiased, and their variance."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import accredit as ac
from accredit.data import Batch
from accredit.errors import ParamError
from accredit.index import Forks, Index
from accredit.oracle import solve
from accredit.planners.cutting import cut_steps, length_steps, spo_tree
from accredit.planners.treemem import Cuts, FanOut
from accredit.signals.continuation import Engine
from accredit.typing import Floats
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


# --- SPO-tree: segments in place of messages ---------------------------------------------------------


def spo(family: str, sizes: tuple[int, ...], groups: int, cuts: Cuts) -> tuple[Batch, Engine]:
    task = make(family, seed=1)
    engine = engine_of(task, make_policy(task, 0.4))
    batch = engine.drive(spo_tree({f"g{i}": 0 for i in range(groups)}, sizes, cuts=cuts)).batch
    assert batch is not None
    return batch, engine


def test_spo_tree_has_6_36_216_segments_and_pays_no_step_twice() -> None:
    """Two steps a segment, three to the end of an episode of seven."""
    task = make("team", seed=5, agents=7, choices=3)
    engine = engine_of(task, make_policy(task))
    batch = engine.drive(spo_tree({"g": 0}, cuts=partial(length_steps, tokens=2))).batch
    assert batch is not None
    assert len(batch) == 216
    forks = Forks(Index(batch), "links", segments=True)
    assert np.bincount(forks.depth_N).tolist() == [1, 6, 36, 216]
    assert engine.ledger.physical.continuations == 6 + 30 + 180
    assert engine.ledger.physical.environment_steps == 6 * 2 + 36 * 2 + 216 * 3


@pytest.mark.parametrize("cuts", [partial(length_steps, tokens=3), partial(cut_steps, every=2)])
@pytest.mark.parametrize("family", ["rooms", "lock"])
def test_values_of_spo_trees_are_unbiased_at_root_and_nodes(family: str, cuts: Cuts) -> None:
    """Within 3 standard errors over tasks, though failures are longer than successes or shorter.

    Seen failing with the leaf mean in place of the child mean, and with cuts that look at the outcome.
    """
    batch, _ = spo(family, (3, 3, 2), 60, cuts)
    task = make(family, seed=1)
    exact, index = solve(task, make_policy(task, 0.4)), Index(batch)
    credit = ac.assign(batch, "spo")
    number = {key: n for n, key in enumerate(task.keys)}
    state = batch.column("state_S").decoded()
    root = np.array([credit.explain(part.ids[0], 0).terms[0].inputs["root"] for _, part in batch.groups()])
    within(root - exact.value)
    starts = cuts(index)
    inner = starts[index.position_S[starts] > 0]
    inner = inner[credit.extras["leaves"][inner - 1] > 1]
    inner = inner[np.unique(credit.extras["node"][inner - 1], return_index=True)[1]]
    at = np.array([exact.V[index.position_S[s], number[state[s]]] for s in inner])
    away = credit.extras["node_value"][inner - 1] - at
    assert inner.size > 200
    within(np.array([away[index.group_S[inner] == g].mean() for g in np.unique(index.group_S[inner])]))


def within(away: Floats) -> None:
    assert abs(away.mean()) <= 3 * away.std(ddof=1) / np.sqrt(away.size)


def test_a_length_of_no_token_is_refused() -> None:
    with pytest.raises(ParamError, match="tokens"):
        length_steps(Index(Batch.from_records([{"id": "a", "group": "g", "steps": [{}]}])), 0)
