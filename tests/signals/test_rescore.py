"""`probe`: positions, spans, columns, what is refused and what is left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.data import Batch
from accredit.errors import BackendError, DataError, ParamError
from accredit.signals import (
    CONTEXT,
    Context,
    FakeBackend,
    Passage,
    Precomputed,
    ProbeRequest,
    Segment,
    Span,
    Want,
)
from accredit.signals.passages import passages_of
from accredit.store.batches import load_parquet, save_batch
from tests.dear import dear
from tests.signals.asking import VOCABULARY, rollouts, said

ALL = "logprob,entropy,gradnorm,hidden_at,hidden_before"


def _batch(*steps, **more):
    return Batch.from_records([{"id": "a", "group": "g", "reward": 1.0, "steps": list(steps), **more}])


# -- numbers --------------------------------------------------------------------------------------


@dear
@given(rollouts(), st.sampled_from([1.0, 0.5, 2.0]), st.integers(1, 40))
def test_every_token_gets_what_the_model_says_after_the_ids_that_stood_before_it(records, temperature, size):
    fake = FakeBackend(VOCABULARY, temperature=temperature)
    fake.batch_tokens = size
    batch = Batch.from_records(records)
    scored = ac.probe(batch, fake, ALL)
    expected = said(fake, records)
    if batch.n_tokens:
        names = ("logprob_T", "entropy_T", "gradnorm_T", "hidden_before_T", "hidden_T")
        for name, values in zip(names, expected, strict=True):
            np.testing.assert_allclose(values, getattr(scored, name), rtol=1e-4, atol=2e-6, err_msg=name)
            assert scored.column(name).valid is None


@dear
@given(rollouts())
def test_top_k_of_the_whole_vocabulary_is_the_distribution(records):
    scored = ac.probe(Batch.from_records(records), FakeBackend(VOCABULARY), f"logprob,topk:{VOCABULARY}")
    if not scored.n_tokens:
        return
    assert np.all(np.sort(scored.topk_ids_T, axis=1) == np.arange(VOCABULARY))
    assert np.all(np.diff(scored.topk_logprobs_T, axis=1) <= 0)
    np.testing.assert_allclose(1, np.exp(scored.topk_logprobs_T).sum(1), rtol=1e-5)
    mine = scored.topk_logprobs_T[scored.topk_ids_T == scored.token_T[:, None]]
    np.testing.assert_allclose(scored.logprob_T, mine, rtol=1e-6)


def test_the_temperature_divides_logits_but_not_those_that_are_returned():
    batch = _batch({"prompt_tokens": [1, 2], "tokens": [3, 4]})
    warm, cold = (ac.probe(batch, FakeBackend(7, temperature=t), "logprob,logits:3/4") for t in (2.0, 1.0))
    np.testing.assert_array_equal(warm.logits_T, cold.logits_T)
    assert not np.allclose(warm.logprob_T, cold.logprob_T / 2)
    assert 2.0 == warm.column("logprob_T").provenance["temperature"]


# -- positions and segments -----------------------------------------------------------------------


def test_a_span_at_index_0_is_refused_because_nothing_predicts_it():
    with pytest.raises(DataError, match=r"ACC751.*nothing predicts"):
        ProbeRequest(np.arange(3), (Span(0, 0, 2),), Want(logprob=True))


@pytest.mark.parametrize("spans", [(Span(0, 2, 4),), (Span(0, 2, 3), Span(1, 1, 2)), (Span(0, 2, 1),)])
def test_spans_that_do_not_fit_are_refused(spans):
    with pytest.raises(DataError, match="does not fit"):
        ProbeRequest(np.arange(3), spans, Want(logprob=True))


def test_a_rollout_without_prompt_is_left_out_with_a_finding_and_the_others_are_scored():
    whole = {"id": "a", "reward": 1.0, "steps": [{"prompt_tokens": [1], "tokens": [2]}]}
    bare = {"id": "b", "reward": 0.0, "steps": [{"tokens": [2]}, {"context_tokens": [1], "tokens": [3]}]}
    scored = ac.probe(Batch.from_records([whole, bare]), FakeBackend(), "logprob")
    assert [True, False, False] == scored.column("logprob_T").valid.tolist()
    [finding] = scored.findings[-1:]
    assert ("ACC751", 2, ("rollout 'b' step 0", "rollout 'b' step 1")) == (
        finding.code, finding.count, finding.examples
    )  # fmt: skip
    with pytest.raises(DataError, match=r"ACC753: none of 1 rollouts"):
        ac.probe(Batch.from_records([bare]), FakeBackend(), "logprob")


def test_steps_after_one_whose_ids_are_unknown_are_missing_until_the_context_is_whole_again():
    steps = [
        {"prompt_tokens": [1, 2], "tokens": [3]},
        {"context_tokens": [4], "n_tokens": 2},
        {"context_tokens": [4], "tokens": [5]},
        {"prompt_tokens": [6, 6], "tokens": [1]},
    ]
    scored = ac.probe(_batch(*steps), FakeBackend(), "logprob")
    assert [True, False, False, True] == scored.column("logprob_T").valid.tolist()
    assert "ACC753" in {f.code for f in scored.findings}


def test_an_empty_step_is_scored_and_has_no_number():
    steps = [{"prompt_tokens": [1], "tokens": []}, {"context_tokens": [2], "tokens": [3]}]
    scored = ac.probe(_batch(*steps), FakeBackend(), "logprob,entropy,hidden")
    assert (1, 4) == scored.hidden_T.shape
    assert scored.column("logprob_T").valid is None


def test_two_calls_in_one_turn_stand_behind_each_other_without_context_between():
    both = _batch({"prompt_tokens": [1, 2], "tokens": [3]}, {"context_tokens": [], "tokens": [4, 5]})
    one = _batch({"prompt_tokens": [1, 2], "tokens": [3, 4, 5]})
    a, b = (ac.probe(batch, FakeBackend(), "logprob") for batch in (both, one))
    np.testing.assert_array_equal(a.logprob_T, b.logprob_T)
    assert [(0, 1)] == [passage.steps for passage in passages_of(both)[0]]


def test_a_template_that_drops_earlier_thoughts_makes_a_passage_of_its_own():
    """The prompt of the second turn lacks ids 8, 9 of the first answer: what was read counts."""
    steps = [
        {"prompt_tokens": [1, 2], "tokens": [8, 9, 3]},
        {"prompt_tokens": [1, 2, 3, 4], "tokens": [5]},
        {"prompt_tokens": [1, 2, 3, 4, 5, 6], "tokens": [7]},
    ]
    batch = _batch(*steps)
    assert [(0,), (1, 2)] == [passage.steps for passage in passages_of(batch)[0]]
    scored = ac.probe(batch, FakeBackend(), "logprob")
    alone = ac.probe(_batch(steps[1]), FakeBackend(), "logprob")
    np.testing.assert_allclose(alone.logprob_T[0], scored.logprob_T[3], rtol=1e-6)


def test_ids_that_a_tokenizer_would_merge_otherwise_are_scored_as_they_were_sampled():
    """A sampler may emit HAV|ING where the tokenizer gives H|AVING: nothing is tokenised again."""

    class Merging:
        pieces = ("H", "AVING", "HAV", "ING", " ")

        def decode(self, tokens):
            return "".join(self.pieces[i] for i in tokens)

        def encode(self, text):
            return {"HAVING": [0, 1]}[text]

    tokenizer = Merging()
    assert [0, 1] == tokenizer.encode(tokenizer.decode([2, 3]))
    sampled, merged = (_batch({"prompt_tokens": [4], "tokens": t}) for t in ([2, 3], [0, 1]))
    fake = FakeBackend(5)
    fake.tokenizer = tokenizer
    scored = ac.probe(sampled, fake, "logprob")
    np.testing.assert_array_equal([2, 3], scored.token_T)
    request = ProbeRequest(np.array([4, 2, 3]), (Span(0, 1, 3),), Want(logprob=True))
    np.testing.assert_allclose(next(fake.score([request])).logprob, scored.logprob_T, rtol=1e-6)
    assert not np.allclose(scored.logprob_T, ac.probe(merged, fake, "logprob").logprob_T)


# -- contexts -------------------------------------------------------------------------------------


def _told(batch, passage):
    if batch.ids[passage.rollout] == "b":
        return None
    return Passage(passage.rollout, (Segment(np.array([6, 6])), *passage.segments))


@dear
@given(rollouts())
def test_an_edited_context_changes_what_stands_before_and_never_the_response(records):
    batch = Batch.from_records(records)
    scored = ac.probe(batch, FakeBackend(VOCABULARY), "logprob", context=Context("mine", _told))
    for record in records:
        for step in record["steps"]:
            step["prompt_tokens"] = [6, 6, *step["prompt_tokens"]]
    expected = said(FakeBackend(VOCABULARY), records)[0]
    if batch.n_tokens:
        np.testing.assert_allclose(expected, scored.logprobs_mine_T, rtol=1e-4)


def test_a_rollout_without_that_context_is_missing_and_counted():
    records = [{"id": i, "reward": 1.0, "steps": [{"prompt_tokens": [1], "tokens": [2]}]} for i in "ab"]
    scored = ac.probe(Batch.from_records(records), FakeBackend(), "logprob", context=Context("mine", _told))
    assert [True, False] == scored.column("logprobs_mine_T").valid.tolist()
    assert "1 rollouts have nothing for context 'mine'" == scored.findings[-1].message


def test_a_context_that_changes_policy_tokens_is_refused():
    def edit(batch, passage):
        changed = [s if s.step == CONTEXT else Segment(s.ids + 1, s.step) for s in passage.segments]
        return Passage(passage.rollout, tuple(changed))

    with pytest.raises(DataError, match="ACC752"):
        ac.probe(
            _batch({"prompt_tokens": [1], "tokens": [2]}),
            FakeBackend(),
            "logprob",
            context=Context("x", edit),
        )


# -- columns --------------------------------------------------------------------------------------


def test_what_the_sampler_recorded_is_never_replaced_and_a_probe_replaces_its_own():
    batch = _batch({"prompt_tokens": [1], "tokens": [2], "logprobs": [-0.25]})
    once = ac.probe(batch, FakeBackend(seed=0))
    twice = ac.probe(once, FakeBackend(seed=1))
    assert [-0.25] == twice.logprob_T.tolist()
    assert once.probe_logprob_T != twice.probe_logprob_T
    assert once.entropy_T != twice.entropy_T
    assert "probe_entropy_T" not in twice.columns


def test_columns_say_where_they_come_from_and_survive_a_file(tmp_path):
    batch = _batch({"prompt_tokens": [1], "tokens": [2, 3]}, {"prompt_tokens": [3], "tokens": []})
    scored = ac.probe(batch, FakeBackend(), "logprob,topk:2,hidden,logits:1", hidden_dtype="float16")
    made = scored.column("hidden_T").provenance
    assert ("fake", "float32", "sampled") == (made["backend"], made["dtype"], made["context"])
    assert np.float16 == scored.hidden_T.dtype
    again = load_parquet(save_batch(scored, tmp_path / "scored.parquet"))
    assert again == scored
    assert made == again.column("hidden_T").provenance
    assert (
        ac.read(str(save_batch(scored, tmp_path / "scored.jsonl"))).hidden_T.tolist()
        == scored.hidden_T.tolist()
    )


class _Counting(FakeBackend):
    asked = 0

    def score(self, requests):
        self.asked += len(requests)
        yield from super().score(requests)


def test_identical_requests_are_scored_once_and_all_get_the_numbers():
    step = {"prompt_tokens": [1, 2], "tokens": [3]}
    records = [{"id": str(i), "reward": 1.0, "steps": [step, step]} for i in range(5)]
    fake = _Counting()
    scored = ac.probe(Batch.from_records(records), fake, "logprob")
    assert 1 == fake.asked
    assert 1 == np.unique(scored.logprob_T).size


# -- refusals -------------------------------------------------------------------------------------


def test_a_batch_without_ids_is_refused_by_what_it_lacks():
    for step, lacks in (
        ({"n_tokens": 2}, "no tokens"),
        ({"tokens": [1]}, "no prompt_tokens or context_tokens"),
    ):
        with pytest.raises(DataError, match=f"ACC753.*{lacks}"):
            ac.probe(_batch(step), FakeBackend(), "logprob")


@pytest.mark.parametrize("want", ["", "logprobs", "topk:0", "topk", "logprob:3", "logits:a"])
def test_wants_that_mean_nothing_are_refused(want):
    with pytest.raises(ParamError):
        Want.parse(want)


@given(
    st.builds(
        Want,
        logprob=st.booleans(),
        entropy=st.booleans(),
        gradnorm=st.booleans(),
        topk=st.integers(0, 9),
        logits=st.lists(st.integers(0, 9), max_size=3).map(tuple),
        hidden_at=st.none() | st.integers(-3, 3),
        hidden_before=st.none() | st.integers(-3, 3),
    )
)
def test_a_want_reads_back_what_it_prints(want):
    if want.kinds:
        assert want == Want.parse(str(want))


def test_what_a_back_end_does_not_offer_is_refused_before_it_is_asked():
    batch = _batch({"prompt_tokens": [1], "tokens": [2], "logprobs": [-0.5]})
    with pytest.raises(BackendError, match="ACC755: recorded does not give entropy"):
        ac.probe(batch, Precomputed(batch), "entropy")


def test_recorded_numbers_come_back_for_the_same_ids_and_no_others():
    batch = _batch({"prompt_tokens": [1], "tokens": [2, 3], "logprobs": [-0.5, -0.25]})
    scored = ac.probe(batch, Precomputed(batch), "logprob")
    assert [-0.5, -0.25] == scored.probe_logprob_T.tolist()
    with pytest.raises(BackendError, match="not among the recorded"):
        ac.probe(_batch({"prompt_tokens": [2], "tokens": [2, 3]}), Precomputed(batch), "logprob")


def test_a_token_outside_the_models_vocabulary_is_refused():
    with pytest.raises(BackendError, match="ACC755"):
        ac.probe(_batch({"prompt_tokens": [1], "tokens": [99]}), FakeBackend(5), "logprob")
