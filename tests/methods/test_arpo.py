"""ARPO and AEPO: attribution on branched rollouts, weights of shared copies, entropy of tokens."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.data import Batch
from accredit.errors import DataError
from tests.dear import dear

Record = dict[str, Any]
LONE: dict[str, Any] = {"singleton": "zero"}  # groups of one are meant


@st.composite
def forked(draw: st.DrawFn) -> list[Record]:
    """Rollouts of two tasks with forks of forks; some have no step of their own or no reward."""
    found: list[Record] = []
    for i in range(draw(st.integers(1, 7))):
        group = draw(st.sampled_from("ggh"))
        own = [{"n_tokens": draw(st.integers(0, 2))} for _ in range(draw(st.integers(0, 3)))]
        reward = draw(st.sampled_from([0.0, 1.0, 0.5, None] if i else [0.0, 1.0, 0.5]))
        record: Record = {"id": f"r{i}", "group": group, "reward": reward, "steps": own}
        parents = [r for r in found if r["group"] == group]
        if parents and draw(st.integers(0, 3)):
            parent = draw(st.sampled_from(parents))
            t = draw(st.integers(min(1, len(parent["steps"])), len(parent["steps"])) | st.just(0))
            record |= {"parent": parent["id"], "fork_step": t, "steps": [*parent["steps"][:t], *own]}
        found.append(record)
    return found


def slow(
    records: list[Record], attribution: str, eps: float = 1e-6, by_std: bool = True
) -> list[list[float]]:
    """By plain loops: owners as tuples, advantages of leaves, means over the sharers."""
    by_id = {r["id"]: r for r in records}

    def owner(r: Record, t: int) -> tuple[str, int]:
        if "parent" not in r or t >= r["fork_step"]:
            return r["id"], t
        return owner(by_id[r["parent"]], t)

    def counts(r: Record) -> bool:
        return r["reward"] is not None and not ("parent" in r and r["fork_step"] >= len(r["steps"]))

    advantage = {}
    for r in records:
        scores = [x["reward"] for x in records if x["group"] == r["group"] and counts(x)]
        if not counts(r) or len(scores) < 2 or max(scores) == min(scores):
            advantage[r["id"]] = 0.0
            continue
        mean = fmean(scores)
        std = math.sqrt(sum((x - mean) ** 2 for x in scores) / (len(scores) - 1))
        advantage[r["id"]] = (r["reward"] - mean) / ((std + eps) if by_std else 1.0)
    found = []
    for r in records:
        row = []
        for t in range(len(r["steps"])):
            sharers = [
                x["id"] for x in records if counts(x) and len(x["steps"]) > t and owner(x, t) == owner(r, t)
            ]
            hard = fmean(advantage[i] for i in sharers) if sharers else 0.0
            row.append((hard if attribution == "hard" else advantage[r["id"]]) if counts(r) else 0.0)
        found.append(row)
    return found


@pytest.mark.parametrize("attribution", ["soft", "hard"])
@dear
@given(records=forked(), by_std=st.booleans())
def test_credit_equals_the_slow_loop(attribution: str, records: list[Record], by_std: bool) -> None:
    """Seen failing with a branch without steps in the statistics, and with one level of parents alone."""
    credit = ac.assign(records, "arpo", attribution=attribution, normalise_by_std=by_std, singleton="zero")
    for found, want in zip(credit.by_rollout(), slow(records, attribution, by_std=by_std), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-9)


@dear
@given(records=forked())
def test_hard_and_soft_have_the_same_sum_over_copies(records: list[Record]) -> None:
    soft, hard = (ac.assign(records, "arpo", attribution=a, **LONE) for a in ("soft", "hard"))
    once = ac.assign(records, "arpo", attribution="hard", dedupe=True, **LONE)
    assert np.sum(soft.steps) == pytest.approx(np.sum(hard.steps), abs=1e-9)
    assert once.steps @ once.extras["weight"] == pytest.approx(np.sum(hard.steps), abs=1e-9)
    by_one = ac.assign(records, "arpo", attribution="hard", dedupe=True, dedupe_weight="one", **LONE)
    assert set(by_one.extras["weight"].tolist()) <= {0.0, 1.0}


@dear
@given(records=forked())
def test_soft_is_grpo_on_the_leaves_and_hard_without_branches_is_soft(records: list[Record]) -> None:
    leaves = [r for r in records if "parent" not in r or r["fork_step"] < len(r["steps"])]
    soft = ac.assign(records, "arpo", **LONE)
    grpo = ac.assign(
        [{k: v for k, v in r.items() if k not in ("parent", "fork_step")} for r in leaves], "grpo", **LONE
    )
    rows = dict(zip(soft.batch.ids, soft.by_rollout(), strict=True))
    for name, row in zip(grpo.batch.ids, grpo.by_rollout(), strict=True):
        np.testing.assert_array_equal(rows[name], row)
    bare = [{k: v for k, v in r.items() if k not in ("parent", "fork_step")} for r in records]
    np.testing.assert_array_equal(
        ac.assign(bare, "arpo", attribution="hard", **LONE).steps, ac.assign(bare, "arpo", **LONE).steps
    )


def five(last: float) -> list[Record]:
    forks = {"r3": "r0", "r2": "r1"}
    return [
        {"id": f"r{i}", "group": "g", "reward": r, "steps": [{}, {}]}
        | ({"parent": forks[f"r{i}"], "fork_step": 1} if f"r{i}" in forks else {})
        for i, r in enumerate([1.0, 0.0, 0.0, last, 0.0])
    ]


def test_worked_example_of_the_card() -> None:
    soft = ac.assign(five(1.0), "arpo")
    assert [round(float(row[0]), 4) for row in soft.by_rollout()] == [
        1.0954,
        -0.7303,
        -0.7303,
        1.0954,
        -0.7303,
    ]
    hard = ac.assign(five(1.0), "arpo", attribution="hard").by_rollout()
    assert [round(float(hard[i][0]), 4) for i in (0, 3, 1, 2)] == [1.0954, 1.0954, -0.7303, -0.7303]
    changed = ac.assign(five(0.0), "arpo", attribution="hard").by_rollout()
    assert [round(float(x), 4) for x in changed[0]] == [0.6708, 1.7889]
    assert round(float(changed[3][0]), 4) == 0.6708


def test_edges() -> None:
    lone = [{"id": "a", "group": "g", "reward": 0.5, "steps": [{}]}]
    assert ac.assign(lone, "arpo").steps.tolist() == [0.0]
    assert ac.assign(lone, "arpo", singleton="raw").steps[0] == pytest.approx(0.5 / (1 + 1e-6))
    odd = five(1.0)
    odd[3]["fork_step"] = 3
    with pytest.raises(DataError, match="forks at step 3"):
        ac.assign(odd, "arpo")
    credit = ac.assign(five(1.0)[:2], "arpo", attribution="hard")
    assert [f.code for f in credit.findings] == ["ACC509"]
    told = ac.assign(five(0.0), "arpo", attribution="hard").explain("r0", 0)
    assert "mean advantage of the 2 rollouts" in told.text()


# --- aepo --------------------------------------------------------------------------------------------


def uncertain() -> list[Record]:
    return [
        {"id": n, "group": "g", "reward": r, "steps": [{"n_tokens": len(h), "entropies": h}]}
        for n, r, h in (("a", 1.0, [0.125, 0.5]), ("b", 0.0, [2.0]), ("c", 0.0, [0.25, 0.875, 0.375]))
    ]


@given(st.floats(0, 3))
def test_aepo_scales_the_advantage_by_the_deviation_of_entropy(weight: float) -> None:
    """Seen failing with the population deviation."""
    H = [0.125, 0.5, 2.0, 0.25, 0.875, 0.375]
    mean = fmean(H)
    std = math.sqrt(sum((h - mean) ** 2 for h in H) / 5)
    base = ac.assign(uncertain(), "arpo").tokens
    credit = ac.assign(uncertain(), "aepo", weight=weight)
    factor = [1 + weight * (h - mean) / std for h in H]
    np.testing.assert_allclose(credit.tokens, base * factor, rtol=1e-9, atol=1e-12)
    assert credit.extras["factor"].mean() == pytest.approx(1.0)
    flips = sum(f < 0 for f in factor)
    assert credit.fallbacks["sign_flip"] == flips
    assert ("ACC510" in [f.code for f in credit.findings]) == (flips > 0)


def test_aepo_without_weight_or_spread_is_its_base_and_takes_any_base() -> None:
    flat = [r | {"steps": [{"n_tokens": 2, "entropies": [1.0, 1.0]}]} for r in uncertain()]
    np.testing.assert_array_equal(ac.assign(flat, "aepo").tokens, ac.assign(flat, "arpo").tokens)
    np.testing.assert_array_equal(
        ac.assign(uncertain(), "aepo", weight=0).tokens, ac.assign(uncertain(), "arpo").tokens
    )
    over = ac.assign(uncertain(), "aepo", base="rloo")
    np.testing.assert_allclose(over.tokens, ac.assign(uncertain(), "rloo").tokens * over.extras["factor"])


def test_forks_of_forks_of_forks_share_their_beginnings() -> None:
    """A chain of ten: each leaves the one before at the same step."""
    records: list[Record] = []
    for i in range(200):
        parent = {"parent": f"r{i - 1}", "fork_step": 5} if i % 10 else {}
        records.append(
            {"id": f"r{i}", "group": f"g{i // 20}", "reward": float(i % 3 == 0), "steps": [{}] * 20} | parent
        )
    batch = Batch.from_records(records)
    credit = ac.assign(batch, "arpo", attribution="hard")
    assert credit.extras["sharers"].max() == 10
    assert credit.steps.size == 4_000
