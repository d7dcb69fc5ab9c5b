"""shear: the card's worked example, its properties and edge cases, and a plain-loop oracle."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance_nd

import accredit as ac
from accredit.errors import DataError, ParamError
from tests.dear import dear

A = [(1, 0), (1, 0), (1, 1), (0, 2)]
B = [(1, 0), (1, 0), (2, 0), (3, 0)]


def rollout(
    name: str, reward: float | None, rows: Any, *, cuts: tuple[int, ...] = (), **more: Any
) -> dict[str, Any]:
    parts = np.split(np.asarray(rows, float), cuts)
    steps = [{"hidden": part.tolist()} for part in parts]
    return {"id": name, "group": "g", "reward": reward, "steps": steps} | more


def run(records: list[dict[str, Any]], **params: Any) -> ac.Credit:
    return ac.assign(records, "shear", **{"base": "dr-grpo", "window": 2, "stride": 1, **params})


def omegas(records: list[dict[str, Any]], **params: Any) -> list[np.ndarray]:
    credit = run(records, **params)
    sizes = np.diff(credit.batch.token_start_S1[credit.batch.step_start_R1])
    return np.split(credit.extras["omega"], np.cumsum(sizes)[:-1])


EXAMPLE = [rollout("A", 2, A), rollout("B", 0, B)]


def test_card_example() -> None:
    omega_a, omega_b = omegas(EXAMPLE)
    assert pytest.approx([0, 0.322211, 1.042698, 1.042698], abs=1e-6) == omega_a.tolist()
    assert pytest.approx([0, 0.322211, 0.966634, 0.966634], abs=1e-6) == omega_b.tolist()
    # Rewards 2 and 0 under dr-grpo are the card's A = +1 and -1.
    wanted = [0, 0.3222, 1.0427, 1.0427, 0, -0.3222, -0.9666, -0.9666]
    assert pytest.approx(wanted, abs=5e-5) == run(EXAMPLE).tokens.tolist()


# -- the oracle: spans, pairs and tokens one at a time ---------------------------------------------


def spans_of(n: int, window: int, stride: int) -> list[range]:
    found, a = [], 0
    while True:
        found.append(range(a, min(a + window, n)))
        if found[-1].stop == n:
            return found
        a += stride


def chamfer(x: np.ndarray, y: np.ndarray) -> float:
    cost = cdist(x, y)
    return (cost.min(axis=0).mean() + cost.min(axis=1).mean()) / 2


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    a, b = x.mean(axis=0), y.mean(axis=0)
    size = np.linalg.norm(a) * np.linalg.norm(b)
    return max(0.0, 1 - a @ b / size) if size else 1.0


def mmd(x: np.ndarray, y: np.ndarray, width: float) -> float:
    def k(a: np.ndarray, b: np.ndarray) -> float:
        return np.exp(-(cdist(a, b) ** 2) / (2 * width**2)).mean()

    return max(0.0, k(x, x) + k(y, y) - 2 * k(x, y)) ** 0.5


def oracle(
    records: list[dict[str, Any]], window: int, stride: int, distance: str, scope: str
) -> dict[str, list[float]]:
    rows = {r["id"]: [np.array(s["hidden"], float) for s in r["steps"] if s["hidden"]] for r in records}
    found = {name: [1.0] * sum(map(len, parts)) for name, parts in rows.items()}
    scored = [r for r in records if r["reward"] is not None and rows[r["id"]]]
    every = np.concatenate([h for r in scored for h in rows[r["id"]]]) if scored else np.zeros((0, 2))
    unit = np.linalg.norm(every, axis=1).mean() if len(every) else 0.0
    if unit == 0:
        return found
    pairs = cdist(every, every)[np.triu_indices(len(every), 1)]
    width = float(np.median(pairs)) if pairs.size else 0.0
    measure = {
        "wasserstein": lambda x, y: wasserstein_distance_nd(x, y) / unit,
        "chamfer": lambda x, y: chamfer(x, y) / unit,
        "cosine": cosine,
        "mmd_rbf": lambda x, y: mmd(x, y, width),
    }[distance]

    def clouds(r: dict[str, Any]) -> list[tuple[range, np.ndarray]]:
        parts = rows[r["id"]]
        whole = [np.concatenate(parts)] if scope == "rollout" else parts
        made, start = [], 0
        for part in whole:
            made += [
                (range(start + s.start, start + s.stop), part[s.start : s.stop])
                for s in spans_of(len(part), window, stride)
            ]
            start += len(part)
        return made

    for r in scored:
        others = [c for o in scored if (o["reward"] >= 1) != (r["reward"] >= 1) for _, c in clouds(o)]
        if not others:
            continue
        found[r["id"]] = [0.0] * len(found[r["id"]])
        for span, cloud in clouds(r):
            d = min(measure(cloud, other) for other in others)
            for t in span:
                found[r["id"]][t] = max(found[r["id"]][t], d)
    return found


points = st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0])


@st.composite
def groups(
    draw: st.DrawFn, shortest: int = 0, rewards: tuple[float | None, ...] = (0.0, 1.0, 0.5, 2.0, None)
) -> list[dict[str, Any]]:
    found = []
    for i in range(draw(st.integers(2, 4))):
        n = draw(st.integers(shortest, 6))
        rows = draw(st.lists(st.tuples(points, points), min_size=n, max_size=n))
        cut = draw(st.integers(0, n))
        parts = [np.array(part, float).reshape(-1, 2).tolist() for part in (rows[:cut], rows[cut:])]
        found.append(
            {"id": f"r{i}", "group": "g", "reward": draw(st.sampled_from(rewards))}
            | {"steps": [{"hidden": part} for part in parts]}
        )
    pair = [rollout(name, 1.0, [(1.0, 1.0)], group="other") for name in "xy"]
    return [*found, *pair]


sizes = st.integers(1, 4).flatmap(lambda w: st.tuples(st.just(w), st.integers(1, w)))


@dear
@given(
    groups(),
    sizes,
    st.sampled_from(["wasserstein", "chamfer", "cosine", "mmd_rbf"]),
    st.sampled_from(["rollout", "step"]),
)
def test_equals_plain_loops(
    records: list[dict[str, Any]], size: tuple[int, int], distance: str, scope: str
) -> None:
    window, stride = size
    if distance == "mmd_rbf":
        every = np.array(
            [h for r in records[:-2] if r["reward"] is not None for s in r["steps"] for h in s["hidden"]]
        )
        if len(every) < 2 or np.median(cdist(every, every)[np.triu_indices(len(every), 1)]) == 0:
            return  # a kernel of width 0 has a test of its own
    wanted = oracle(records[:-2], window, stride, distance, scope)
    got = omegas(records, window=window, stride=stride, distance=distance, span_scope=scope)
    # The root of a squared discrepancy near 0 has half the digits.
    tolerance = 1e-6 if distance == "mmd_rbf" else 1e-8
    for row, own in zip(records[:-2], got, strict=False):
        np.testing.assert_allclose(own, wanted[row["id"]], rtol=1e-7, atol=tolerance)


# -- properties -----------------------------------------------------------------------------------


@dear
@given(groups(shortest=1), st.floats(0.01, 100))
def test_the_sign_is_the_outcome_s_and_scale_and_rotation_change_nothing(
    records: list[dict[str, Any]], c: float
) -> None:
    credit = run(records)
    omega, base = credit.extras["omega"], credit.extras["base"]
    assert (omega >= 0).all()
    np.testing.assert_array_equal(np.sign(base) * (omega > 0), np.sign(credit.result.values))
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    moved = [
        r
        | {
            "steps": [
                {"hidden": (c * np.array(s["hidden"], float).reshape(-1, 2) @ turn).tolist()}
                for s in r["steps"]
            ]
        }
        for r in records
    ]
    np.testing.assert_allclose(run(moved).extras["omega"], omega, rtol=1e-5, atol=1e-6)


def test_translation_moves_the_unit_alone() -> None:
    moved = [rollout(n, r, np.add(x, [3.0, 4.0])) for n, r, x in (("A", 2, A), ("B", 0, B))]
    norms = [np.linalg.norm(np.array([*A, *B]) + shift, axis=1).mean() for shift in ([0, 0], [3, 4])]
    np.testing.assert_allclose(
        run(moved).extras["omega"] * norms[1], run(EXAMPLE).extras["omega"] * norms[0], atol=1e-12
    )


def test_order_of_tokens_inside_a_span_is_irrelevant() -> None:
    turned = [rollout("A", 2, A[::-1]), rollout("B", 0, B[::-1])]
    np.testing.assert_allclose(run(turned, window=4).extras["omega"], run(EXAMPLE, window=4).extras["omega"])


def test_one_more_opposite_rollout_only_lowers_distances() -> None:
    rng = np.random.default_rng(0)
    rows = [rollout("a", 1, rng.normal(size=(9, 3)))] + [
        rollout(f"b{i}", 0, rng.normal(size=(9, 3))) for i in range(4)
    ]
    unit = [
        np.mean([np.linalg.norm(h) for r in rows[:n] for s in r["steps"] for h in s["hidden"]])
        for n in (2, 3, 4, 5)
    ]
    d = [omegas(rows[:n])[0] * u for n, u in zip((2, 3, 4, 5), unit, strict=True)]
    assert all((later <= before + 1e-6).all() for before, later in pairwise(d))


def test_per_rollout_weights_have_mean_one() -> None:
    for own in omegas(EXAMPLE, normalise="per_rollout"):
        assert 1.0 == pytest.approx(own.mean())
    finding = run(EXAMPLE).findings[0]
    assert "ACC436" == finding.code
    assert f"{np.mean(np.concatenate(omegas(EXAMPLE))):.3g}" in finding.message


def test_sinkhorn_is_at_least_exact_and_tends_to_it() -> None:
    rng = np.random.default_rng(0)
    rows = [rollout("a", 1, rng.normal(size=(9, 3))), rollout("b", 0, rng.normal(size=(8, 3)))]
    exact = np.concatenate(omegas(rows, window=4, stride=2))
    last = np.inf
    for share in (0.3, 0.1, 0.03):
        rough = np.concatenate(omegas(rows, window=4, stride=2, solver="sinkhorn", sinkhorn_share=share))
        assert (rough >= exact - 1e-6).all()
        assert np.abs(rough - exact).max() < last
        last = np.abs(rough - exact).max()
    assert last < 0.05


# -- edge cases -----------------------------------------------------------------------------------


def test_groups_with_one_outcome_keep_the_base() -> None:
    for rewards in ((1.0, 1.0), (0.0, 0.25), (3.0, 2.0)):
        rows = [rollout("A", rewards[0], A), rollout("B", rewards[1], B)]
        credit = run(rows)
        np.testing.assert_array_equal(credit.extras["base"], credit.tokens)
        assert [1.0] * 8 == credit.extras["omega"].tolist()
        assert 2 == credit.fallbacks["no_opposite"]
    assert [1.0] * 8 != run(rows, success_threshold=2.5).extras["omega"].tolist()


def test_a_shared_beginning_gets_exactly_nothing_unless_there_is_a_floor() -> None:
    rng = np.random.default_rng(0)
    start = 100 + rng.normal(size=(6, 5))
    rows = [rollout(n, r, np.vstack([start, rng.normal(size=(4, 5))])) for n, r in (("a", 1), ("b", 0))]
    own = omegas(rows)[0]
    assert [0.0] * 5 == own[:5].tolist()
    assert (own[6:] > 0).all()
    assert 0.25 == omegas(rows, floor=0.25)[0].min()
    assert [0.0] * 5 == omegas(rows, normalise="per_rollout")[0][:5].tolist()


def test_empty_unscored_and_rejected_rollouts_are_in_no_set() -> None:
    odd = [
        rollout("none", 0, np.zeros((0, 2))),
        rollout("unscored", None, [(9.0, 9.0)]),
        rollout("rejected", 0, [(1.0, 1.0)], status="rejected"),
    ]
    for got, wanted in zip(omegas([*EXAMPLE, *odd]), omegas(EXAMPLE), strict=False):
        np.testing.assert_allclose(got, wanted)
    empty = run([EXAMPLE[0], odd[0]])
    assert [1.0] * 4 == empty.extras["omega"].tolist()


def test_hidden_states_of_zero_give_the_base_and_equal_ones_give_zero() -> None:
    for value, omega in ((0.0, 1.0), (1.0, 0.0)):
        for distance in ("wasserstein", "mmd_rbf"):
            rows = [rollout(n, r, np.full((3, 2), value)) for n, r in (("a", 1), ("b", 0))]
            assert [omega] * 6 == run(rows, distance=distance).extras["omega"].tolist()


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ParamError, match=r"stride must be at most window \(2\), got 3"):
        run(EXAMPLE, stride=3)
    batch = ac.Batch.from_records(EXAMPLE)
    broken = batch.column("hidden_T").values.copy()
    broken[5, 0] = np.nan
    columns = {**batch.columns, "hidden_T": type(batch.column("hidden_T"))("token", broken)}
    with pytest.raises(DataError, match="rollout 'B' has hidden states that are not finite"):
        run(batch._replace(columns=columns))


def test_tokens_that_are_not_trained_are_part_of_spans_but_get_nothing() -> None:
    frozen = [r | {"trainable": i == 0} for i, r in enumerate(EXAMPLE)]
    credit = run(frozen)
    np.testing.assert_array_equal(run(EXAMPLE).extras["omega"], credit.extras["omega"])
    assert not credit.tokens[4:].any()


def test_spans_may_cross_steps_or_restart_there() -> None:
    cut = [rollout("A", 2, A, cuts=(3,)), rollout("B", 0, B, cuts=(1,))]
    np.testing.assert_array_equal(run(EXAMPLE).extras["omega"], run(cut).extras["omega"])
    assert (run(EXAMPLE).extras["omega"] != run(cut, span_scope="step").extras["omega"]).any()


# -- worth reproducing ----------------------------------------------------------------------------


def planted(seed: int, size: int, shift: float, spread: float) -> list[dict[str, Any]]:
    """Rollouts of 60 tokens, alike up to token 30; then successes move by a shift or spread out.

    Noise comes in pairs of opposite sign, so that an even span has the mean it was given.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(size):
        noise = np.repeat(rng.normal(size=(30, 4)), 2, axis=0) * np.tile([[1.0], [-1.0]], (30, 1))
        x = np.array([4.0, 0, 0, 0]) + noise
        if i % 2:
            x[30:] = np.array([4.0, 0, 0, 0]) + shift + spread * noise[30:]
        rows.append(rollout(f"r{i}", float(i % 2), x))
    return rows


def auc(records: list[dict[str, Any]], **params: Any) -> float:
    own = np.stack(omegas(records, window=10, stride=4, **params))[1::2]
    late, early = own[:, 36:].ravel(), own[:, :24].ravel()
    return float((late[:, None] > early).mean() + 0.5 * (late[:, None] == early).mean())


@pytest.mark.parametrize("size", [4, 12])
def test_weights_rise_where_the_outcomes_part(size: int) -> None:
    assert np.mean([auc(planted(s, size, 1.0, 1.0)) for s in range(6)]) > 0.95


def test_the_mean_of_a_span_does_not_see_a_change_of_spread() -> None:
    rows = [planted(s, 8, 0.0, 2.5) for s in range(6)]
    assert np.mean([auc(r) for r in rows]) > 0.95
    assert max(run(r, window=10, stride=4, distance="cosine").extras["omega"].max() for r in rows) < 1e-6
