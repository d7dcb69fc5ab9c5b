"""Policy losses: verl's own values, derivatives by finite differences, aggregation by plain loops."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit import losses

FILES = sorted((Path(__file__).parents[1] / "golden" / "data").glob("policy-loss-*.json"))


def flat(nested: Any) -> np.ndarray:
    return np.array([x for row in nested for step in row for x in step])


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def golden(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A golden file, with its arrays: rows are rollouts, advantages are TRL's GRPO."""
    content = json.loads(request.param.read_text())
    rows = content["rollouts"]
    batch = ac.Batch.from_records(
        [{**r, "steps": [{"tokens": s["tokens"]} for s in r["steps"]]} for r in rows]
    )
    credit = ac.assign(batch, "grpo", compat="trl")
    start = batch.token_start_S1[batch.step_start_R1]
    logprob, old = (flat([[s[k] for s in r["steps"]] for r in rows]) for k in ("logprobs", "old_logprobs"))
    return content | {"arrays": (logprob, old, np.array(credit.tokens)), "start": start}


def check(expected: dict[str, Any], got: losses.Loss, tolerance: float) -> None:
    assert expected["loss"] == pytest.approx(got.value, abs=tolerance)
    np.testing.assert_allclose(got.grad_T, flat(expected["grad"]), atol=tolerance)


def test_golden_files_are_there() -> None:
    assert 2 == len(FILES)


def test_every_aggregation_of_the_surrogate_equals_verl(golden: dict[str, Any]) -> None:
    params, clip = golden["params"], {k: golden["params"][k] for k in ("clip_low", "clip_high")}
    assert set(golden["expected"]["agg"]) <= set(losses.AGGREGATIONS)
    for mode, expected in golden["expected"]["agg"].items():
        weight = losses.token_weights(golden["start"], mode, constant=params["padded_length"])
        check(expected, losses.ppo(*golden["arrays"], weight, **clip), golden["tolerance"])


def test_gspo_and_cispo_equal_verl(golden: dict[str, Any]) -> None:
    clip = {k: golden["params"][k] for k in ("clip_low", "clip_high")}
    expected = golden["expected"]
    check(expected["gspo"], losses.gspo(*golden["arrays"], golden["start"], **clip), golden["tolerance"])
    weight = losses.token_weights(golden["start"], "token-mean")
    check(expected["cispo"], losses.cispo(*golden["arrays"], weight, **clip), golden["tolerance"])


def test_aepo_has_the_value_of_ppo_and_above_the_bound_the_gradient_of_cispo(golden: dict[str, Any]) -> None:
    clip = {k: golden["params"][k] for k in ("clip_low", "clip_high")}
    logprob, old, advantage = golden["arrays"]
    weight = losses.token_weights(golden["start"], "token-mean")
    got = losses.aepo(*golden["arrays"], weight, **clip)
    expected = golden["expected"]
    above = (np.exp(logprob - old) > 1 + clip["clip_high"]) & (advantage > 0)
    grad = np.where(above, flat(expected["cispo"]["grad"]), flat(expected["agg"]["token-mean"]["grad"]))
    assert above.any()
    assert expected["agg"]["token-mean"]["loss"] == pytest.approx(got.value, abs=golden["tolerance"])
    np.testing.assert_allclose(got.grad_T, grad, atol=golden["tolerance"])


tokens = st.lists(
    st.tuples(st.floats(-3, 0), st.floats(-3, 0), st.floats(-2, 2).filter(lambda a: abs(a) > 1e-3)),
    min_size=1,
    max_size=8,
)


@given(tokens)
def test_ppo_and_sapo_gradients_are_finite_differences(rows: list[tuple[float, float, float]]) -> None:
    """Seen failing with the gradient kept where the clipped branch rules."""
    logprob, old, advantage = np.array(rows).T
    ratio = np.exp(logprob - old)
    edge = np.minimum(np.abs(ratio - 0.8), np.abs(ratio - 1.2)) < 1e-3
    weight = losses.token_weights(np.array([0, logprob.size]))
    for loss in (losses.ppo, losses.sapo):
        grad = loss(logprob, old, advantage, weight).grad_T
        for i in np.flatnonzero(~edge):
            up, down = logprob.copy(), logprob.copy()
            up[i] += 1e-6
            down[i] -= 1e-6
            slope = (loss(up, old, advantage, weight).value - loss(down, old, advantage, weight).value) / 2e-6
            assert grad[i] == pytest.approx(slope, abs=1e-5, rel=1e-5)


@given(tokens)
def test_sapo_is_its_formula_a_token(rows: list[tuple[float, float, float]]) -> None:
    """Its gradient alone does not tell where the gate is centred, nor which steepness is whose."""
    logprob, old, advantage = np.array(rows).T
    weight = losses.token_weights(np.array([0, logprob.size]))
    found = losses.sapo(logprob, old, advantage, weight)
    for i, (x, before, a) in enumerate(rows):
        tau = 1.0 if a > 0 else 1.05
        gate = 1 / (1 + math.exp(-tau * (math.exp(x - before) - 1)))
        assert found.loss_T[i] == pytest.approx(-4 / tau * gate * a, rel=1e-12)
    same = losses.sapo(old, old, advantage, weight)
    assert same.grad_T == pytest.approx(-advantage * weight)  # on policy it is the policy gradient


def frozen(x: float, at: float, old: float, advantage: float) -> float:
    """AEPO's loss of one token, what the bound is divided by held at the log-probability ``at``."""
    ratio, held = np.exp(x - old), np.exp(at - old)
    if advantage > 0 and held > 1.2:
        return float(-advantage * 1.2 * ratio / held)
    return float(max(-advantage * ratio, -advantage * min(max(ratio, 0.8), 1.2)))


@given(tokens)
def test_aepo_keeps_its_gradient_above_the_bound(rows: list[tuple[float, float, float]]) -> None:
    """Seen failing with the gradient of `ppo`, and with the bound kept open for negative advantages."""
    logprob, old, advantage = np.array(rows).T
    found = losses.aepo(logprob, old, advantage, np.ones(logprob.size))
    for i, (x, before, a) in enumerate(rows):
        if min(abs(np.exp(x - before) - edge) for edge in (0.8, 1.2)) > 1e-3:
            slope = (frozen(x + 1e-6, x, before, a) - frozen(x - 1e-6, x, before, a)) / 2e-6
            assert slope == pytest.approx(found.grad_T[i], abs=1e-5, rel=1e-5)
            assert frozen(x, x, before, a) == pytest.approx(found.loss_T[i], rel=1e-12)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(0, 2**16))
def test_weights_equal_plain_loops(counts: list[int], seed: int) -> None:
    """Seen failing with masked-out rows counted as rows."""
    rng = np.random.default_rng(seed)
    start = np.concatenate([[0], np.cumsum(counts)])
    mask, values = rng.random(start[-1]) < 0.7, rng.normal(size=start[-1])
    rows = [[v for v, m in zip(values[a:b], mask[a:b], strict=True) if m] for a, b in pairwise(start)]
    rows = [row for row in rows if row]
    everything = [v for row in rows for v in row]
    n = max(1, len(rows))
    expected = {
        "token-mean": sum(everything) / max(1, len(everything)),
        "seq-mean-token-mean": sum(sum(row) / len(row) for row in rows) / n,
        "seq-mean-token-sum": sum(everything) / n,
        "seq-mean-token-sum-norm": sum(everything) / n / 7,
        "token-sum": sum(everything),
    }
    for mode in losses.AGGREGATIONS:
        weight = losses.token_weights(start, mode, mask, 7)
        assert expected[mode] == pytest.approx(float(values @ weight), abs=1e-12)


def test_gspo_clips_by_the_sequence_and_by_each_tokens_sign() -> None:
    logprob, old = np.array([-1.0, -1.0]), np.array([-1.5, -1.5])
    grad = losses.gspo(logprob, old, np.array([1.0, -1.0]), np.array([0, 2])).grad_T
    assert [0.0, pytest.approx(np.exp(0.5) / 2)] == grad.tolist()


def test_cispo_keeps_the_gradient_of_clipped_tokens() -> None:
    arrays = np.array([-0.1]), np.array([-3.0]), np.array([1.0]), np.ones(1)
    assert [-1.2] == losses.cispo(*arrays).grad_T.tolist()
    assert [0.0] == losses.ppo(*arrays).grad_T.tolist()


def test_slips_are_named() -> None:
    with pytest.raises(ac.AccreditError, match="token-mean"):
        losses.token_weights(np.array([0, 1]), "token-meen")
    with pytest.raises(ac.AccreditError, match="needs a constant"):
        losses.token_weights(np.array([0, 1]), "seq-mean-token-sum-norm")
    with pytest.raises(ac.AccreditError, match=r"\[1, 2, 1, 1\]"):
        losses.ppo(np.zeros(1), np.zeros(2), np.zeros(1), np.ones(1))
