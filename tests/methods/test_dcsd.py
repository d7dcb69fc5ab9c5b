"""dcsd: the card's worked example, its properties and edge cases, and plain-loop oracles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import accredit as ac
from accredit.errors import DataError, MissingSignal
from accredit.index import Index
from accredit.methods._volume import boundaries, logdet_gains, projected
from accredit.methods.dcsd import _margins
from tests.dear import dear

HIDDEN = [[(1, 0), (1, 0)], [(1, 0.1)], [(0, 1), (0.5, 1)]]
MARGINS = [-1, 5.5, 5.0, 1.2]
DELTA = [(0.1, -0.3), (0.05,), (0.4, -0.05)]
# A reward that gives A_tau = -0.8 under dr-grpo: two rollouts, -0.8 = (r0 - r1) / 2.
A_TAU = -0.8


def rollout(name: str, reward: float, **more: Any) -> dict[str, Any]:
    steps = [
        {
            "hidden": [list(map(float, h)) for h in rows],
            "logprobs": [-1.0] * len(rows),
            "logprobs_teacher": [-1.0 + d for d in delta],
        }
        for rows, delta in zip(HIDDEN, DELTA, strict=True)
    ]
    table = [[m, 0.0] for m in MARGINS]
    return {"id": name, "group": "g", "reward": reward, "candidate_logprobs": table, "steps": steps} | more


def pair(reward: float = 2 * A_TAU, **more: Any) -> list[dict[str, Any]]:
    return [rollout("r", reward, **more), rollout("other", 0.0)]


def run(records: list[dict[str, Any]], **params: Any) -> ac.Credit:
    return ac.assign(records, "dcsd", **{"base": "dr-grpo", "beta": 1.0, **params})


def test_card_example() -> None:
    credit = run(pair())
    gain = credit.extras["gain"][:5]
    step = [gain[:2].sum(), gain[2], gain[3:].sum()]
    assert pytest.approx([0.549306, 0.147577, 0.563274], abs=1e-6) == step
    assert pytest.approx([0.975203, 0.261999, 1], abs=1e-6) == credit.extras["alpha"][[0, 2, 3]].tolist()
    assert [1, 1, -1, -1, -1] == credit.extras["sigma"][:5].tolist()
    wanted = [0.754274, 0.545996, -0.349332, -0.576181, -0.757153]
    assert pytest.approx(wanted, abs=1e-6) == credit.tokens[:5].tolist()


# -- volumes --------------------------------------------------------------------------------------


def volume(rows: np.ndarray, beta: float) -> float:
    """F by its definition, d x d."""
    return 0.5 * np.linalg.slogdet(np.eye(rows.shape[1]) + beta * rows.T @ rows)[1]


clouds = st.tuples(st.integers(1, 9), st.integers(1, 6)).flatmap(
    lambda shape: hnp.arrays(np.float64, shape, elements=st.floats(-3, 3))
)


@given(clouds, st.floats(0.01, 10))
def test_gains_are_differences_of_volumes(rows: np.ndarray, beta: float) -> None:
    wanted = [volume(rows[: i + 1], beta) - volume(rows[:i], beta) for i in range(len(rows))]
    got = logdet_gains(rows, beta)
    np.testing.assert_allclose(got, wanted, rtol=1e-7, atol=1e-9)
    assert (got >= 0).all()
    assert got.sum() == pytest.approx(volume(rows, beta), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("n", "d"), [(200, 3), (2100, 8), (200, 9), (150, 70), (130, 200)])
def test_gains_of_long_responses_are_differences_of_volumes(n: int, d: int) -> None:
    rows = np.random.default_rng(0).normal(size=(n, d))
    got = logdet_gains(rows, 0.1)
    for i in {*range(0, n, n // 11), n - 1}:
        wanted = volume(rows[: i + 1], 0.1) - volume(rows[:i], 0.1)
        assert wanted == pytest.approx(got[i], rel=1e-7, abs=1e-9)


def test_gains_beside_a_huge_row_are_finite_and_of_the_right_size() -> None:
    """The identity is lost in 1e18; what it leaves is 0 or more, never NaN."""
    rows = np.array([[1.0, 0.0], [1e9, 1e9], [1.0, -1.0], [0.0, 0.0]])
    gain = logdet_gains(rows, 1.0)
    assert pytest.approx([0.5 * np.log(2), 0.5 * np.log1p(1.5e18)]) == gain[:2].tolist()
    assert np.isfinite(gain).all()
    assert (gain >= 0).all()
    assert 0.0 == gain[3]


@pytest.mark.parametrize("d", [3, 11])
def test_gains_of_several_responses_are_those_of_each_alone(d: int) -> None:
    sizes = [0, 5, 1, 0, 70, 3, 0]
    start = np.concatenate([[0], np.cumsum(sizes)])
    rows, beta = np.random.default_rng(0).normal(size=(start[-1], d)), np.arange(1.0, 8.0)
    got = logdet_gains(rows, beta, start)
    for a, b, weight in zip(start, start[1:], beta, strict=False):
        np.testing.assert_allclose(logdet_gains(rows[a:b], weight), got[a:b], rtol=1e-12)
    assert [] == logdet_gains(rows[:0], beta[:0], start[:1]).tolist()


@given(clouds, st.floats(0.01, 10))
def test_wide_and_tall_forms_agree(rows: np.ndarray, beta: float) -> None:
    """Many rows, so that they come in blocks; dimensions of zeros added, so that they come at once."""
    tall = np.vstack([rows * (1 + 0.1 * i) for i in range(70 // len(rows) + 1)])
    wide = np.hstack([tall, np.zeros((len(tall), 100))])
    np.testing.assert_allclose(logdet_gains(wide, beta), logdet_gains(tall, beta), rtol=1e-6, atol=1e-9)


def test_volume_does_not_see_a_rotation_and_repeats_add_less() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(7, 5))
    turn, _ = np.linalg.qr(rng.normal(size=(5, 5)))
    np.testing.assert_allclose(logdet_gains(rows @ turn, 0.3), logdet_gains(rows, 0.3), rtol=1e-9)
    block = logdet_gains(np.vstack([rows, rows, rows]), 0.3).reshape(3, 7).sum(axis=1)
    assert block[0] > block[1] > block[2] > 0


def test_a_fixed_orthonormal_map_keeps_what_lies_in_few_dimensions_at_most() -> None:
    rows = np.random.default_rng(0).normal(size=(6, 40))
    assert projected(rows, None) is rows
    assert projected(rows, 40) is rows
    small = projected(rows, 8)
    assert (6, 8) == small.shape
    np.testing.assert_array_equal(small, projected(rows, 8))
    assert logdet_gains(small, 1.0).sum() < logdet_gains(rows, 1.0).sum()


# -- margins --------------------------------------------------------------------------------------

scores = st.lists(st.one_of(st.none(), st.floats(-9, 0), st.just(-math.inf), st.integers(-9, 0)), max_size=3)


def margin(row: list[float | None]) -> float | None:
    """By its definition; None where a candidate has no number, or there is none beside the gold answer."""
    if len(row) < 2 or any(x is None or math.isinf(x) for x in row):
        return None
    return row[0] - math.log(sum(math.exp(x) for x in row[1:]))


@given(st.lists(st.lists(scores, min_size=2, max_size=4), min_size=1, max_size=3))
def test_margins_of_all_rollouts_equal_a_plain_loop(tables: list[list[list[float | None]]]) -> None:
    records = [
        {
            "id": str(i),
            "reward": 1,
            "candidate_logprobs": table,
            "steps": [{"hidden": [[1.0]]}] * (len(table) - 1),
        }
        for i, table in enumerate(tables)
    ]
    index = Index(ac.Batch.from_records(records))
    got = _margins(index, np.arange(len(tables)), index.steps_R)
    wanted = [margin(row) for table in tables for row in table]
    assert [w is None for w in wanted] == np.isnan(got).tolist()
    clear = [w for w in wanted if w is not None]
    np.testing.assert_allclose(got[~np.isnan(got)], clear, rtol=1e-9, atol=1e-12)


# -- credit against a plain loop ------------------------------------------------------------------


def oracle(record: dict[str, Any], a_tau: float, beta: float | None, eps_w: float) -> list[list[float]]:
    steps = record["steps"]
    rows = np.array([h for s in steps for h in s["hidden"]], float)
    total = len(rows)
    if not total:
        return [[] for _ in steps]
    square = np.square(rows).sum(axis=1).mean()
    beta = beta or (1 / square if square else 1.0)
    margins = [row[0] - math.log(sum(math.exp(x) for x in row[1:])) for row in record["candidate_logprobs"]]
    spoken = [k for k, s in enumerate(steps) if s["hidden"]]
    gains, seen = {}, 0
    for k in spoken:
        n = len(steps[k]["hidden"])
        gains[k] = volume(rows[: seen + n], beta) - volume(rows[:seen], beta)
        seen += n
    top = max(gains.values())
    found: list[list[float]] = []
    for k, s in enumerate(steps):
        change = margins[k + 1] - margins[k]
        sigma = np.sign(change) if change >= 5 or change <= -3 else np.sign(a_tau)
        if a_tau == 0:
            sigma = 0.0
        alpha = gains.get(k, 0.0) / top if top > 1e-12 else 0.0
        delta = [t - p for t, p in zip(s["logprobs_teacher"], s["logprobs"], strict=True)]
        w = [min(max(math.exp(sigma * d), 1 - eps_w), 1 + eps_w) for d in delta]
        found.append([sigma * total / len(spoken) * abs(a_tau) * alpha * x / sum(w) for x in w])
    return found


@st.composite
def made(draw: st.DrawFn, name: str) -> dict[str, Any]:
    width = 3
    sizes = draw(st.lists(st.integers(0, 3), min_size=2, max_size=4))
    number, lp = st.floats(-2, 2, width=16), st.floats(-4, 0, width=16)
    steps = [
        {
            "hidden": [draw(st.lists(number, min_size=width, max_size=width)) for _ in range(n)],
            "logprobs": draw(st.lists(lp, min_size=n, max_size=n)),
            "logprobs_teacher": draw(st.lists(lp, min_size=n, max_size=n)),
        }
        for n in sizes
    ]
    row = st.lists(st.floats(-20, 0), min_size=3, max_size=3)
    table = draw(st.lists(row, min_size=len(sizes) + 1, max_size=len(sizes) + 1))
    return {"id": name, "group": "g", "candidate_logprobs": table, "steps": steps}


@dear
@given(
    made("a"),
    made("b"),
    st.sampled_from([0.0, 1.0, -2.0]),
    st.none() | st.just(0.7),
    st.sampled_from([0.0, 0.2]),
    st.sampled_from([1, 1 << 14]),
)
def test_equals_plain_loops(
    a: dict[str, Any], b: dict[str, Any], reward: float, beta: float | None, eps_w: float, piece: int
) -> None:
    extra = {
        "id": "c",
        "group": "h",
        "reward": 0,
        "steps": [{"hidden": [[1.0] * 3], "logprobs": [0], "logprobs_teacher": [0]}],
    }
    records = [a | {"reward": reward}, b | {"reward": 0.0}, extra]
    with pytest.MonkeyPatch.context() as patch:  # volumes one by one, or together
        patch.setattr("accredit.methods.dcsd._PIECE", piece)
        credit = run(records, beta=beta, eps_w=eps_w)
    for r, (record, a_tau) in enumerate(((a, reward / 2), (b, -reward / 2))):
        for got, wanted in zip(
            credit.tokens_by_rollout()[r], oracle(record, a_tau, beta, eps_w), strict=True
        ):
            np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-7)


# -- properties -----------------------------------------------------------------------------------


@given(st.lists(st.floats(-9, 9), min_size=5, max_size=5), st.floats(0, 0.9))
def test_a_teacher_changes_neither_sign_nor_mass_of_a_step(teacher: list[float], eps_w: float) -> None:
    records = pair()
    values = iter(teacher)
    for step in records[0]["steps"]:
        step["logprobs_teacher"] = [next(values) for _ in step["logprobs"]]
    credit, plain = run(records, eps_w=eps_w), run(pair())
    for own, wanted in zip(credit.tokens_by_rollout()[0], plain.tokens_by_rollout()[0], strict=True):
        assert own.sum() == pytest.approx(wanted.sum(), rel=1e-9)
        n, q = len(own), own / own.sum()
        assert (q >= (1 - eps_w) / (n * (1 + eps_w)) - 1e-12).all()
        assert (q <= (1 + eps_w) / (n * (1 - eps_w)) + 1e-12).all()


def test_total_credit_is_kappa_times_the_sum_of_alphas() -> None:
    credit = run(pair())
    alphas = credit.extras["alpha"][[0, 2, 3]].sum()
    assert np.abs(credit.tokens[:5]).sum() == pytest.approx(5 / 3 * 0.8 * alphas)


def test_without_overrides_the_outcome_gives_every_sign() -> None:
    for params in ({"tau_plus": math.inf, "tau_minus": -math.inf}, {"direction": "outcome"}):
        assert [-1.0] * 5 == run(pair(), **params).extras["sigma"][:5].tolist()


def test_thresholds_are_met_with_equality() -> None:
    table = [[0.0, 0.0], [5.0, 0.0], [2.0, 0.0], [-0.5, 0.0]]
    sigma = run(pair(candidate_logprobs=table)).extras["sigma"][[0, 2, 3]].tolist()
    assert [1, -1, -1] == sigma
    assert [1, -1, 1] == run(pair(1.6, candidate_logprobs=table)).extras["sigma"][[0, 2, 3]].tolist()


def test_a_constant_on_all_candidates_changes_nothing() -> None:
    moved = [[x + 7.5 * k for x in row] for k, row in enumerate([[m, 0.0] for m in MARGINS])]
    np.testing.assert_allclose(run(pair(candidate_logprobs=moved)).tokens, run(pair()).tokens, rtol=1e-12)


def test_zero_bound_on_weights_shares_equally() -> None:
    own = run(pair(), eps_w=0.0).tokens_by_rollout()[0]
    assert all(np.ptp(values) == 0 for values in own)


def test_scale_of_hidden_states_is_irrelevant_by_default() -> None:
    small = pair()
    for record in small:
        for step in record["steps"]:
            step["hidden"] = [[1e-3 * x for x in h] for h in step["hidden"]]
    np.testing.assert_allclose(run(small, beta=None).tokens, run(pair(), beta=None).tokens, rtol=1e-5)


# -- edge cases -----------------------------------------------------------------------------------


def test_a_group_that_ties_gets_nothing_whatever_the_margins() -> None:
    assert not run(pair(0.0)).tokens.any()


def test_unclear_margins_leave_the_sign_to_the_outcome() -> None:
    for table in ([[m] for m in MARGINS], [[None, 0.0] for _ in MARGINS]):
        credit = run([r | {"candidate_logprobs": table} for r in pair()])
        assert [-1.0] * 5 + [1.0] * 5 == credit.extras["sigma"].tolist()
        assert 6 == credit.fallbacks["unclear_margin"]


def test_an_unknown_gold_answer_is_refused_unless_the_outcome_decides() -> None:
    bare = [{k: v for k, v in r.items() if k != "candidate_logprobs"} for r in pair()]
    with pytest.raises(MissingSignal, match="rollout 'r' has no candidate_logprobs"):
        run(bare)
    assert run(bare, direction="outcome").tokens.any()
    with pytest.raises(DataError, match="candidate_logprobs of another form"):
        run(pair(candidate_logprobs=[[0.0, 0.0]]))


def test_an_empty_step_is_no_step() -> None:
    empty = pair()
    empty[0]["steps"].insert(1, {"hidden": [], "logprobs": [], "logprobs_teacher": []})
    empty[0]["candidate_logprobs"].insert(1, [5.5, 0.0])
    np.testing.assert_allclose(run(empty).tokens, run(pair()).tokens, rtol=1e-12)


def test_hidden_states_of_zero_give_zero() -> None:
    dark = pair()
    for step in dark[0]["steps"]:
        step["hidden"] = [[0.0, 0.0] for _ in step["hidden"]]
    assert not run(dark, beta=None).tokens[:5].any()


def test_without_a_teacher_shares_are_equal_and_counted() -> None:
    plain = pair()
    for record in plain:
        for step in record["steps"]:
            del step["logprobs_teacher"]
    credit = run(plain)
    assert 6 == credit.fallbacks["no_teacher"]
    assert [0.5, 0.5, 1, 0.5, 0.5] == credit.extras["share"][:5].tolist()
    assert 0 == run(pair()).fallbacks["no_teacher"]


def test_one_short_response_is_one_step() -> None:
    records = [
        {"id": i, "group": "g", "reward": r, "candidate_logprobs": [[-4.0, 0.0], [4.0, 0.0]]}
        | {"steps": [{"hidden": [[1.0, 0.0], [0.0, 2.0]]}]}
        for i, r in (("a", 1.0), ("b", 0.0))
    ]
    credit = run(records)
    assert [1.0] * 4 == credit.extras["alpha"].tolist()
    assert pytest.approx([0.5] * 4) == credit.tokens.tolist()


# -- induced steps --------------------------------------------------------------------------------


def planted(n: int, at: int, d: int = 16, seed: int = 0) -> np.ndarray:
    """States that turn from one mean to another at a place."""
    rng = np.random.default_rng(seed)
    rows = 0.3 * rng.normal(size=(n, d))
    rows[:at, 0] += 3.0
    rows[at:, 1] += 3.0
    return rows


def test_a_response_shorter_than_64_tokens_has_no_boundary() -> None:
    assert not boundaries(planted(63, 32)).size


def test_a_planted_turn_is_found_within_a_grid_place() -> None:
    """The loss of volume is largest where the window before still straddles the turn."""
    hits = [np.abs(boundaries(planted(240, 96, seed=seed)) - 96).min() <= 8 for seed in range(20)]
    assert 19 <= sum(hits)


@given(st.integers(0, 50), st.integers(64, 400))
def test_boundaries_keep_their_distance_and_lie_on_the_grid(seed: int, n: int) -> None:
    places = boundaries(np.random.default_rng(seed).normal(size=(n, 8)))
    assert (places % 8 == 0).all()
    assert (places >= 32).all()
    assert (places <= n - 32).all()
    assert (np.diff(places) >= 24).all()


def test_a_boundary_moves_to_a_line_end_within_eight_tokens() -> None:
    rows = planted(240, 96)
    ends = np.zeros(240, bool)
    ends[106] = True
    plain, snapped = boundaries(rows), boundaries(rows, ends)
    assert 104 in plain
    assert 107 in snapped
    assert 104 not in snapped
    ends[:] = False
    np.testing.assert_array_equal(plain, boundaries(rows, ends))


def chi_by_loops(rows: np.ndarray) -> list[float]:
    """The change at every place, one window at a time."""

    def shape(window: np.ndarray) -> tuple[float, float, np.ndarray]:
        away = window - window.mean(axis=0)
        lam = np.maximum(np.linalg.eigvalsh(away @ away.T), 0)
        d = lam.sum() ** 2 / ((lam**2).sum() + 1e-8)
        return 0.5 * np.log(1 + rows.shape[1] / 32 * lam).sum(), d, window.mean(axis=0)

    every = [shape(rows[a : a + 32]) for a in range(0, len(rows) - 31, 8)]
    eta = np.std([v for v, _, _ in every]) / np.std([d for _, d, _ in every])
    phi = []
    for t in range(32, len(rows) - 31, 8):
        (v0, d0, m0), (v1, d1, m1) = shape(rows[t - 32 : t]), shape(rows[t : t + 32])
        turn = 1 - m0 @ m1 / np.linalg.norm(m0) / np.linalg.norm(m1)
        phi.append([abs(v1 - eta * d1 - v0 + eta * d0), max(v0 - v1, 0), max(d1 - d0, 0), turn])
    table = np.array(phi)
    return ((table - table.mean(axis=0)) / (table.std(axis=0) + 1e-8)).mean(axis=1).tolist()


def test_boundaries_are_the_peaks_of_the_change_by_loops() -> None:
    for seed in range(8):
        rows = np.random.default_rng(seed).normal(size=(300, 8)).cumsum(axis=0) * 0.2
        chi = chi_by_loops(rows)
        high = np.percentile(chi, 85)
        peaks = [
            i
            for i, x in enumerate(chi)
            if x > high and x >= max(chi[max(0, i - 1)], chi[min(len(chi) - 1, i + 1)])
        ]
        kept: list[int] = []
        for i in sorted(peaks, key=lambda i: -chi[i]):
            kept += [i] if all(abs(i - j) >= 3 for j in kept) else []
        assert sorted(32 + 8 * i for i in kept) == boundaries(rows).tolist()


def test_a_long_response_is_cut_and_its_readout_has_one_boundary_more() -> None:
    rows = planted(240, 96)
    cuts = boundaries(rows)
    steps = cuts.size + 1
    table = [[-9.0, 0.0]] + [[0.0, 0.0]] * steps
    records = [
        {
            "id": i,
            "group": "g",
            "reward": r,
            "candidate_logprobs": table,
            "steps": [{"hidden": rows.tolist()}],
        }
        for i, r in (("a", 1.0), ("b", 0.0))
    ]
    credit = run(records)
    assert steps == credit.extras["segment"][:240].max() + 1
    assert np.array_equal(np.flatnonzero(np.diff(credit.extras["segment"][:240])) + 1, cuts)
    assert [1.0] * steps == credit.extras["sigma"][[0, *cuts.tolist()]].tolist()
    second = credit.extras["sigma"][240:]
    assert 1.0 == second[0]
    assert -1.0 == second[-1]
    assert 1 == run([*records[:1], records[1] | {"reward": 1.0}], partition="own").extras["segment"].max() + 1


# -- worth reproducing ----------------------------------------------------------------------------


def test_margins_find_the_sign_of_the_change_in_success_better_than_the_outcome() -> None:
    """A chain whose prefixes have known success probabilities; the readout sees them with noise."""
    rng = np.random.default_rng(0)
    agree = {"margin": 0, "outcome": 0}
    records, truth = [], []
    for i in range(200):
        logit = np.cumsum(np.concatenate([[0.0], rng.choice([-6.0, 6.0], 4)]))
        noisy = logit + rng.normal(0, 1.0, 5)
        truth.append(np.sign(np.diff(logit)))
        steps = [{"hidden": rng.normal(size=(2, 4)).tolist()} for _ in range(4)]
        won = float(rng.random() < 1 / (1 + math.exp(-logit[-1])))
        table = [[x, 0.0] for x in noisy.tolist()]
        records.append(
            {"id": f"{i}", "group": f"{i // 8}", "reward": won, "candidate_logprobs": table, "steps": steps}
        )
    for direction in agree:
        credit = run(records, direction=direction)
        sigma = credit.extras["sigma"][::2].reshape(200, 4)
        agree[direction] = int((sigma == np.array(truth)).sum())
    assert agree["margin"] > agree["outcome"] + 100


def test_false_overrides_fall_as_thresholds_grow() -> None:
    rng = np.random.default_rng(1)
    records = []
    for i in range(200):
        table = [[x, 0.0] for x in rng.normal(0, 2.0, 5).tolist()]  # nothing changes: every override is false
        steps = [{"hidden": rng.normal(size=(1, 3)).tolist()} for _ in range(4)]
        records.append(
            {
                "id": f"{i}",
                "group": f"{i // 8}",
                "reward": float(i % 2),
                "candidate_logprobs": table,
                "steps": steps,
            }
        )
    base = np.repeat([-1.0, 1.0] * 100, 4)
    false = [
        int((run(records, tau_plus=t, tau_minus=-t).extras["sigma"] != base).sum()) for t in (1, 3, 5, 9)
    ]
    assert false == sorted(false, reverse=True)
    assert false[0] > 5 * false[2]
