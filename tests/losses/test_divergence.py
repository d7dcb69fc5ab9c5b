"""Divergences and distillation terms: the cards' numbers, plain loops, finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import accredit as ac
from accredit import losses

S, T = np.log([[0.7, 0.3]]), np.log([[0.4, 0.6]])
ONE = np.ones(1)


def test_jsd_of_the_cards_example() -> None:
    got = [losses.jsd(S, T, ONE, beta=beta).value for beta in (0.5, 0.0, 1.0)]
    np.testing.assert_allclose(got, [0.046201, 0.192042, 0.183787], atol=5e-7)
    assert losses.forward_kl(S, T, ONE).value == got[1]
    assert losses.reverse_kl(S, T, ONE).value == got[2]


def test_gates_of_the_cards_example() -> None:
    gap = np.array([-1, -0.1, 0, 0.1, 1])
    expected = [0.0067, 0.3775, 0.5, 0.6225, 0.9933]
    np.testing.assert_allclose(losses.sdar_gate(gap), expected, atol=5e-5)


@st.composite
def logits(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits of a student and a teacher ``[T, V]``, and weights ``[T]``."""
    shape = draw(st.integers(1, 4)), draw(st.integers(2, 5))
    numbers = st.floats(-3, 3)
    found = [draw(arrays(np.float64, shape, elements=numbers)) for _ in range(2)]
    return found[0], found[1], draw(arrays(np.float64, shape[0], elements=st.floats(0, 1)))


def slow_jsd(
    student: Iterable[float], teacher: Iterable[float], beta: float, temperature: float, k: int
) -> float:
    """Probabilities and sums, word by word; the teacher's k likeliest words (ties: the first)."""
    student, teacher = [x / temperature for x in student], [x / temperature for x in teacher]
    kept = sorted(range(len(teacher)), key=lambda v: -teacher[v])[:k]
    p, q = ([math.exp(x[v]) for v in kept] for x in (student, teacher))
    p, q = [x / sum(p) for x in p], [x / sum(q) for x in q]
    kl = lambda a, b: sum(x * math.log(x / y) for x, y in zip(a, b, strict=True))  # noqa: E731
    if beta in (0.0, 1.0):
        return kl(q, p) if beta == 0 else kl(p, q)
    m = [(1 - beta) * x + beta * y for x, y in zip(p, q, strict=True)]
    return beta * kl(q, m) + (1 - beta) * kl(p, m)


betas = st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])


@given(logits(), betas, st.sampled_from([0.5, 1.0, 2.0]), st.none() | st.integers(1, 6))
def test_jsd_equals_a_plain_loop(data, beta, temperature, top_k) -> None:
    """Seen failing with the mixture's weights swapped, and with top-k by the student."""
    student, teacher, weight = data
    found = losses.jsd(student, teacher, weight, beta=beta, temperature=temperature, top_k=top_k)
    rows = zip(student.tolist(), teacher.tolist(), strict=True)
    expected = [slow_jsd(s, t, beta, temperature, top_k or len(s)) for s, t in rows]
    np.testing.assert_allclose(found.loss_T, expected, atol=1e-9)
    assert found.value == pytest.approx(float(np.dot(expected, weight)), abs=1e-9)


def check_slopes(loss: Callable[[np.ndarray], tuple], at: np.ndarray) -> None:
    """The gradient is the difference quotient in every coordinate."""
    grad = loss(at)[1]
    assert grad.shape == at.shape
    for i in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[i] += 1e-5
        down[i] -= 1e-5
        assert grad[i] == pytest.approx((loss(up)[0] - loss(down)[0]) / 2e-5, abs=1e-6, rel=1e-6)


@given(logits(), betas, st.sampled_from([0.5, 1.0, 2.0]), st.none() | st.integers(1, 6))
def test_jsd_gradient_is_the_difference_quotient(data, beta, temperature, top_k) -> None:
    """Seen failing without the division by the temperature."""
    student, teacher, weight = data
    options = {"beta": beta, "temperature": temperature, "top_k": top_k}
    check_slopes(lambda x: losses.jsd(x, teacher, weight, **options), student)


@given(logits(), st.sampled_from(["forward_kl", "reverse_kl"]), st.sampled_from([0.5, 1.0]))
def test_evidence_gradient_is_the_difference_quotient(data, divergence, temperature) -> None:
    student, direction, weight = data
    options = {"divergence": divergence, "temperature": temperature}
    check_slopes(lambda x: losses.evidence(x, direction, weight, **options), student)


@given(logits())
def test_descent_of_forward_evidence_is_the_displacement_itself(data) -> None:
    student, other, weight = data
    shift = np.exp(losses.log_softmax(other)) - np.exp(losses.log_softmax(student))
    found = losses.evidence(student, shift, weight)
    np.testing.assert_allclose(-found.grad_TV, shift * weight[:, None], atol=1e-12)


@given(logits(), st.sampled_from([0.1, 0.5, 0.9]))
def test_jsd_is_at_least_0_and_0_where_equal(data, beta) -> None:
    student, teacher, weight = data
    assert (losses.jsd(student, teacher, weight, beta=beta).loss_T >= -1e-12).all()
    assert losses.jsd(student, student + 1.5, weight, beta=beta).loss_T == pytest.approx(0, abs=1e-12)


@given(logits())
def test_jsd_at_one_half_is_symmetric_and_at_most_ln_2(data) -> None:
    student, teacher, weight = data
    one, two = losses.jsd(student, teacher, weight), losses.jsd(teacher, student, weight)
    np.testing.assert_allclose(one.loss_T, two.loss_T, atol=1e-12)
    assert (one.loss_T <= math.log(2) + 1e-12).all()


@given(logits(), betas)
def test_top_k_of_the_whole_vocabulary_is_the_whole(data, beta) -> None:
    student, teacher, weight = data
    whole = losses.jsd(student, teacher, weight, beta=beta)
    kept = losses.jsd(student, teacher, weight, beta=beta, top_k=student.shape[1])
    assert whole.value == kept.value


logs = st.lists(st.tuples(*[st.floats(-3, 0)] * 3), min_size=1, max_size=6)
TERMS = {
    "skill_sd": losses.skill_sd,
    "k1": lambda x, t, old, w: losses.kl_estimate(x, t, w, estimator="k1"),
    "k2": lambda x, t, old, w: losses.kl_estimate(x, t, w, estimator="k2"),
    "k3": lambda x, t, old, w: losses.kl_estimate(x, t, w, estimator="k3"),
}


@pytest.mark.parametrize("name", TERMS)
@given(rows=logs, seed=st.integers(0, 99))
def test_token_terms_have_the_difference_quotient_as_gradient(name, rows, seed) -> None:
    """Seen failing with rho taken as a constant in `skill_sd`."""
    logprob, teacher, old = np.array(rows).T
    weight = np.random.default_rng(seed).random(logprob.size)
    check_slopes(lambda x: TERMS[name](x, teacher, old, weight), logprob)


@given(logs, st.sampled_from(losses.GATES))
def test_gradients_stop_at_what_is_held_constant(rows, gate) -> None:
    """The gate, and the gap of the sampled form, carry no gradient; neither does a plus estimator's value."""
    logprob, teacher, _ = np.array(rows).T
    weight = np.full(logprob.size, 1 / logprob.size)
    found = losses.sdar(logprob, teacher, weight, gate=gate)
    np.testing.assert_allclose(found.grad_T, -losses.sdar_gate(teacher - logprob, gate=gate) * weight)
    sampled = losses.sampled_reverse_kl(logprob, teacher, weight)
    np.testing.assert_allclose(sampled.grad_T, -(teacher - logprob) * weight)
    plus, k3 = (losses.kl_estimate(logprob, teacher, weight, estimator=e) for e in ("k3+", "k3"))
    assert plus.value == k3.value
    np.testing.assert_allclose(plus.grad_T, (logprob - teacher) * weight)


@given(
    st.lists(st.floats(0.05, 1), min_size=2, max_size=4), st.lists(st.floats(0.05, 1), min_size=4, max_size=4)
)
def test_means_over_the_student_are_divergences(p, q) -> None:
    """E_S[d] = -KL(S || T), so its sign is no endorsement; E_S[k1] = E_S[k3] = KL, the gradient too."""
    p, q = np.array(p) / sum(p), np.array(q[: len(p)]) / sum(q[: len(p)])
    kl = float(p @ np.log(p / q))
    gap = np.log(q) - np.log(p)
    assert float(p @ gap) == pytest.approx(-kl, abs=1e-12)
    for estimator in ("k1", "k3"):
        assert losses.kl_estimate(np.log(p), np.log(q), p, estimator=estimator).value == pytest.approx(
            kl, abs=1e-9
        )
    sampled = losses.sampled_reverse_kl(np.log(p), np.log(q), p)
    by_logits = sampled.grad_T - p * sampled.grad_T.sum()
    exact = losses.reverse_kl(np.log(p)[None], np.log(q)[None], ONE).grad_TV[0]
    np.testing.assert_allclose(by_logits, exact, atol=1e-12)


def test_topq_keeps_the_largest_positive_gaps_and_their_ties() -> None:
    gap = np.array([0.3, 0.1, -0.5, 0.3, 0.2])
    assert [1, 0, 0, 1, 0] == losses.sdar_gate(gap, gate="topq", top=0.25).tolist()
    assert [1, 0, 0, 1, 1] == losses.sdar_gate(gap, gate="topq", top=0.75).tolist()
    assert not losses.sdar_gate(-gap[:2], gate="topq").any()
    assert [1, 1] == losses.sdar_gate(gap[:2], gate="const").tolist()


def test_topq_ranks_among_the_counted_tokens_only() -> None:
    gap, counted = np.array([0.9, 0.4, 0.1]), np.array([False, True, True])
    assert [1, 1, 0] == losses.sdar_gate(gap, gate="topq", top=0.5, counted_T=counted).tolist()


def test_no_tokens_are_no_loss() -> None:
    empty, none = np.zeros(0), np.zeros((0, 3))
    weight = losses.token_weights(np.array([0, 0]))
    assert 0.0 == losses.jsd(none, none, weight).value
    assert 0.0 == losses.sdar(empty, empty, weight).value
    assert 0.0 == losses.gmpo(empty, empty, empty, np.array([0, 0])).value


@given(
    st.lists(
        st.lists(st.tuples(st.floats(-2, 0), st.floats(-2, 0)), max_size=4),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.sampled_from([-1.5, 0.0, 0.5]), min_size=4, max_size=4),
)
def test_gmpo_equals_a_plain_loop(rows, advantages) -> None:
    """Seen failing with both sides clipped."""
    start = np.cumsum([0, *map(len, rows)])
    flat = [pair for row in rows for pair in row]
    logprob, old = np.array(flat).reshape(-1, 2).T
    each = np.array([a for row, a in zip(rows, advantages, strict=False) for _ in row])
    expected = []
    for row, a in zip(rows, advantages, strict=False):
        total = 0.0
        for x, y in row:
            ratio, held = math.exp(x - y), math.exp(min(max(x - y, -0.4), 0.4))
            total += math.log(min(a * ratio, a * held) / a) if a else 0.0
        if row:
            expected.append(-a * math.exp(total / len(row)))
    found = losses.gmpo(logprob, old, each, start)
    assert found.value == pytest.approx(sum(expected) / max(1, len(expected)), abs=1e-9)


@given(
    st.lists(st.tuples(st.floats(-2, 0), st.floats(-2, 0)), min_size=1, max_size=5),
    st.sampled_from([-1.0, 2.0]),
)
def test_gmpo_gradient_is_the_difference_quotient(rows, advantage) -> None:
    logprob, old = np.array(rows).T
    edge = np.abs(np.abs(logprob - old) - 0.4) < 1e-3
    old = np.where(edge, old - 0.01, old)
    start, each = np.array([0, logprob.size]), np.full(logprob.size, advantage)
    check_slopes(
        lambda x: (losses.gmpo(x, old, each, start).value, losses.gmpo(x, old, each, start).grad_T), logprob
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: losses.kl_estimate(ONE, ONE, ONE, estimator="k4"), "no estimator 'k4'"),
        (lambda: losses.jsd(S, T, ONE, beta=1.5), "beta must be in"),
        (lambda: losses.jsd(S, T, ONE, temperature=0), "temperature must be > 0"),
        (lambda: losses.jsd(S, T, ONE, top_k=0), "top_k must be at least 1"),
        (lambda: losses.jsd(S, T[:, :1], ONE), "do not fit"),
        (lambda: losses.jsd(S, np.array([[0.0, -np.inf]]), ONE), "must be finite"),
        (lambda: losses.evidence(S, T, ONE, divergence="jsd"), "forward_kl, reverse_kl"),
        (lambda: losses.sdar_gate(ONE, gate="soft"), "sigmoid, topq, const"),
        (lambda: losses.skill_sd(ONE, ONE, np.ones(2), ONE), r"\[1, 1, 2, 1\]"),
    ],
)
def test_slips_are_named(call, words) -> None:
    with pytest.raises(ac.AccreditError, match=words):
        call()


@pytest.mark.parametrize("d", [-40.0, -21.0, -19.0, -0.5, 0.0, 3.0])
def test_the_slope_of_k3_is_that_of_its_values_beyond_the_largest_ratio_too(d: float) -> None:
    none, one = np.zeros(1), np.ones(1)
    found = losses.kl_estimate(np.array([d]), none, one, estimator="k3")
    up, down = (losses.kl_estimate(np.array([d + h]), none, one, estimator="k3").value for h in (1e-3, -1e-3))
    assert found.grad_T[0] == pytest.approx((up - down) / 2e-3, rel=1e-5, abs=1e-3)
