"""Rows of logits to numbers: plain loops beside them, pieces as the whole, memory bounded."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from accredit.signals import FakeBackend, ProbeRequest, Span, Want
from accredit.signals.batching import block_mask, buckets, packed
from accredit.signals.reductions import joined, reduced, row_pieces

WANT = Want(logprob=True, entropy=True, gradnorm=True, topk=3, logits=(0, 2))
logits = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.integers(3, 9)),
    elements=st.floats(-30, 30, width=32),
)


def _slow(row, token, temperature):
    """Log-probability, entropy and gradient norm of one row, by plain loops in float64."""
    z = [float(x) / temperature for x in row]
    total = sum(math.exp(x - max(z)) for x in z)
    log = [x - max(z) - math.log(total) for x in z]
    entropy = -sum(math.exp(x) * x for x in log)
    square = sum(((v == token) - math.exp(x)) ** 2 for v, x in enumerate(log))
    order = sorted(range(len(log)), key=lambda v: (-row[v], v))[:3]
    return log[token], entropy, square, order, [log[v] for v in order]


@given(logits, st.data(), st.sampled_from([1.0, 0.7, 2.0]))
def test_reductions_are_those_of_plain_loops(rows, data, temperature):
    chosen = np.array([data.draw(st.integers(0, rows.shape[1] - 1)) for _ in rows])
    found = reduced(rows.copy(), chosen, WANT, temperature)
    for i, (row, token) in enumerate(zip(rows, chosen.tolist(), strict=True)):
        logprob, entropy, square, order, top = _slow(row, token, temperature)
        np.testing.assert_allclose(found["logprob"][i], logprob, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found["entropy"][i], entropy, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found["gradnorm"][i], square, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(found["topk_logprobs"][i], top, rtol=1e-5, atol=1e-5)
        shifted = (row - row.max()).tolist()  # rounds logits to one that float32 cannot tell apart there
        if temperature == 1.0:  # a division may round two logits to one
            assert order == found["topk_ids"][i].tolist() or len(set(shifted)) < len(row)
        np.testing.assert_array_equal(rows[i, [0, 2]], found["logits"][i])


@given(logits, st.integers(1, 7))
def test_pieces_of_rows_give_what_the_whole_gives(rows, size):
    chosen = np.arange(len(rows)) % rows.shape[1]
    whole = reduced(rows.copy(), chosen, WANT)
    parts = joined(reduced(rows[s].copy(), chosen[s], WANT) for s in row_pieces(len(rows), size))
    assert whole.keys() == parts.keys()
    for name in whole:
        np.testing.assert_allclose(whole[name], parts[name], rtol=1e-6, err_msg=name)


@given(st.integers(0, 2**31), st.integers(2, 40))
def test_the_chosen_logprob_averages_to_minus_the_entropy_under_the_distribution(seed, size):
    row = np.random.default_rng(seed).normal(size=(1, size)).astype(np.float32) * 3
    found = reduced(np.repeat(row, size, 0), np.arange(size), Want(logprob=True, entropy=True))
    p = np.exp(found["logprob"].astype(np.float64))
    np.testing.assert_allclose(found["entropy"][0], -(p * found["logprob"]).sum(), rtol=1e-4, atol=1e-6)


def test_8k_tokens_of_a_vocabulary_of_150k_need_less_than_a_tenth_of_their_logits():
    """Whole, the logits alone would be 8,192 x 150,000 float32 = 4.9 GB."""
    vocabulary, tokens = 150_000, 8_192
    fake = FakeBackend(vocabulary, width=2)
    ask = ProbeRequest(np.arange(tokens + 1), (Span(0, 1, tokens + 1),), Want(logprob=True, entropy=True))
    tracemalloc.start()
    try:
        [scores] = fake.score([ask])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (tokens,) == scores.logprob.shape
    assert peak < 4 * vocabulary * tokens / 10
    assert np.all((scores.entropy > 0) & (scores.entropy < math.log(vocabulary)))


# -- rows and buckets -----------------------------------------------------------------------------

asks = st.lists(
    st.builds(
        lambda prefix, tail, cut: ProbeRequest(
            np.array([*prefix, *tail]),
            (Span(0, len(prefix), len(prefix) + min(cut, len(tail))),),
            Want(logprob=True),
        ),
        st.lists(st.integers(0, 2), min_size=1, max_size=3),
        st.lists(st.integers(0, 9), max_size=6),
        st.integers(1, 6),
    ),
    max_size=8,
)


@given(asks, st.integers(1, 30), st.booleans())
def test_rows_hold_every_request_once_and_its_own_ids_in_its_own_places(requests, budget, share):
    rows = packed(requests, budget, share=share)
    held = [i for row in rows for i in row.members]
    assert sorted(held) == [i for i, r in enumerate(requests) if r.positions.size]
    for row in rows:
        ids, places = row.ids(), row.places()
        for tail, i in enumerate(row.members):
            upto = np.arange(requests[i].positions[-1] + 1)
            at = row.index_of(tail, upto)
            np.testing.assert_array_equal(requests[i].ids[upto], ids[at])
            np.testing.assert_array_equal(upto, places[at])


@given(asks, st.integers(1, 30))
def test_a_token_sees_its_own_request_up_to_itself_and_nothing_else(requests, budget):
    for bucket in buckets(packed(requests, budget), budget):
        length = max(row.length for row in bucket)
        mask = block_mask(bucket, length)
        if mask is None:
            assert all(len(row.members) == 1 for row in bucket)
            continue
        for b, row in enumerate(bucket):
            for tail, i in enumerate(row.members):
                at = row.index_of(tail, np.arange(requests[i].positions[-1] + 1))
                for n, place in enumerate(at):
                    assert set(np.flatnonzero(mask[b, 0, place])) == set(at[: n + 1].tolist())


@given(asks, st.integers(1, 30))
def test_buckets_stay_in_the_budget_unless_a_single_row_is_larger(requests, budget):
    for bucket in buckets(packed(requests, budget), budget):
        assert len(bucket) == 1 or len(bucket) * max(row.length for row in bucket) <= budget
