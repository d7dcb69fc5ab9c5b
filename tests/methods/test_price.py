"""price: the card's worked example, its properties, the kernel and the memory."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import accredit as ac
from accredit.methods import _price_votes, price
from tests.dear import dear
from tests.index.graph_worlds import Record, walks
from tests.methods.test_gigpo import EXAMPLE, rollout


def near(values: Any) -> Any:
    return pytest.approx(values, abs=6e-5)


def r3(credit: Any, name: str) -> list[float]:
    return credit.extras[name][6:9].tolist()


def test_card_example_without_prior_and_gate() -> None:
    credit = ac.assign(EXAMPLE, "price", kappa=0, gate="none")
    assert near([2 / 3, 0.5, 1.0]) == r3(credit, "potential")
    assert near([-0.1667, 0.5, -1.0]) == r3(credit, "increment")
    assert near([3, 2, 1]) == r3(credit, "evidence")


def test_card_example_with_prior() -> None:
    credit = ac.assign(EXAMPLE, "price", gate="none")
    assert near([0.6667, 0.5556, 0.8333]) == r3(credit, "potential")
    assert near([-0.1111, 0.2778, -0.8333]) == r3(credit, "increment")


def test_card_example_gates() -> None:
    soft = ac.assign(EXAMPLE, "price", kappa=0)
    assert near([-0.0343, 0.1847, -0.6667]) == r3(soft, "gated")
    hard = ac.assign(EXAMPLE, "price", kappa=0, gate="hard", delta=0.5)
    assert near([0, 0, 0]) == r3(hard, "gated")


@dear
@given(walks())
def test_ungated_increments_telescope_to_the_outcome(rows: list[Record]) -> None:
    credit = ac.assign(rows, "price", gate="none")
    sizes = {r["group"]: sum(x["group"] == r["group"] for x in rows) for r in rows}
    for r, row in enumerate(rows):
        steps = credit.batch.steps_of(r)
        total = credit.extras["increment"][steps.start : steps.stop].sum()
        start = credit.extras["potential"][steps.start]
        expected = row["reward"] - start if sizes[row["group"]] > 1 else 0.0
        assert total == pytest.approx(expected, abs=1e-9)


@dear
@given(walks())
def test_own_outcome_moves_only_the_last_increment(rows: list[Record]) -> None:
    flipped = [{**rows[0], "reward": 1 - rows[0]["reward"]}, *rows[1:]]
    n = len(rows[0]["steps"])
    a, b = (ac.assign(x, "price", gate="none").extras["increment"][:n] for x in (rows, flipped))
    np.testing.assert_allclose(a[:-1], b[:-1], atol=1e-12)


@dear
@given(walks())
def test_soft_gate_shrinks_and_keeps_the_sign(rows: list[Record]) -> None:
    extras = ac.assign(rows, "price").extras
    assert (np.abs(extras["gated"]) <= np.abs(extras["increment"]) + 1e-12).all()
    assert (extras["gated"] * extras["increment"] >= 0).all()


def test_hard_gate_closes_as_delta_goes_to_zero_and_keeps_true_signs() -> None:
    rng = np.random.default_rng(0)
    rows = []
    for i in range(400):
        good = rng.random() < 0.5
        won = rng.random() < (0.9 if good else 0.1)
        rows.append(rollout(str(i), int(won), f"A go {'B' if good else 'C'} go"))
    open_ = ac.assign(rows, "price", gate="hard", kappa=0).extras["gated"][::2]
    truth = np.array([1 if row["steps"][1]["state"] == "B" else -1 for row in rows])
    kept = open_ != 0
    assert kept.mean() > 0.9
    assert (np.sign(open_[kept]) == truth[kept]).all()
    assert not ac.assign(rows, "price", gate="hard", delta=1e-300).extras["gated"].any()


def test_weight_zero_is_grpo_and_loops_are_worth_nothing() -> None:
    np.testing.assert_allclose(ac.assign(EXAMPLE, "price", weight=0).steps, ac.assign(EXAMPLE, "grpo").steps)
    rows = [rollout("a", 1, "A go A go B go"), rollout("b", 0, "A go B go")]
    assert 0.0 == ac.assign(rows, "price").extras["increment"][0]


def test_own_vote_without_prior_is_the_state_mean_of_gigpo_at_gamma_one() -> None:
    credit = ac.assign(EXAMPLE, "price", kappa=0, gate="none", own_vote=True)
    gigpo = ac.assign(EXAMPLE, "returns", gamma=1)
    mean = gigpo.extras["returns"] - gigpo.steps
    np.testing.assert_allclose(credit.extras["potential"], mean, atol=1e-12)


def test_equal_features_are_equal_keys() -> None:
    place = {"A": [0.0, 0.0], "B": [10.0, 0.0], "C": [0.0, 10.0], "D": [10.0, 10.0]}
    often = [{**r, "id": f"{r['id']}-{k}"} for r in EXAMPLE for k in range(6)]
    rows = [
        {**r, "steps": [{"action": s["action"], "features": place[s["state"]]} for s in r["steps"]]}
        for r in often
    ]
    for gate in ("none", "soft"):
        got = ac.assign(rows, "price", gate=gate).extras
        keys = ac.assign(often, "price", gate=gate).extras
        np.testing.assert_allclose(got["potential"], keys["potential"], atol=1e-9)
        np.testing.assert_allclose(got["gated"], keys["gated"], atol=1e-9)


def test_near_features_are_related_more_than_far_ones() -> None:
    x = np.random.default_rng(1).random(200)
    rows = [
        {"id": str(i), "group": "g", "reward": float(v > 0.5), "steps": [{"features": [v]}]}
        for i, v in enumerate(x.tolist())
    ]
    potential = ac.assign(rows, "price").extras["potential"]
    assert potential[x > 0.7].min() > 0.8
    assert potential[x < 0.3].max() < 0.2


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=12),
    st.sampled_from([1, 1 << 20]),
)
def test_relations_are_those_of_a_plain_loop_in_pieces_too(
    rows: list[tuple[int, int, int]], cells: int
) -> None:
    """Seen failing with the weights of an episode added up, and with the pieces' moments counted from 0."""
    features, episode = np.array([row[:2] for row in rows], float), np.array([row[2] for row in rows])
    spread = features.std(axis=0)
    scaled = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    apart = np.sqrt(((scaled[:, None] - scaled) ** 2).sum(axis=2))
    several = len(rows) >= 6
    scales = np.sort(apart, axis=1)[:, 5] if several else apart[np.triu_indices(len(rows), 1)]
    width = float(np.median(scales)) if scales.size else 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.exp(-(apart**2) / (2 * width**2)) if width > 0 else (apart == 0).astype(float)
    assume(not np.isclose(weight, 0.1, rtol=1e-6).any())
    n = max(1, len(rows) - 2)
    want = {
        (i, e): max(w for w, own in zip(weight[i], episode, strict=True) if own == e)
        for i in range(n)
        for e in sorted(set(episode[weight[i] >= 0.1].tolist()))
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_price_votes, "_CELLS", cells)
        found = _price_votes._related(features, episode, n, price.Params())
    pairs = list(zip(found.moment.tolist(), found.episode.tolist(), strict=True))
    assert list(want) == pairs
    assert list(want.values()) == pytest.approx(found.weight.tolist())


def test_memory_lets_a_group_of_one_be_credited_and_survives_json() -> None:
    first = ac.assign(EXAMPLE, "price")
    memory = json.loads(json.dumps(first.state))
    alone = [rollout("new", 1, "A go B l C x")]
    assert not ac.assign(alone, "price").extras["increment"].any()
    later = ac.assign(alone, "price", state=memory, kappa=0, gate="none")
    assert near([0.5, 1 / 3, 0.5]) == later.extras["potential"].tolist()
    assert near(2.7**2 / (3 * 0.81)) == later.extras["evidence"][1]


def test_memory_is_bounded_and_only_its_own() -> None:
    state = ac.assign(EXAMPLE, "price", history=2).state
    assert 2 == len(state["tasks"]["g"])
    with pytest.raises(ac.AccreditError, match="not its memory"):
        ac.assign(EXAMPLE, "price", state={"schema": "other"})
