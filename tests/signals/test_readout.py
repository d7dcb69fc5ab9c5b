"""Readouts of answers: whole answers on shared prefixes, apart from each other, at every step."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.errors import DataError, ParamError
from accredit.signals.answers import answer_clusters, evidence_of, reference_logprobs
from accredit.signals.fake import FakeBackend
from accredit.signals.readout import (
    Frame,
    candidate_logprobs,
    continuation_logprobs,
    exact_match,
    score_continuations,
    step_prefixes,
)
from accredit.signals.request import ProbeRequest, Span, Want
from tests.signals.toy import SIZE, Remembering, Toy, batch, chat, record

FAKE = Remembering(vocabulary=SIZE, seed=2)
FRAME = Frame(before="\nAnswer: ", after="<|im_end|>")
END = Toy().encode("<|im_end|>")[0]
IDS = st.lists(st.integers(0, 19), min_size=1, max_size=6)


def _sum_by_hand(backend: FakeBackend, prefix: list[int], ids: list[int]) -> float:
    """Oracle: one distribution at a time."""
    total = 0.0
    for n in range(len(ids)):
        before = np.array([*prefix, *ids[:n], ids[n]])
        ask = ProbeRequest(before, (Span(0, before.size - 1, before.size),), Want(logprob=True))
        total += float(next(iter(backend.score([ask]))).logprob[0])
    return total


@given(IDS, st.lists(IDS, min_size=1, max_size=4))
def test_a_continuation_scores_the_sum_of_its_tokens_whatever_the_others_are(prefix, candidates):
    backend = Remembering(vocabulary=20, seed=5)
    found = score_continuations(backend, np.array(prefix), [np.array(c) for c in candidates])
    expected = [_sum_by_hand(backend, prefix, c) for c in candidates]
    np.testing.assert_allclose(expected, found, rtol=1e-5)


def test_all_continuations_of_one_token_are_a_distribution():
    backend = Remembering(vocabulary=20, seed=5)
    found = score_continuations(backend, np.array([3, 1]), [np.array([i]) for i in range(20)])
    assert 1 == pytest.approx(np.exp(found).sum(), rel=1e-5)


def test_prefixes_that_recur_are_asked_once():
    asked = []

    class Counting(Remembering):
        def score(self, requests):
            asked.append(len(requests))
            return super().score(requests)

    one, two = np.array([1, 2]), [np.array([3]), np.array([4, 5])]
    found = continuation_logprobs(Counting(vocabulary=20), [(one, two), (one, two), (np.array([7]), two)])
    assert [4] == asked
    np.testing.assert_array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize(("prefix", "ids"), [([], [1]), ([1], [])])
def test_nothing_before_or_after_is_refused(prefix, ids):
    with pytest.raises(DataError, match="at least one token"):
        score_continuations(FAKE, np.array(prefix, int), [np.array(ids, int)])


# -- prefixes -----------------------------------------------------------------------------------


def _two_turns(name: str, answers=("go<|im_end|>", "stop<|im_end|>"), **fields):
    first = chat(("user", "q"))
    second = first + answers[0] + "\n<|im_start|>user\nmore?<|im_end|>\n<|im_start|>assistant\n"
    return record(name, [first, second], list(answers), **fields)


def test_prefixes_are_the_prompt_and_what_stood_after_each_step():
    toy = Toy()
    rollouts = batch(_two_turns("a"), record("b", [chat(("user", x)) for x in "xy"], ["1", "2"]))
    texts = {r: [toy.decode(p) for p in prefixes] for r, prefixes in step_prefixes(rollouts)}
    first = chat(("user", "q"))
    second = first + "go<|im_end|>\n<|im_start|>user\nmore?<|im_end|>\n<|im_start|>assistant\nstop<|im_end|>"
    assert [first, first + "go<|im_end|>", second] == texts[0]
    # Calls with prompts of their own: each prefix is that call's.
    assert [chat(("user", "x")), chat(("user", "x")) + "1", chat(("user", "y")) + "2"] == texts[1]


def test_an_empty_step_keeps_its_place():
    made = _two_turns("a", ("", "stop<|im_end|>"))
    [(_, prefixes)] = step_prefixes(batch(made))
    assert 3 == len(prefixes)
    np.testing.assert_array_equal(prefixes[0], prefixes[1])


def test_a_rollout_without_ids_or_context_has_no_prefixes():
    made = [_two_turns("a"), _two_turns("b"), _two_turns("c")]
    del made[0]["steps"][1]["tokens"]
    del made[1]["steps"][0]["prompt_tokens"]
    found = dict(step_prefixes(ac.Batch.from_records(made)))
    assert [None, None, 3] == [p if p is None else len(p) for p in found.values()]


# -- dcsd's candidates --------------------------------------------------------------------------


def test_candidates_are_gold_first_then_the_groups_answers_at_every_boundary():
    rollouts = batch(
        _two_turns("a", answer="six", gold="seven"),
        _two_turns("b", answer="Seven.", gold="seven"),
        _two_turns("c", answer="six", group="alone"),
        _two_turns("d", gold="x", group="none"),
    )
    found = candidate_logprobs(rollouts, FAKE, Toy(), frame=FRAME)
    column = found.column("candidate_logprobs_R")
    assert [True, True, False, False] == column.mask(4).tolist()
    rows = column.item(0)
    assert (3, 2) == (len(rows), len(rows[0]))
    toy = Toy()
    prefixes = dict(step_prefixes(rollouts))[0]
    for prefix, row in zip(prefixes, rows, strict=True):
        start = [*(prefix[:-1] if prefix[-1] == END else prefix), *toy.encode(FRAME.before)]
        for answer, value in zip(("seven", "six"), row, strict=True):
            ids = toy.encode(answer + "<|im_end|>").tolist()
            assert _sum_by_hand(FAKE, start, ids) == pytest.approx(value, rel=1e-5)
    assert ("readout", "\nAnswer: ") == tuple(column.provenance[k] for k in ("context", "before"))


def test_candidates_of_ones_own_and_another_sense_of_equal():
    rollouts = batch(_two_turns("a", answer="6", gold="six"))
    same = {frozenset({"6", "six"})}
    found = candidate_logprobs(rollouts, FAKE, Toy(), same=lambda a, b: a == b or frozenset({a, b}) in same)
    assert not found.column("candidate_logprobs_R").mask(1).any()
    found = candidate_logprobs(rollouts, FAKE, Toy(), candidates=lambda batch, r: ["five", "four"])
    assert [3, 3, 3] == [len(row) for row in found.column("candidate_logprobs_R").item(0)]


def test_candidates_survive_a_file(tmp_path):
    rollouts = batch(_two_turns("a", answer="six", gold="seven"), _two_turns("b", answer="six"))
    found = candidate_logprobs(rollouts, FAKE, Toy())
    again = ac.Batch.from_records(found.records())
    assert found.column("candidate_logprobs_R").item(0) == again.column("candidate_logprobs_R").item(0)


# -- siop's clusters, references, evidence ------------------------------------------------------


def _clusters_by_hand(answers, same):
    """Oracle: the published loop over unassigned answers."""
    found = [None] * len(answers)
    n = 0
    for i in range(len(answers)):
        if found[i] is None and answers[i]:
            found[i] = n
            for j in range(i + 1, len(answers)):
                if found[j] is None and answers[j] and same(answers[i], answers[j]):
                    found[j] = n
            n += 1
    return found


@given(st.lists(st.sampled_from(["", "ab", "AB ", "abc", "b", "bc."]), min_size=1, max_size=8))
def test_clusters_are_greedy_in_rollout_order(answers):
    """With an equivalence that is not transitive, the order decides."""

    def same(a, b):
        return bool(set(a.lower()) & set(b.lower()))

    rollouts = batch(*(_two_turns(str(i), answer=a or None) for i, a in enumerate(answers)))
    for rule in (same, exact_match):
        column = answer_clusters(rollouts, rule).column("answer_cluster_R")
        there = column.mask(len(answers))
        got = [column.item(i) if there[i] else None for i in range(len(answers))]
        assert _clusters_by_hand(answers, rule) == got


def test_clusters_are_those_of_a_group():
    rollouts = batch(*(_two_turns(n, answer="x", group=n) for n in "ab"))
    assert [0, 0] == answer_clusters(rollouts).answer_cluster_R.tolist()


def test_references_are_the_first_distinct_answers_of_the_cluster():
    said = ["Rome", "rome", "Paris", "ROME", "rome."]
    rollouts = answer_clusters(batch(*(_two_turns(str(i), answer=a) for i, a in enumerate(said))))
    found = reference_logprobs(rollouts, FAKE, Toy(), num_refs=2, frame=FRAME)
    column = found.column("ref_logprobs_R")
    item = column.item(4)
    assert [0.5, 0.5] == [weight for weight, _ in item["baseline"]]
    assert [1.0] == [weight for weight, _ in column.item(2)["baseline"]]
    toy = Toy()
    prefixes = dict(step_prefixes(rollouts))[4]
    for prefix, pairs in zip(prefixes, [item["baseline"], *item["after_step"]], strict=True):
        start = [*(prefix[:-1] if prefix[-1] == END else prefix), *toy.encode(FRAME.before)]
        for answer, (_, value) in zip(("Rome", "rome"), pairs, strict=True):
            ids = toy.encode(answer).tolist()
            expected = _sum_by_hand(FAKE, start, ids) / len(ids)
            assert expected == pytest.approx(value, rel=1e-5)


def test_siop_reads_what_the_readout_writes():
    rollouts = batch(
        _two_turns("a", answer="rome"),
        _two_turns("b", answer="rome"),
        _two_turns("c", answer="paris"),
        _two_turns("d"),
    )
    found = reference_logprobs(answer_clusters(rollouts), FAKE, Toy())
    credit = ac.assign(found, "siop", eta=0.0)
    [rewards] = [credit.extras["turn_reward"]]
    for r, q in ((0, 2 / 3), (2, 1 / 3)):
        item = found.column("ref_logprobs_R").item(r)
        support = [math.exp(refs[0][1]) + 1e-8 for refs in (item["baseline"], *item["after_step"])]
        first = q * math.log(support[1] / support[0])
        assert first == pytest.approx(rewards[found.step_start_R1[r]], rel=1e-5)
    assert {0.0} == set(rewards[6:].tolist())


def test_evidence_is_a_judges_number_for_each_observation_of_a_rollout_with_an_answer():
    made = _two_turns("a", answer="Rome")
    made["steps"][0]["observation"] = "rome " * 1000
    rollouts = answer_clusters(batch(made, _two_turns("b", answer="rome."), _two_turns("c")))
    asked = []

    def judge(observation: str, answer: str) -> float:
        asked.append((len(observation), answer))
        return 0.25

    found = evidence_of(rollouts, judge).column("evidence_R")
    assert [[0.25], []] == [found.item(0), found.item(1)]
    assert [True, True, False] == found.mask(3).tolist()
    assert [(2000, "Rome")] == asked
    with pytest.raises(DataError, match="not a probability"):
        evidence_of(rollouts, lambda observation, answer: 2.0)


def test_clusters_come_first():
    rollouts = batch(_two_turns("a", answer="x"))
    with pytest.raises(DataError, match="answer_clusters first"):
        reference_logprobs(rollouts, FAKE, Toy())
    with pytest.raises(DataError, match="answer_clusters first"):
        evidence_of(rollouts, lambda observation, answer: 1.0)
    with pytest.raises(ParamError, match="at least 1"):
        reference_logprobs(answer_clusters(rollouts), FAKE, Toy(), num_refs=0)
