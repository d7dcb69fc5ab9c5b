"""TreeMem: subtree means, levels and siblings, the draw of paths, prices of length."""

from __future__ import annotations

import itertools
import math
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.errors import DataError, MissingSignal, ParamError
from tests.dear import dear
from tests.methods.tree_oracles import Path, Record, Slow, grown, std

R = [[[1, 0], [1, 1]], [[0, 0], [0, 1]], [[1, 1], [0, 0]]]


def pipeline(rewards: Any, group: str = "h", **fields: Any) -> list[Record]:
    """Builder, summariser and responder; a rollout a response."""
    return [
        {
            "id": f"{group}{g}{j}{k}",
            "group": group,
            "reward": reward,
            "steps": [
                {"agent": agent, "node": f"{group}{name}", "n_tokens": 10 * (g + 1)}
                for agent, name in (("builder", g), ("summariser", f"{g}{j}"), ("responder", f"{g}{j}{k}"))
            ],
        }
        | fields
        for g, subtree in enumerate(rewards)
        for j, row in enumerate(subtree)
        for k, reward in enumerate(row)
    ]


FIRST = {str(g): [0, 0] for g in range(3)}


def test_worked_example_of_the_card() -> None:
    credit = ac.assign(pipeline(R), "treemem", path=FIRST)
    rows = dict(zip(credit.batch.ids, credit.by_rollout(), strict=True))
    found = [[round(float(rows[f"h{g}00"][level]), 4) for g in range(3)] for level in range(3)]
    assert found == [[1.2247, -1.2247, 0.0], [0.0, -1.2247, 1.2247], [0.7071, -1.4142, 0.7071]]
    assert rows["h001"][:2].tolist() == rows["h000"][:2].tolist()
    assert rows["h011"][1:].tolist() == [0.0, 0.0]
    drawn = dict(zip(credit.batch.ids, credit.extras["drawn"].reshape(-1, 3).tolist(), strict=True))
    assert drawn["h000"] == [True, True, True]
    assert drawn["h011"] == [True, False, False]


def level_z(t: Slow, among: list[Path], n: Path) -> float:
    value = t.leaf_mean(t.reward)
    same = [value[m] for m in among if len(m) == len(n) and m[:2] == n[:2]]
    s = std(same, 0)
    return (value[n] - fmean(same)) / (s + 1e-8) if s else 0.0


@dear
@given(records=grown())
def test_levels_and_siblings_equal_the_slow_loops(records: list[Record]) -> None:
    """Seen failing with the unbiased deviation."""
    t = Slow(records)
    value = t.leaf_mean(t.reward)
    inner = t.inner()

    def against(n: Path, how: str) -> float:
        same = [value[s] for s in t.children(n[:-1])]
        if len(same) < 2:
            return 0.0
        if how == "z":
            return (value[n] - fmean(same)) / (std(same, 0) + 1e-8) if std(same, 0) else 0.0
        apart = value[n] - fmean(same)
        return apart * len(same) / (len(same) - 1) if how == "loo" else apart

    cases = [({"normalise": "level"}, lambda n: level_z(t, inner, n)), ({}, lambda n: level_z(t, inner, n))]
    cases += [
        ({"normalise": "siblings", "sibling": how}, lambda n, how=how: against(n, how))
        for how in ("loo", "mean", "z")
    ]
    for params, credit in cases:
        got = ac.assign(records, "treemem", update_on="all_nodes", **params)
        for found, want in zip(got.by_rollout(), t.steps(credit), strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-7)


@dear
@given(records=grown(), draw=st.integers(0, 5))
def test_a_drawn_path_is_one_child_below_each_message_on_it(records: list[Record], draw: int) -> None:
    """And the credit is that of the drawn messages of each level."""
    t = Slow(records)
    credit = ac.assign(records, "treemem", draw=draw)
    drawn = {}
    start = credit.batch.step_start_R1
    for r, path in enumerate(t.path):
        row = credit.extras["drawn"][start[r] : start[r + 1]].tolist()
        drawn |= {path[: i + 3]: x for i, x in enumerate(row) if t.known(path[: i + 3])}
    taken = [n for n, x in drawn.items() if x]
    for root in {n[:2] for n in drawn}:
        assert all(drawn[n] for n in t.children(root))
    for n in drawn:
        below = t.children(n)
        assert sum(drawn[c] for c in below) == (1 if drawn[n] and below else 0)
    want = t.steps(lambda n: level_z(t, taken, n) if drawn[n] else 0.0)
    for found, row in zip(credit.by_rollout(), want, strict=True):
        np.testing.assert_allclose(found, row, rtol=1e-6, atol=1e-7)


def test_the_draw_is_uniform_and_does_not_look_at_order_or_other_tasks() -> None:
    records = pipeline([[[0, 1], [1, 0]]])
    counts: dict[tuple[bool, ...], int] = {}
    for draw in range(400):
        drawn = ac.assign(records, "treemem", draw=draw).extras["drawn"].reshape(-1, 3)[:, 2]
        key = tuple(drawn.tolist())
        counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 4
    assert sum((n - 100) ** 2 / 100 for n in counts.values()) < 16.3  # chi-square, 3 degrees: 1 in 1,000
    other = pipeline(R, "other")
    mixed = ac.assign([*other, *reversed(records)], "treemem", draw=7)
    alone = ac.assign(records, "treemem", draw=7)
    here = dict(zip(mixed.batch.ids, mixed.extras["drawn"].reshape(-1, 3).tolist(), strict=True))
    there = dict(zip(alone.batch.ids, alone.extras["drawn"].reshape(-1, 3).tolist(), strict=True))
    assert {name: here[name] for name in there} == there


@given(st.lists(st.sampled_from([0.0, 1.0, 0.25]), min_size=2, max_size=6))
def test_without_fan_out_every_agent_has_grpo_with_a_population_deviation(rewards: list[float]) -> None:
    credit = ac.assign(pipeline([[[r]] for r in rewards]), "treemem")
    mean, s = fmean(rewards), std(rewards, 0)
    want = [(r - mean) / (s + 1e-8) if s else 0.0 for r in rewards]
    np.testing.assert_allclose(credit.steps.reshape(-1, 3), np.repeat(want, 3).reshape(-1, 3), atol=1e-7)


@given(st.lists(st.sampled_from([0.0, 1.0, 0.25]), min_size=8, max_size=8))
def test_tower_rule_and_zero_sums(rewards: list[float]) -> None:
    r = np.array(rewards).reshape(2, 2, 2)
    credit = ac.assign(pipeline(r.tolist()), "treemem", normalise="siblings", update_on="all_nodes")
    value = credit.extras["node_value"].reshape(2, 2, 2, 3)
    np.testing.assert_allclose(value[:, 0, 0, 0], value[:, :, 0, 1].mean(1), atol=1e-12)
    np.testing.assert_allclose(value[:, :, 0, 1], value[..., 2].mean(2), atol=1e-12)
    steps = credit.steps.reshape(2, 2, 2, 3)
    np.testing.assert_allclose(steps[:, 0, 0, 0].sum(), 0, atol=1e-12)
    np.testing.assert_allclose(steps[:, :, 0, 1].sum(1), 0, atol=1e-12)
    np.testing.assert_allclose(steps[..., 2].sum(2), 0, atol=1e-12)
    c3 = ac.assign(pipeline(r.tolist()), "c3").steps
    np.testing.assert_allclose(credit.steps, c3, atol=1e-12)


def test_across_roots_a_summariser_is_praised_for_its_builder_and_siblings_remove_it() -> None:
    records = pipeline([[[1], [1]], [[0], [0]]])
    across = ac.assign(records, "treemem", update_on="all_nodes").steps.reshape(4, 3)[:, 1]
    apart = ac.assign(records, "treemem", update_on="all_nodes", normalise="siblings").steps.reshape(4, 3)[
        :, 1
    ]
    assert across.round(6).tolist() == [1.0, 1.0, -1.0, -1.0]
    assert apart.tolist() == [0.0] * 4
    assert [f.code for f in ac.assign(records, "treemem").findings] == ["ACC511"]


def test_missing_leaves_leave_the_mean_and_are_not_drawn() -> None:
    """Below the first message of subtree 0 the drawn child is the only one with a score."""
    holes = pipeline([[[None, None], [1, None]], [[0, 0], [0, 1]]])
    for draw in range(8):
        credit = ac.assign(holes, "treemem", draw=draw)
        rows = dict(zip(credit.batch.ids, credit.extras["drawn"].reshape(-1, 3).tolist(), strict=True))
        assert rows["h010"] == [True, True, True]
        assert credit.extras["node_value"].reshape(-1, 3)[2].tolist() == [1.0, 1.0, 1.0]


def test_the_price_of_a_long_memory_is_the_builders_alone() -> None:
    records = pipeline(R, history_tokens=40)
    plain = ac.assign(records, "treemem", path=FIRST)
    priced = ac.assign(records, "treemem", path=FIRST, beta=0.5)
    length = np.array([10.0, 20.0, 30.0]) / 40
    c = np.array([0.75, 0.25, 0.5]) - 0.5 * length
    want = (c - c.mean()) / (c.std() + 1e-8)
    np.testing.assert_allclose(priced.steps.reshape(-1, 3)[::4, 0], want, rtol=1e-9)
    np.testing.assert_array_equal(priced.steps.reshape(-1, 3)[:, 1:], plain.steps.reshape(-1, 3)[:, 1:])
    with pytest.raises(MissingSignal, match="history_tokens"):
        ac.assign(pipeline(R), "treemem", beta=0.5)


def test_a_first_message_of_one_rollout_pays_the_whole_price() -> None:
    """Seen failing with the mean over two rollouts at least."""
    records = pipeline([[[1]], [[0, 1]], [[0]]], history_tokens=40)
    priced = ac.assign(records, "treemem", path=FIRST, beta=0.5)
    c = np.array([1.0, 0.5, 0.0]) - 0.5 * np.array([10.0, 20.0, 30.0]) / 40
    want = (c - c.mean()) / (c.std() + 1e-8)
    np.testing.assert_allclose(priced.steps.reshape(-1, 3)[[0, 1, 3], 0], want, rtol=1e-9)


def test_paths_that_cannot_be_are_refused() -> None:
    with pytest.raises(DataError, match="only 2"):
        ac.assign(pipeline(R), "treemem", path={"0": [5]})
    for odd in ({"a": [0]}, {"0": "ab"}, {"0": [-1]}, {"0": [0.5]}):
        with pytest.raises(ParamError, match="path must map"):
            ac.assign(pipeline(R), "treemem", path=odd)


def test_given_paths_are_taken() -> None:
    for turns in itertools.product((0, 1), repeat=2):
        path = {str(g): list(turns) for g in range(3)}
        credit = ac.assign(pipeline(R), "treemem", path=path)
        drawn = credit.extras["drawn"].reshape(3, 2, 2, 3)
        assert drawn[..., 2].sum() == 3
        assert all(drawn[g, turns[0], turns[1], 2] for g in range(3))
    assert math.isclose(float(np.abs(credit.steps).max()), 1.4142, abs_tol=1e-3)
