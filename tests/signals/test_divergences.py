"""Several distributions at once: worked examples, plain loops, streaming, missing contexts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.data import Batch
from accredit.errors import DataError, ParamError
from accredit.signals import Context, Divergence, FakeBackend, FisherMoments, Passage, Segment, View, joint
from tests.dear import dear
from tests.signals.asking import VOCABULARY, distribution, rollouts

S, T = (np.log(np.array([p], np.float32)) for p in ((0.7, 0.3), (0.4, 0.6)))


def _log(*p):
    return np.log(np.array([p], np.float32))


# -- worked examples of the cards -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        (Divergence(), 0.046201),
        (Divergence("forward"), 0.192042),
        (Divergence("reverse"), 0.183787),
        (Divergence(beta=0.0), 0.192042),
        (Divergence(beta=1.0), 0.183787),
        (Divergence(top_k=1), 0.0),
    ],
)
def test_the_opsd_card_is_met(measure, expected):
    found = measure.of({"student": S, "teacher": T}, np.array([0]))
    np.testing.assert_allclose(found, [expected], atol=2e-6)


def test_the_verpo_card_is_met():
    rows = {
        "student": _log(0.5, 0.3, 0.2),
        "pos": _log(0.2, 0.6, 0.2),
        "neg": _log(0.6, 0.2, 0.2),
        "none": _log(0.4, 0.35, 0.25),
    }
    [[t, n, tt, nn, tn, t_y, n_y]] = FisherMoments().of(rows, np.array([1]))
    np.testing.assert_allclose([0.0064, 0.001225], [tn - t * n, nn - n * n], rtol=1e-4)
    alpha = (tn - t * n) / (nn - n * n + 1e-8)
    np.testing.assert_allclose(5.224447, alpha, rtol=1e-4)
    np.testing.assert_allclose(0.138778, t_y - alpha * n_y, rtol=1e-4)
    cost = tt - t * t - 2 * alpha * (tn - t * n) + alpha**2 * (nn - n * n)
    np.testing.assert_allclose(0.0881633, cost, rtol=1e-4)


# -- plain loops ----------------------------------------------------------------------------------


def _slow_moments(p, none, pos, neg, y, form):
    size = range(len(p))
    if form == "forward":
        t = [pos[v] - neg[v] for v in size]
        n = [(pos[v] + neg[v]) / 2 - none[v] for v in size]
    else:
        r_t = [math.log(pos[v]) - math.log(neg[v]) for v in size]
        r_n = [(math.log(pos[v]) + math.log(neg[v])) / 2 - math.log(none[v]) for v in size]
        t, n = ([p[v] * (r[v] - sum(p[u] * r[u] for u in size)) for v in size] for r in (r_t, r_n))
    means = [sum(p[v] * x for v, x in zip(size, xs, strict=True)) for xs in (t, n)]
    products = [sum(p[v] * a[v] * b[v] for v in size) for a, b in ((t, t), (n, n), (t, n))]
    return [*means, *products, t[y], n[y]]


def _slow_divergence(s, t, form, beta):
    def kl(a, b):
        return sum(x * math.log(x / y) for x, y in zip(a, b, strict=True))

    if form == "forward" or (form == "jsd" and beta == 0):
        return kl(t, s)
    if form == "reverse" or beta == 1:
        return kl(s, t)
    m = [(1 - beta) * a + beta * b for a, b in zip(s, t, strict=True)]
    return beta * kl(t, m) + (1 - beta) * kl(s, m)


def _prefixed(ids):
    def edit(batch, passage):
        return Passage(passage.rollout, (Segment(np.array(ids)), *passage.segments))

    return Context(f"ids{ids}", edit)


CONTEXTS = {"student": [], "none": [1], "pos": [2, 3], "neg": [4], "neg2": [5, 0]}


@dear
@given(rollouts(max_rollouts=2, max_steps=3), st.sampled_from(["forward", "reverse"]), st.booleans())
def test_streamed_moments_are_those_of_plain_loops(records, form, two):
    fake, batch = FakeBackend(VOCABULARY), Batch.from_records(records)
    measure = FisherMoments(form, ("neg", "neg2") if two else ("neg",))
    views = {role: View(fake, _prefixed(ids)) for role, ids in CONTEXTS.items()}
    found = joint(batch, views, [measure])
    at = 0
    for record in records:
        for step in record["steps"]:
            for i, y in enumerate(step["tokens"]):
                seen = step["prompt_tokens"] + step["tokens"][:i]
                p = {role: distribution(fake, [*ids, *seen])[0] for role, ids in CONTEXTS.items()}
                neg = [(a + b) / 2 for a, b in zip(p["neg"], p["neg2"], strict=True)] if two else p["neg"]
                expected = _slow_moments(p["student"], p["none"], p["pos"], neg, y, form)
                np.testing.assert_allclose(
                    found.column(measure.column).values[at], expected, rtol=1e-3, atol=3e-6
                )
                at += 1


@given(
    rollouts(max_rollouts=2, max_steps=3),
    st.sampled_from(["jsd", "forward", "reverse"]),
    st.sampled_from([0.0, 0.3, 1.0]),
)
def test_streamed_divergences_are_those_of_plain_loops(records, form, beta):
    student, teacher = FakeBackend(VOCABULARY), FakeBackend(VOCABULARY, seed=1)
    measure = Divergence(form, beta)
    found = joint(
        Batch.from_records(records), {"student": View(student), "teacher": View(teacher)}, [measure]
    )
    at = 0
    for record in records:
        for step in record["steps"]:
            for i, _ in enumerate(step["tokens"]):
                seen = step["prompt_tokens"] + step["tokens"][:i]
                s, t = (distribution(model, seen)[0] for model in (student, teacher))
                value = found.column(measure.column).values[at]
                np.testing.assert_allclose(value, _slow_divergence(s, t, form, beta), rtol=1e-3, atol=1e-5)
                at += 1


@given(st.data(), st.integers(2, 8), st.floats(0, 1))
def test_divergences_are_not_negative_and_all_of_the_vocabulary_is_no_restriction(data, size, beta):
    s, t = (
        np.array([data.draw(st.lists(st.floats(0.01, 1), min_size=size, max_size=size))]) for _ in range(2)
    )
    rows = {n: np.log(p / p.sum()).astype(np.float32) for n, p in (("student", s), ("teacher", t))}
    same = {"student": rows["student"], "teacher": rows["student"]}
    y = np.array([0])
    for form in ("jsd", "forward", "reverse"):
        whole = Divergence(form, beta).of(rows, y)
        assert whole[0] >= 0
        np.testing.assert_allclose(whole, Divergence(form, beta, top_k=size).of(rows, y), atol=2e-6)
        np.testing.assert_allclose(0, Divergence(form, beta).of(same, y), atol=1e-6)
    assert Divergence(beta=0.5).of(rows, y)[0] <= math.log(2)


# -- what is refused, what is missing -------------------------------------------------------------

STEP = {"prompt_tokens": [1], "tokens": [2]}
BATCH = Batch.from_records([{"id": i, "reward": 1.0, "steps": [STEP]} for i in "ab"])


def test_a_rollout_that_one_context_has_nothing_for_is_missing():
    only_a = Context("only a", lambda batch, passage: passage if passage.rollout == 0 else None)
    found = joint(
        BATCH, {"student": View(FakeBackend()), "teacher": View(FakeBackend(), only_a)}, [Divergence()]
    )
    assert [True, False] == found.column("jsd_T").valid.tolist()


def test_views_of_other_temperatures_are_refused_and_of_other_weights_are_not():
    student, teacher = FakeBackend(), FakeBackend(seed=3)
    joint(BATCH, {"student": View(student), "teacher": View(teacher)}, [Divergence()])
    warm = FakeBackend(temperature=2.0)
    with pytest.raises(DataError, match=r"ACC754.*temperature 1.0 and 2.0"):
        joint(BATCH, {"student": View(student), "teacher": View(warm)}, [Divergence()])


def test_a_role_that_is_missing_is_named():
    with pytest.raises(ParamError, match="no view teacher"):
        joint(BATCH, {"student": View(FakeBackend())}, [Divergence()])
