"""Rules that say where to fork, and the trees that grow by them on worlds whose values are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.data import Batch
from accredit.errors import DataError, ParamError
from accredit.index import Forks, Index, tree_R
from accredit.oracle import solve
from accredit.planners import Place, Request, branched
from accredit.planners.cutting import SegmentValues, cut_points, cut_steps
from accredit.planners.growing import Grower, entropy_beam, eptree, places_before, random_nodes
from accredit.signals.continuation import Alone, Engine, Player, Replay
from accredit.typing import Floats
from accredit.worlds import TabularWorld, make, make_policy, sample
from accredit.worlds.acting import TableActor


def engine_of(family: str, seed: int = 0) -> Engine:
    task = make(family, seed=1)
    actor = TableActor(task, make_policy(task))
    return Engine(
        Alone(Player(Replay(lambda group: TabularWorld(task)), {"actor": actor}, slots=64)), seed=seed
    )


def chains(engine: Engine, groups: int, each: int) -> Batch:
    starts = [Request(Place(f"g{i}", f"start {i}"), k=each, record=True) for i in range(groups)]
    return Batch.from_records(branched(engine.run(starts)))


def record(name: str, logprobs: list[float], **more: Any) -> dict[str, Any]:
    steps = [{"action": f"{name}{t}", "logprobs": [x, 0.0]} for t, x in enumerate(logprobs)]
    return {"id": name, "group": "g", "reward": 1, "steps": steps} | more


def places(batch: Batch, steps: Any) -> list[tuple[str, int]]:
    return [(p.rollout, p.step) for p in places_before(Index(batch), steps)]


# --- rules -----------------------------------------------------------------------------------------


def test_eptree_forks_at_the_least_likely_tokens_of_each_tree() -> None:
    """Left out: a branch's first step, steps forked before, steps after the answer, copies."""
    first = record("a", [-1.0, -5.0, -2.0, -3.0])
    branch = record("b", [-1.0, -9.0, -0.5], parent="a", fork_step=1)
    branch["steps"][0] = first["steps"][0]
    other = record("c", [-0.1, -0.2, -8.0])
    other["steps"][1]["action"] = "So the ANSWER is 4"
    batch = Batch.from_records([first, branch, other])
    picked = eptree(tokens=2)(Index(batch), 0)
    assert places(batch, picked) == [("a", 2), ("a", 3), ("c", 0), ("c", 1)]


def test_the_beam_takes_uncertain_turns_and_spares_those_with_siblings() -> None:
    first = record("a", [-1.0, -2.0])
    others = [record(n, [-2.05 + 0.1 * i, -0.1], parent="a", fork_step=0) for i, n in enumerate("bcd")]
    batch = Batch.from_records([first, *others])
    index = Index(batch)
    assert places(batch, entropy_beam(beam=2)(index, 0)) == [("a", 1), ("b", 0)]
    assert places(batch, entropy_beam(beam=2, penalty=0.0)(index, 0)) == [("a", 1), ("b", 0)]
    assert places(batch, entropy_beam(beam=1, penalty=0.0)(index, 0)) == [("b", 0)]
    assert places(batch, entropy_beam(beam=1)(index, 0)) == [("a", 1)]


@given(st.integers(1, 4), st.integers(0, 5))
def test_random_nodes_are_inner_nodes_of_their_tree_each_once(n: int, seed: int) -> None:
    """Seen failing with the nodes that steps lead into."""
    first, alone = record("a", [-1.0] * 3), record("c", [-1.0] * 2)
    branch = record("b", [-1.0] * 4, parent="a", fork_step=2)
    branch["steps"][:2] = first["steps"][:2]
    batch = Batch.from_records([first, branch, alone])
    index = Index(batch)
    found = random_nodes(n, seed)(index, 0)
    assert found.tolist() == random_nodes(n, seed)(index, 0).tolist()
    nodes = [Forks(index, "links").parent_N[Forks(index, "links").node_S[s]] for s in found]
    trees = tree_R(index)[index.rollout_S[found]].tolist()
    assert len(set(zip(trees, nodes, strict=True))) == len(nodes)
    assert [trees.count(t) for t in (0, 1)] == [min(n, 4), min(n, 2)]  # nodes of a: 3, of b: 1 more
    assert set(places(batch, found)) <= {("a", 0), ("a", 1), ("a", 2), ("b", 3), ("c", 0), ("c", 1)}


def test_random_nodes_are_drawn_alike() -> None:
    batch = Batch.from_records([record("a", [-1.0] * 5)])
    index = Index(batch)
    drawn = np.array([random_nodes(1, seed)(index, turn)[0] for seed in range(200) for turn in range(3)])
    counts = np.bincount(drawn, minlength=5)
    assert ((counts - 120) ** 2 / 120).sum() < 18.5  # chi-square, 4 degrees: beyond it 1 in 1,000


@given(st.lists(st.sampled_from([-3.0, -0.2, -0.1, -0.01, 0.0]), max_size=30), st.integers(1, 4))
def test_cut_points_equal_the_slow_loop(logprobs: list[float], every: int) -> None:
    """Seen failing with the count going on after a cut."""
    found, count = [-1], 0
    for k, logprob in enumerate(logprobs):
        count += np.exp(logprob) < 0.9
        if count == every and np.exp(logprob) < 0.9:
            count = 0
            found += [k] if k < len(logprobs) - 1 else []
    assert cut_points(logprobs, every) == found


def test_a_cut_inside_a_step_moves_to_its_end() -> None:
    records = [record("a", [-1.0, -1.0, -0.01, -1.0, -1.0]), record("b", [-1.0]), record("c", [])]
    batch = Batch.from_records(records)
    steps = cut_steps(Index(batch), every=2)
    assert places(batch, steps) == [("a", 0), ("a", 2), ("b", 0)]
    with pytest.raises(ParamError, match="every"):
        cut_points([-1.0], every=0)


# --- growing -----------------------------------------------------------------------------------------


def test_trees_have_the_published_number_of_leaves() -> None:
    """TreeRL 6 (1 + 2 x 2) = 30, AT2PO 10 + 2 x 6 = 22, Tree-GRPO 1 + 2 a tree."""
    engine = engine_of("lock")
    six, ten, two = (chains(engine, 1, n) for n in (6, 10, 2))
    assert len(engine.drive(Grower(six, eptree(), rounds=2)).batch) == 30
    assert len(engine.drive(Grower(ten, entropy_beam(), rounds=2)).batch) == 22
    grower = engine.drive(Grower(two, random_nodes(2)))
    assert np.bincount(tree_R(Index(grower.batch))).tolist() == [3, 3]
    assert grower.counts == {"finished": 4}


def test_forks_of_forks_have_chance_of_their_own_and_begin_as_their_parents() -> None:
    engine = engine_of("lock")
    grower = engine.drive(Grower(chains(engine, 3, 2), random_nodes(3), rounds=3))
    records = {r["id"]: r for r in grower.batch.records()}
    seeds = [r["metadata"]["continuation"]["seed"] for r in records.values()]
    assert len(set(seeds)) == len(seeds)
    for r in records.values():
        if "parent" in r:
            n = r["fork_step"]
            assert [s["action"] for s in r["steps"][:n]] == [
                s["action"] for s in records[r["parent"]]["steps"][:n]
            ]
    assert not [f for f in ac.check(grower.batch).findings if f.code.startswith("ACC50")]


def test_a_rule_that_names_nothing_ends_and_bad_numbers_are_refused() -> None:
    empty = Batch.from_records([record("a", [])])
    assert list(Grower(empty, random_nodes(), rounds=3).ask()) == []
    with pytest.raises(ParamError, match="rounds"):
        Grower(empty, random_nodes(), rounds=-1)
    with pytest.raises(DataError, match="has no action"):
        Grower(Batch.from_records([{"id": "a", "group": "g", "steps": [{}]}]), random_nodes()).ask()


@pytest.mark.parametrize(("method", "family"), [("treerl", "lock"), ("spo", "lock"), ("spo", "dag")])
def test_node_values_are_unbiased_for_random_forks_of_equally_long_rollouts(method: str, family: str) -> None:
    """Mean over tasks of v_n - V(n), at the root and at all shared nodes, within 3 standard errors."""
    engine = engine_of(family)
    task = make(family, seed=1)
    exact = solve(task, make_policy(task))
    batch = engine.drive(Grower(chains(engine, 120, 2), random_nodes(2, seed=5))).batch
    credit = ac.assign(batch, method, nodes="step")
    index = Index(batch)
    node = {key: n for n, key in enumerate(task.keys)}
    state = batch.column("state_S").decoded()
    shared = credit.extras["leaves"] > 1
    inner = shared & (np.append(index.position_S[1:], 0) > 0)  # a step comes after it
    at = np.flatnonzero(inner)
    truth = np.array([exact.V[index.position_S[s + 1], node[state[s + 1]]] for s in at])
    away = credit.extras["node_value"][at] - truth
    assert at.size > 200
    _within(np.array([away[index.group_S[at] == g].mean() for g in np.unique(index.group_S[at])]), 3.0)
    terms = [credit.explain(ids[0], 0).terms[0].inputs["root"] for ids in _ids(batch)]
    _within(np.array(terms) - exact.value, 3.0)


def _ids(batch: Batch) -> list[list[str]]:
    return [list(part.ids) for _, part in batch.groups()]


def _within(values: Floats, errors: float) -> None:
    assert abs(values.mean()) <= errors * values.std(ddof=1) / np.sqrt(values.size)


def test_random_nodes_bias_the_root_where_failures_are_longer() -> None:
    """In `rooms` a failure goes on to the horizon: it has more nodes, so more forks, so more leaves."""
    engine = engine_of("rooms")
    task = make("rooms", seed=1)
    batch = engine.drive(Grower(chains(engine, 200, 2), random_nodes(2, seed=3))).batch
    index = Index(batch)
    root = Forks(index, "links").leaf_mean(index.score_R, index.scored_R)[0][: index.n_groups]
    away = root - solve(task, make_policy(task)).value
    assert away.mean() < -2.0 * away.std(ddof=1) / np.sqrt(away.size)


def test_values_at_cut_points_are_unbiased_and_read_by_spo_chain() -> None:
    task = make("lock", seed=1)
    policy = make_policy(task)
    batch = sample(task, groups=20, group_size=3, seed=4).batch
    planner = engine_of("lock").drive(SegmentValues(batch, k=9, every=2))
    filled = planner.filled()
    assert filled.column("cutpoint_values_S").provenance["k"] == 9
    index = Index(filled)
    exact, node = solve(task, policy), {key: n for n, key in enumerate(task.keys)}
    state = filled.column("state_S").decoded()
    points = filled.column("cutpoints_S")
    cuts = np.flatnonzero(points.mask(filled.n_steps))
    assert cuts.size > 60
    assert {int(s) for s in filled.step_start_R1[:-1]} <= set(cuts.tolist())
    values = np.array([filled.column("cutpoint_values_S").item(s)[0] for s in cuts])
    truth = np.array([exact.V[index.position_S[s], node[state[s]]] for s in cuts])
    unlike = np.unique([f"{index.position_S[s]} {state[s]}" for s in cuts], return_index=True)[1]
    _within((values - truth)[unlike], 3.0)
    credit = ac.assign(filled, "spo-chain", prob_mask=1.0)
    for r in range(len(filled)):
        tokens = credit.tokens[index.token_start_R1[r] : index.token_start_R1[r + 1]]
        sizes = np.diff(
            [
                *(filled.token_start_S1[s] for s in cuts if index.rollout_S[s] == r),
                index.token_start_R1[r + 1],
            ]
        )
        jumps = tokens[np.cumsum([0, *sizes[:-1]])]
        first = values[cuts.tolist().index(int(filled.step_start_R1[r]))]
        assert jumps.sum() == pytest.approx(index.score_R[r] - first, abs=1e-9)
