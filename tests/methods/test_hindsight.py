"""gaca, relace, hcapo: worked examples of the cards, reductions and properties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.methods.gaca import fit_mixture
from tests.dear import dear
from tests.index.graph_worlds import Record, walks


def near(values: Any) -> Any:
    return pytest.approx(values, abs=6e-5)


def told(rows: list[Record], seed: int = 0) -> list[Record]:
    """Give every step one to three tokens with log-probs before and after the outcome is known."""
    rng = np.random.default_rng(seed)
    found = []
    for row in rows:
        steps = []
        for step in row["steps"]:
            n = int(rng.integers(1, 4))
            plain = np.round(-rng.exponential(1, n), 3).tolist()
            hind = np.round(-rng.exponential(1, n), 3).tolist()
            steps.append({**step, "logprobs": plain, "logprobs_hindsight": hind})
        found.append({**row, "steps": steps})
    return found


def one(name: str, reward: float, states: str, **signals: list[float]) -> Record:
    steps = []
    for t, state in enumerate(states):
        steps.append({"state": state, **{k: [v[t]] for k, v in signals.items() if v[t] is not None}})
    return {"id": name, "group": "g", "reward": reward, "steps": steps}


# -- hcapo ------------------------------------------------------------------------------------------


def test_hcapo_card_example() -> None:
    rows = [
        one("a", 10, "ABC", logprobs_hindsight=[-0.6, -0.5, -2.6]),
        one("b", 0, "ABC", logprobs_hindsight=[-1.0, -1.0, -1.0]),
    ]
    plain = ac.assign(rows, "hcapo", smoothing="none").extras
    assert near([1.1150, 1.1376, 0.8]) == plain["rho"][:3].tolist()
    assert near([10.0631, 10.8067, 8.0]) == plain["q_hindsight"][:3].tolist()
    smooth = ac.assign(rows, "hcapo").extras["q_hindsight"][:3]
    assert near([9.7332, 9.4034, 8.0]) == smooth.tolist()


@dear
@given(walks())
def test_hcapo_is_grpo_at_omega_zero_and_ignores_a_shift_a_token(rows: list[Record]) -> None:
    rows = told(rows)
    np.testing.assert_allclose(
        ac.assign(rows, "hcapo", omega=0).steps, ac.assign(rows, "grpo").steps, atol=1e-12
    )
    moved = told(rows)
    for row in moved:
        for step in row["steps"]:
            step["logprobs_hindsight"] = [x - 0.5 for x in step["logprobs_hindsight"]]
    before, after = (ac.assign(r, "hcapo").steps for r in (rows, moved))
    np.testing.assert_allclose(before, after, atol=1e-5)


@dear
@given(walks())
def test_hcapo_ratios_of_a_rollout_average_to_one_before_clipping(rows: list[Record]) -> None:
    credit = ac.assign(told(rows), "hcapo", clip_low=0, clip_high=1e9)
    for part in np.split(credit.extras["rho"], credit.batch.step_start_R1[1:-1]):
        assert part.mean() == pytest.approx(1.0)


def test_hcapo_high_temperature_leaves_discounted_outcomes() -> None:
    rows = told([one("a", 1, "ABC"), one("b", 0, "ABC")])
    credit = ac.assign(rows, "hcapo", temperature=1e12, smoothing="none")
    assert near([0.9025, 0.95, 1.0, 0, 0, 0]) == credit.extras["q_hindsight"].tolist()


def test_hcapo_does_no_harm_to_successes_and_warns_of_negative_outcomes() -> None:
    rows = told([one("a", 1, "ABC"), one("b", -1, "ABC"), one("c", 1, "A")], seed=3)
    credit = ac.assign(rows, "hcapo")
    assert (credit.parts["step"][[0, 1, 2, 6]] >= 0).all()
    assert "ACC415" in {f.code for f in credit.findings}
    harmed = ac.assign(rows, "hcapo", do_no_harm=False).parts["step"]
    np.testing.assert_allclose(credit.parts["step"][:3], np.maximum(harmed[:3], 0))


def test_hcapo_neighbours_smoothing() -> None:
    rows = [
        one("a", 1, "ABC", logprobs_hindsight=[-1.0, -1.0, -1.0]),
        one("b", 0, "A", logprobs_hindsight=[-1.0]),
    ]
    q = ac.assign(rows, "hcapo", gamma=0.5, smoothing="neighbours", alpha=0.5).extras["q_hindsight"]
    assert near([0.375, 0.5625, 0.75, 0.0]) == q.tolist()


def test_hcapo_names_the_step_that_lacks_its_signal() -> None:
    rows = told([one("a", 1, "AB"), one("b", 0, "AB")])
    del rows[1]["steps"][1]["logprobs_hindsight"]
    with pytest.raises(ac.AccreditError, match="rollout 'b' step 1 has no logprobs_hindsight"):
        ac.assign(rows, "hcapo")


# -- relace -----------------------------------------------------------------------------------------


def test_relace_card_example() -> None:
    rows = [
        one("a", 1, "ABC", logprobs=[0.0, 0.0, 0.0], logprobs_hindsight=[0.4, 0.0, -0.6]),
        one("b", 0, "A", logprobs=[0.0], logprobs_hindsight=[0.0]),
    ]
    credit = ac.assign(rows, "relace")
    assert near([1.2, 0.9866, 0.8]) == credit.extras["rho"][:3].tolist()
    assert near([0.9758, 0.8687, 0.8]) == credit.extras["weighted_returns"][:3].tolist()
    assert near([0.7071, -0.7071]) == credit.parts["step"][[0, 3]].tolist()


@dear
@given(walks())
def test_relace_without_lift_smoothing_and_mask_is_gigpo(rows: list[Record]) -> None:
    rows = told(rows)
    for row in rows:
        for step in row["steps"]:
            step["logprobs_hindsight"] = step["logprobs"]
    got = ac.assign(rows, "relace", alpha=1, mask=False).steps
    np.testing.assert_allclose(got, ac.assign(rows, "gigpo", mode="mean_std_norm").steps, atol=1e-9)


@dear
@given(walks())
def test_relace_influence_is_bounded_and_omega_zero_is_grpo(rows: list[Record]) -> None:
    rows = told(rows)
    credit = ac.assign(rows, "relace", smooth="none")
    returns = ac.assign(rows, "returns").extras["returns"]
    gap = np.abs(credit.extras["weighted_returns"] - returns)
    assert (gap <= 0.2 * np.abs(returns) + 1e-9).all()
    np.testing.assert_allclose(
        ac.assign(rows, "relace", omega=0).steps, ac.assign(rows, "grpo").steps, atol=1e-12
    )


def test_relace_empty_step_has_factor_one() -> None:
    rows = told([one("a", 1, "ABC"), one("b", 0, "ABC")])
    for field in ("logprobs", "logprobs_hindsight"):
        del rows[0]["steps"][1][field]
    assert 1.0 == ac.assign(rows, "relace").extras["rho"][1]


# -- gaca -------------------------------------------------------------------------------------------


def test_gaca_card_example() -> None:
    nll = [-0.2, -0.8, -0.5]
    rows = [
        one("a", 1, "ABC", logprobs=nll),
        one("b", 0, "ABC", logprobs=[-1.0, -1.0, -1.0]),
    ]
    credit = ac.assign(rows, "gaca")
    surprise = credit.extras["surprise"][:3]
    assert near([-1.2247, 1.2247, 0.0]) == surprise.tolist()
    omega = credit.extras["omega"][:3]
    assert near([0.5 * (1 - 0.4205), 0.5 * (1 + 0.4205), 0.5]) == omega.tolist()
    parts = ac.assign(rows, "gigpo", mode="mean_std_norm").parts
    expected = 2 * ((1 - omega) * parts["episode"][:3] + omega * parts["step"][:3])
    np.testing.assert_allclose(credit.steps[:3], expected)
    base = ac.assign(rows, "gaca", mixture=0.4).extras["omega"][:3]
    assert near([0.2318, 0.5682, 0.4]) == base.tolist()


@dear
@given(walks(), st.sampled_from(["tanh", "rank"]))
def test_gaca_without_modulation_is_gigpo(rows: list[Record], shape: str) -> None:
    got = ac.assign(told(rows), "gaca", kappa=0, map=shape).steps
    np.testing.assert_allclose(got, ac.assign(rows, "gigpo", mode="mean_std_norm").steps, atol=1e-9)


@dear
@given(walks())
def test_gaca_ignores_a_constant_in_the_nll_and_averages_surprise_to_zero(rows: list[Record]) -> None:
    rows = told(rows)
    moved = [
        {**r, "steps": [{**s, "logprobs": [x - 2.0 for x in s["logprobs"]]} for s in r["steps"]]}
        for r in rows
    ]
    one_, two = ac.assign(rows, "gaca"), ac.assign(moved, "gaca")
    np.testing.assert_allclose(one_.steps, two.steps, atol=1e-3)
    for part in np.split(one_.extras["surprise"], one_.batch.step_start_R1[1:-1]):
        assert part.mean() == pytest.approx(0.0, abs=1e-6)


def test_gaca_state_visited_once_keeps_the_base_mixture() -> None:
    rows = [one("a", 1, "AXC", logprobs=[-0.2, -0.8, -0.5]), one("b", 0, "AYC", logprobs=[-1.0, -1.0, -1.0])]
    assert 0.5 == ac.assign(rows, "gaca").extras["omega"][1]
    assert ac.assign(rows, "gaca", lone_states="mix").extras["omega"][1] > 0.5


def test_gaca_rank_map_gives_ties_their_mean_rank() -> None:
    rows = [
        one("a", 1, "ABCD", logprobs=[-0.5, -0.1, -0.5, -0.9]),
        one("b", 0, "ABCD", logprobs=[-1.0] * 4),
    ]
    omega = ac.assign(rows, "gaca", map="rank", kappa=0.5).extras["omega"]
    assert near([0.5, 0.25, 0.5, 0.75]) == omega[:4].tolist()
    assert near([0.5] * 4) == omega[4:].tolist()


def test_fit_mixture_finds_the_weight_that_made_the_truth() -> None:
    rng = np.random.default_rng(0)
    z, e, p = rng.normal(size=(3, 20_000))
    truth = np.where(z > 0, 0.2 * e + 0.8 * p, 0.7 * e + 0.3 * p)
    fitted = fit_mixture(z, e, p, truth, bins=2)
    assert pytest.approx([0.3, 0.8], abs=0.01) == fitted[:, 1].tolist()
