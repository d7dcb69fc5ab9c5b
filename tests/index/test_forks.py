"""Trees of rollouts: nodes, owners and means against plain loops over dictionaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.data import Batch
from accredit.errors import DataError
from accredit.index import Forks, Index, owner_S, tree_R

Record = dict[str, Any]


@st.composite
def forests(draw: st.DrawFn) -> list[Record]:
    """Rollouts of one or two groups, many of them forked from an earlier one, forks of forks included."""
    found: list[Record] = []
    for r in range(draw(st.integers(1, 7))):
        group = draw(st.sampled_from(["g", "h"]))
        parents = [p for p in found if p["group"] == group]
        record: Record = {"id": f"r{r}", "group": group, "reward": draw(st.sampled_from([0.0, 1.0, 0.5]))}
        steps: list[Record] = []
        if parents and draw(st.booleans()):
            parent = draw(st.sampled_from(parents))
            fork = draw(st.integers(0, len(parent["steps"])))
            record |= {"parent": parent["id"], "fork_step": fork}
            steps = [dict(s) for s in parent["steps"][:fork]]
        for t in range(draw(st.integers(0, 3))):
            steps.append({"state": f"s{t}", "action": f"r{r}.{t}", "n_tokens": draw(st.integers(0, 3))})
        found.append(record | {"steps": steps})
    return found


def owners(records: list[Record]) -> list[tuple[str, int]]:
    """The (rollout, step) that each step is a copy of, by the recursion of the card."""
    by_id = {r["id"]: r for r in records}

    def owner(name: str, t: int) -> tuple[str, int]:
        record = by_id[name]
        if "parent" not in record or t >= record["fork_step"]:
            return name, t
        return owner(record["parent"], t)

    return [owner(r["id"], t) for r in records for t in range(len(r["steps"]))]


def below(records: list[Record], path: tuple[Any, ...], labels: list[list[Any]]) -> list[int]:
    """The rollouts whose labels begin with this path."""
    return [i for i, own in enumerate(labels) if tuple(own[: len(path)]) == path]


def labelled(records: list[Record]) -> list[list[Any]]:
    """Group and owners of each rollout, from the root on."""
    flat = iter(owners(records))
    return [[r["group"], *(next(flat) for _ in r["steps"])] for r in records]


@given(forests())
def test_owners_are_those_of_the_recursion(records: list[Record]) -> None:
    index = Index(Batch.from_records(records))
    places = [(r["id"], t) for r in records for t in range(len(r["steps"]))]
    assert [places[s] for s in owner_S(index)] == owners(records)


@given(forests())
def test_leaf_and_child_means_are_those_of_a_plain_tree(records: list[Record]) -> None:
    index = Index(Batch.from_records(records))
    forks = Forks(index, "links")
    labels = labelled(records)
    reward = np.array([r["reward"] for r in records])
    counted = np.array([i % 3 != 2 for i in range(len(records))])
    leaf, known = forks.leaf_mean(reward, counted)
    child, _ = forks.child_mean(reward, counted)
    for path, node in nodes_of(forks, labels).items():
        rows = [i for i in below(records, path, labels) if counted[i]]
        assert forks.leaves_N[node] == len(below(records, path, labels))
        assert forks.depth_N[node] == len(path) - 1
        assert known[node] == bool(rows)
        if rows:
            assert leaf[node] == pytest.approx(np.mean(reward[rows]), abs=1e-12)
            assert child[node] == pytest.approx(plain_child_mean(path, labels, reward, counted), abs=1e-12)


def nodes_of(forks: Forks, labels: list[list[Any]]) -> dict[tuple[Any, ...], int]:
    """Node of each path."""
    found: dict[tuple[Any, ...], int] = {}
    step = 0
    for r, own in enumerate(labels):
        found[(own[0],)] = int(forks.index.group_R[r])
        for t in range(1, len(own)):
            found[tuple(own[: t + 1])] = int(forks.node_S[step])
            step += 1
    return found


def plain_child_mean(
    path: tuple[Any, ...], labels: list[list[Any]], reward: Any, counted: Any
) -> float | None:
    """Mean over children, each the mean over its own; rollouts that end here are children."""
    rows = [i for i, own in enumerate(labels) if tuple(own[: len(path)]) == path]
    values = [reward[i] for i in rows if len(labels[i]) == len(path) and counted[i]]
    for child in dict.fromkeys(labels[i][len(path)] for i in rows if len(labels[i]) > len(path)):
        value = plain_child_mean((*path, child), labels, reward, counted)
        values += [value] if value is not None else []
    return float(np.mean(values)) if values else None


@given(forests())
def test_segments_join_steps_that_the_same_rollouts_pass(records: list[Record]) -> None:
    index = Index(Batch.from_records(records))
    forks = Forks(index, "links", segments=True)
    labels = labelled(records)
    whole = Forks(index, "links")
    paths = list(nodes_of(whole, labels))
    passed = {p: tuple(below(records, p, labels)) for p in paths}
    ended = {tuple(own) for own in labels}
    names: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for path in sorted(paths, key=len):
        above = path[:-1]
        joins = len(path) > 2 and passed[path] == passed[above] and above not in ended
        names[path] = names[above] if joins else path
    found = nodes_of(forks, labels)
    for a in paths:
        for b in paths:
            assert (found[a] == found[b]) == (names[a] == names[b])


@given(forests())
def test_differences_to_the_parent_telescope(records: list[Record]) -> None:
    index = Index(Batch.from_records(records))
    forks = Forks(index, "links")
    value, _ = forks.leaf_mean(index.outcome_R, index.scored_R)
    credit = np.where(forks.enters_S, forks.of_steps(forks.less_parent(value)), 0.0)
    total = np.bincount(index.rollout_S, credit, len(records))
    np.testing.assert_allclose(total, value[forks.leaf_R] - value[index.group_R], atol=1e-12)


@given(forests())
def test_equal_paths_are_the_same_nodes_as_links_where_actions_differ(records: list[Record]) -> None:
    index = Index(Batch.from_records(records))
    assert Forks(index, "equal").node_S.tolist() == Forks(index, "links").node_S.tolist()


def test_child_mean_and_leaf_mean_differ_on_the_cards_example() -> None:
    rows = [("A", 1.0), ("B", 0.0), ("B", 0.0), ("B", 0.0)]
    records = [
        {"id": f"r{i}", "group": "g", "reward": x, "steps": [{"state": "q", "action": a}, {"action": f"{i}"}]}
        for i, (a, x) in enumerate(rows)
    ]
    index = Index(Batch.from_records(records))
    forks = Forks(index, "equal")
    scored = index.scored_R
    assert forks.leaf_mean(index.outcome_R, scored)[0][0] == 0.25
    assert forks.child_mean(index.outcome_R, scored)[0][0] == 0.5


def test_weights_of_children_weigh_them() -> None:
    records = [
        {"id": a, "group": "g", "reward": x, "steps": [{"action": a, "state": "q"}]}
        for a, x in (("a", 1.0), ("b", 0.0))
    ]
    index = Index(Batch.from_records(records))
    forks = Forks(index)
    value, _ = forks.child_mean(index.outcome_R, index.scored_R, np.array([1.0, 3.0, 1.0]))
    assert value[0] == 0.75


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"parent": "nobody"}, "ACC501"),
        ({"group": "h"}, "ACC504"),
        ({"fork_step": 3}, "ACC503"),
        ({"fork_step": -1}, "ACC503"),
        ({"parent": "b"}, "ACC502"),
    ],
)
def test_a_fork_from_nowhere_is_refused(change: Record, code: str) -> None:
    records = [
        {"id": "a", "group": "g", "steps": [{"action": "x"}, {"action": "y"}]},
        {"id": "b", "group": "g", "parent": "a", "fork_step": 1, "steps": [{"action": "x"}, {"action": "z"}]}
        | change,
    ]
    with pytest.raises(DataError) as caught:
        Forks(Index(Batch.from_records(records)), "links")
    assert caught.value.code == code


def test_a_node_with_two_parents_is_refused() -> None:
    records = [
        {"id": "a", "group": "g", "steps": [{"node": 1}, {"node": 2}]},
        {"id": "b", "group": "g", "steps": [{"node": 3}, {"node": 2}]},
    ]
    with pytest.raises(DataError, match="stands below another step"):
        Forks(Index(Batch.from_records(records)))


def test_a_subagent_shares_no_steps_with_its_parent() -> None:
    records = [
        {"id": "a", "group": "g", "steps": [{"action": "x"}]},
        {
            "id": "b",
            "group": "g",
            "parent": "a",
            "fork_step": 1,
            "branch_kind": "subagent",
            "steps": [{"action": "x"}],
        },
    ]
    assert Forks(Index(Batch.from_records(records)), "links").node_S.tolist() == [1, 2]


def test_trees_of_a_group_are_told_apart_by_field_or_by_root() -> None:
    plain = [{"id": c, "group": "g", "steps": [{"action": c}]} for c in "abc"]
    assert tree_R(Index(Batch.from_records(plain))).tolist() == [0, 0, 0]
    told = [r | {"tree": t} for r, t in zip(plain, "xyx", strict=True)]
    assert tree_R(Index(Batch.from_records(told))).tolist() == [0, 1, 0]
    linked = [plain[0], plain[1], plain[2] | {"parent": "b", "fork_step": 0}]
    assert tree_R(Index(Batch.from_records(linked))).tolist() == [0, 1, 1]


def test_equal_steps_after_unlike_beginnings_are_other_nodes() -> None:
    records = [
        {"id": f"r{i}", "group": g, "steps": [{"state": "s", "action": a}, {"state": "t", "action": "go"}]}
        for i, (g, a) in enumerate([("g", "x"), ("g", "y"), ("g", "x"), ("h", "x")])
    ]
    forks = Forks(Index(Batch.from_records(records)), "equal")
    first, second = forks.node_S[::2].tolist(), forks.node_S[1::2].tolist()
    assert (first[0] == first[2], second[0] == second[2]) == (True, True)
    assert len(set(first)) == len(set(second)) == 3


def test_a_group_without_forks_is_one_tree_whatever_other_groups_are() -> None:
    """Its rollouts were trees of their own as soon as another group had a fork."""
    linked = [{"id": n, "group": "g", "reward": 1, "steps": [{}]} for n in "ab"]
    linked += [{"id": "c", "group": "h", "steps": [{}]}, {"id": "e", "group": "h", "steps": [{}]}]
    linked += [{"id": "d", "group": "h", "steps": [{}, {}], "parent": "c", "fork_step": 0}]
    index = Index(Batch.from_records(linked))
    assert tree_R(index).tolist() == [0, 0, 1, 2, 1]
    assert tree_R(index, "group").tolist() == [0, 0, 1, 1, 1]
    told = [record | ({"tree": "t"} if record["id"] in "ac" else {}) for record in linked]
    assert tree_R(Index(Batch.from_records(told)), "group").tolist() == [0, 1, 2, 3, 3]
