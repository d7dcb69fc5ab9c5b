"""Moments of an evidence direction: the card's numbers, a plain loop, chunks, the probe's own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit import losses
from accredit.signals import FisherMoments

FORMS = ("forward_kl", "reverse_kl")


@st.composite
def four(draw: st.DrawFn) -> tuple[list[np.ndarray], np.ndarray]:
    """Logits of student, none, pos, neg ``[T, V]``, and the sampled words."""
    n, words = draw(st.integers(1, 3)), draw(st.integers(2, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.sampled_from([0.1, 1.0, 3.0]))
    return [rng.normal(0, size, (n, words)) for _ in range(4)], rng.integers(0, words, n)


def softmax(row: list[float]) -> list[float]:
    top = max(row)
    total = sum(math.exp(x - top) for x in row)
    return [math.exp(x - top) / total for x in row]


def slow_moments(rows: list[list[float]], y: int, form: str, kept: set[int]) -> list[float]:
    """Word by word, over the kept words."""
    p, q0, pos, neg = map(softmax, rows)
    if form == "forward_kl":
        t = [a - b for a, b in zip(pos, neg, strict=True)]
        n = [(a + b) / 2 - c for a, b, c in zip(pos, neg, q0, strict=True)]
    else:
        r = [math.log(a / b) for a, b in zip(pos, neg, strict=True)]
        m = [(math.log(a) + math.log(b)) / 2 - math.log(c) for a, b, c in zip(pos, neg, q0, strict=True)]
        t, n = ([p[v] * (x[v] - sum(p[u] * x[u] for u in kept)) for v in range(len(p))] for x in (r, m))
    mean = lambda f: sum(p[v] * f(v) for v in kept)  # noqa: E731
    return [
        mean(lambda v: t[v]),
        mean(lambda v: n[v]),
        mean(lambda v: t[v] ** 2),
        mean(lambda v: n[v] ** 2),
        mean(lambda v: t[v] * n[v]),
        t[y],
        n[y],
    ]


def union(rows: list[list[float]], y: int, k: int | None) -> set[int]:
    words = range(len(rows[0]))
    if k is None:
        return set(words)
    return {y}.union(*(sorted(words, key=lambda v: -row[v])[:k] for row in rows))


@given(four(), st.sampled_from(FORMS), st.none() | st.integers(1, 3))
def test_moments_equal_a_plain_loop(data, form, top_k) -> None:
    """Seen failing with the reverse tangent's centre taken over all words under top_k."""
    logits, y = data
    found = losses.fisher_moments(*logits, y, divergence=form, top_k=top_k)
    for i, word in enumerate(y.tolist()):
        rows = [x[i].tolist() for x in logits]
        expected = slow_moments(rows, word, form, union(rows, word, top_k))
        np.testing.assert_allclose(found[i], expected, atol=1e-12)


@given(four(), st.sampled_from(FORMS), st.integers(1, 6), st.sampled_from([0.5, 1.0, 2.0]))
def test_chunks_and_the_temperature_are_those_of_whole_rows(data, form, chunk, temperature) -> None:
    logits, y = data
    whole = losses.fisher_moments(*(x / temperature for x in logits), y, divergence=form)
    parts = losses.fisher_moments(*logits, y, divergence=form, chunk=chunk, temperature=temperature)
    np.testing.assert_allclose(whole, parts, atol=1e-12)
    all_kept = losses.fisher_moments(*logits, y, divergence=form, top_k=6, temperature=temperature)
    np.testing.assert_allclose(whole, all_kept, atol=1e-12)


@given(four(), st.sampled_from(FORMS))
def test_the_probe_streams_the_same_moments(data, form) -> None:
    logits, y = data
    roles = dict(zip(("student", "none", "pos", "neg"), map(losses.log_softmax, logits), strict=True))
    streamed = FisherMoments("forward" if form == "forward_kl" else "reverse").of(roles, y)
    np.testing.assert_allclose(losses.fisher_moments(*logits, y, divergence=form), streamed, atol=1e-12)


@given(four())
def test_swapping_the_evidence_turns_the_task_and_keeps_the_presence(data) -> None:
    (student, none, pos, neg), y = data
    one, two = (
        losses.fisher_moments(student, none, pos, neg, y),
        losses.fisher_moments(student, none, neg, pos, y),
    )
    np.testing.assert_allclose(two, one * [-1, 1, 1, 1, -1, -1, 1], atol=1e-12)
    task, presence = losses.directions(none, pos, neg)
    np.testing.assert_allclose([task.sum(axis=1), presence.sum(axis=1)], 0, atol=1e-12)


ROW = np.zeros((1, 3))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"token_T": np.array([3])}, "3 words"),
        ({"pos_TV": ROW[:, :2]}, "do not fit"),
        ({"neg_TV": ROW + np.inf}, "must be finite"),
        ({"divergence": "kl"}, "forward_kl, reverse_kl"),
        ({"temperature": 0.0}, "temperature must be > 0"),
        ({"chunk": 0}, "chunk must be > 0"),
        ({"top_k": 0}, "top_k must be > 0"),
    ],
)
def test_slips_are_named(change: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = dict.fromkeys(("student_TV", "none_TV", "pos_TV", "neg_TV"), ROW)
    with pytest.raises(ac.AccreditError, match=words):
        losses.fisher_moments(**given | {"token_T": np.array([0])} | change)
