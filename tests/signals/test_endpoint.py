"""A back end behind a URL: the numbers of a recorded vLLM, and what hostile servers answer."""

from __future__ import annotations

import json
import logging
import traceback
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.errors import BackendError, BudgetExceeded, ParamError
from accredit.signals.client import Client, Limits
from accredit.signals.endpoint import Endpoint, entropy_bounds
from accredit.signals.request import ProbeRequest, Span, Want
from tests.signals.served import MODEL, completion, echoed, error, llamacpp, ok, serving, vllm

KEY = "sk-top-secret-1234567890"
QUICK = Limits(retries=2, timeout=2.0, concurrency=2)
PROMPT = [5, 17, 29, 3, 11, 43]
LOGPROB = Want(logprob=True)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.delenv("ACCREDIT_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("accredit.signals.client._FIRST_WAIT", 0.001)


def _request(ids=PROMPT, want=LOGPROB, start=2) -> ProbeRequest:
    return ProbeRequest(np.array(ids), (Span(0, start, start + 2), Span(1, start + 3, len(ids))), want)


def _scored(url: str, *requests: ProbeRequest, limits: Limits = QUICK, **options):
    found = {s.key: s for s in Endpoint(url, limits=limits, **options).score(requests)}
    return [found[r.key] for r in requests]


def _first_answer(url: str, **options) -> str:
    with pytest.raises(BackendError) as caught:
        _scored(url, _request(), **options)
    return str(caught.value)


def _completions(document) -> tuple:
    """Answer like vLLM, but completions of more than the first question's three tokens otherwise."""

    def respond(path, body):
        if path == "/v1/completions" and len(body["prompt"]) != 3:
            return document(body) if callable(document) else document
        return vllm(path, body)

    return respond


def _changed(change):
    def document(body):
        found = completion(body)
        change(found)
        return ok(found)

    return _completions(document)


# -- numbers ------------------------------------------------------------------------------------


def test_scores_of_a_recorded_vllm_are_those_of_the_model_behind_it():
    wants = (Want(logprob=True), Want(logprob=True, topk=4), Want(topk=1))
    requests = [_request(want=want) for want in wants] + [_request([9, 8, 7, 6, 5, 4, 3, 2])]
    with serving(vllm) as server:
        found = _scored(server.url, *requests)
    for mine, other in zip(found, MODEL.score(requests), strict=True):
        expected = other.arrays()
        assert expected.keys() == mine.arrays().keys()
        for name, values in mine.arrays().items():
            np.testing.assert_allclose(values, expected[name], rtol=1e-6)
            assert values.dtype == expected[name].dtype


@settings(max_examples=15)
@given(st.lists(st.integers(0, 49), min_size=4, max_size=12), st.integers(1, 5))
def test_the_chosen_token_is_looked_up_by_id_wherever_it_stands(ids, k):
    request = ProbeRequest(np.array(ids), (Span(0, 1, len(ids)),), Want(logprob=True, topk=k))
    with serving(vllm) as server:
        [mine] = _scored(server.url, request, dialect="vllm")
    [expected] = MODEL.score([request])
    np.testing.assert_allclose(mine.logprob, expected.logprob, rtol=1e-6)


def test_the_request_asks_for_the_whole_softmax_of_the_ids_that_were_given():
    with serving(vllm) as server:
        _scored(server.url, _request(want=Want(logprob=True, topk=4)))
    [body] = server.completions()
    assert PROMPT == body["prompt"]
    assert 4 == body["prompt_logprobs"]
    assert (1.0, 1.0, -1, 1.0) == tuple(
        body[name] for name in ("temperature", "top_p", "top_k", "repetition_penalty")
    )
    assert not [name for name in body if "truncate" in name]


def test_a_server_that_echoes_is_asked_to_and_names_no_other_ids():
    def respond(path, body):
        if path == "/v1/completions":
            return ok(echoed(body)) if body.get("echo") else error(400, type="invalid_request_error")
        return vllm(path, body)

    with serving(respond) as server:
        endpoint = Endpoint(server.url, limits=QUICK)
        [mine] = endpoint.score([_request()])
        assert frozenset({"logprob"}) == endpoint.offers
        assert "endpoint:echo" == endpoint.provenance.backend
        with pytest.raises(BackendError, match="gives no topk"):
            list(endpoint.score([_request(want=Want(topk=3))]))
    [expected] = MODEL.score([_request()])
    np.testing.assert_allclose(mine.logprob, expected.logprob, rtol=1e-6)


def test_llama_cpp_is_asked_token_by_token_and_gives_the_models_own_numbers():
    requests = [_request(), _request(want=Want(logprob=True, topk=3))]
    with serving(llamacpp) as server:
        endpoint = Endpoint(server.url, limits=QUICK)
        found = {s.key: s for s in endpoint.score(requests)}
        assert ("endpoint:llamacpp", "tiny.gguf") == (endpoint.provenance.backend, endpoint.provenance.model)
        assert (255, 50) == (endpoint.longest, endpoint.vocabulary)
        assert "né" == endpoint.decode(endpoint.encode("né"))
    for request, expected in zip(requests, MODEL.score(requests), strict=True):
        for name, values in found[request.key].arrays().items():
            np.testing.assert_allclose(values, expected.arrays()[name], rtol=1e-6)
    asked = [body for path, body, _ in server.asked if path == "/completion"][2:]
    assert sorted([PROMPT[:p] for p in (2, 3, 5)] * 2) == sorted(body["prompt"] for body in asked)


def test_a_server_that_shows_probabilities_after_the_bias_is_refused():
    with serving(lambda path, body: llamacpp(path, body, biased=True)) as server:
        assert "after the bias, not the model's own" in _first_answer(server.url)


def test_a_server_that_takes_another_token_is_refused():
    with serving(lambda path, body: llamacpp(path, body, obeys=False)) as server:
        assert "did not take the token that it was given" in _first_answer(server.url)


@pytest.mark.parametrize("want", ["entropy", "gradnorm", "hidden", "logits:3"])
def test_what_a_server_cannot_know_is_refused_with_the_reason(want):
    with serving(vllm) as server, pytest.raises(BackendError, match="gives no") as caught:
        _scored(server.url, _request(want=Want.parse(want)))
    assert "score with a local model" in str(caught.value)
    if want == "entropy":
        assert "entropy_bounds" in str(caught.value)


def test_provenance_names_model_server_and_version():
    with serving(vllm) as server:
        found = Endpoint(server.url, limits=QUICK).provenance
    assert ("org/tiny", "endpoint:vllm", "0.14.1", "raw") == (
        found.model,
        found.backend,
        found.version,
        found.mode,
    )


def test_a_model_named_by_a_path_of_the_server_is_asked_by_it_and_shown_by_its_last_part():
    """The last part alone was sent as well, and vLLM answered 404."""
    card = {"id": "/home/someone/models/tiny.gguf", "owned_by": "vllm"}

    def respond(path, body):
        return ok({"data": [card]}) if path == "/v1/models" else vllm(path, body)

    with serving(respond) as server:
        endpoint = Endpoint(server.url, limits=QUICK)
        assert "tiny.gguf" == endpoint.provenance.model
        list(endpoint.score([_request()]))
        endpoint.decode(endpoint.encode("x"))
    named = [body["model"] for _, body, _ in server.asked if body]
    assert {card["id"]} == set(named)
    assert 4 == len(named)


def test_text_goes_through_the_tokenizer_of_the_server():
    with serving(vllm) as server:
        endpoint = Endpoint(server.url, limits=QUICK)
        assert "né" == endpoint.decode(endpoint.encode("né"))
    bodies = [body for path, body, _ in server.asked if path == "/tokenize"]
    assert [False] == [body["add_special_tokens"] for body in bodies]


# -- bounds of the entropy ----------------------------------------------------------------------


@given(st.lists(st.floats(-8, 8), min_size=3, max_size=30), st.integers(1, 29))
def test_the_entropy_lies_between_its_bounds(logits, k):
    k = min(k, len(logits) - 1)
    logp = np.array(logits) - np.logaddexp.reduce(logits)
    entropy = -(np.exp(logp) * logp).sum()
    low, high = entropy_bounds(np.sort(logp)[::-1][None, :k], len(logits))
    assert low[0] - 1e-9 <= entropy <= high[0] + 1e-9


def test_bounds_of_a_certain_token_are_zero_and_of_equal_tokens_exact():
    low, high = entropy_bounds(np.log([[1.0], [0.25]]), 4)
    np.testing.assert_allclose([0, 0.25 * np.log(4) - 0.75 * np.log(0.75)], low, atol=1e-12)
    np.testing.assert_allclose([0, np.log(4)], high, atol=1e-12)
    with pytest.raises(ParamError, match="no bounds"):
        entropy_bounds(np.zeros((1, 4)), 4)


# -- hostile answers ----------------------------------------------------------------------------


def _shorter(found):
    found["choices"][0]["prompt_logprobs"].pop()


def _longer(found):
    found["choices"][0]["prompt_logprobs"].append({"1": {"logprob": -1.0}})


def _without_chosen(found):
    del found["choices"][0]["prompt_logprobs"][2][str(PROMPT[2])]


def _positive(found):
    found["choices"][0]["prompt_logprobs"][2][str(PROMPT[2])]["logprob"] = 3.5


def _word(found):
    found["choices"][0]["prompt_logprobs"][2][str(PROMPT[2])]["logprob"] = "-1"


def _by_text(found):
    found["choices"][0]["prompt_logprobs"][2] = {"hello": {"logprob": -1.0}}


def _null_row(found):
    found["choices"][0]["prompt_logprobs"][3] = None


def _other_ids(found):
    found["choices"][0]["prompt_token_ids"] = [1, *PROMPT[1:]]


def _with_bos(found):
    found["choices"][0].pop("prompt_token_ids")
    found["usage"]["prompt_tokens"] += 1


def _two_choices(found):
    found["choices"] *= 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_shorter, "5 prompt_logprobs for 6 tokens"),
        (_longer, "7 prompt_logprobs for 6 tokens"),
        (_without_chosen, "leaves out the token that stands at index 2"),
        (_positive, "index 2 has no log-probability"),
        (_word, "index 2 has no log-probability"),
        (_by_text, "not given by token id"),
        (_null_row, "index 3 has no log-probabilities"),
        (_other_ids, "other ids than were sent, first at index 0"),
        (_with_bos, "counts 7 prompt tokens, but 6 were sent"),
        (_two_choices, "one choice"),
    ],
)
def test_an_answer_that_does_not_fit_its_ids_is_refused(change, says):
    with serving(_changed(change)) as server:
        assert says in _first_answer(server.url, dialect="vllm")


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_none_are_refused(constant):
    def document(body):
        found = completion(body)
        found["choices"][0]["prompt_logprobs"][2][str(PROMPT[2])]["logprob"] = float(constant)
        return ok(found)

    with serving(_completions(document)) as server:
        assert "not JSON (NaN or Infinity in it)" in _first_answer(server.url)


def test_truncated_json_is_tried_again_and_then_refused():
    def document(body):
        return 200, {}, ok(completion(body))[2][:-20]

    with serving(_completions(document)) as server:
        assert "cut off or broken) (3 attempts)" in _first_answer(server.url)
    assert 3 == len(server.completions())


def test_a_body_that_ends_before_its_length_is_tried_again():
    def document(body):
        data = ok(completion(body))[2]
        return 200, {"Content-Length": str(len(data) + 50), "Connection": "close"}, data

    with serving(_completions(document)) as server:
        assert "the answer ends after" in _first_answer(server.url)


@pytest.mark.parametrize("promised", [True, False])
def test_a_huge_body_is_not_read(promised):
    def document(body):
        length = (
            {"Content-Length": str(10**12)} if promised else {"Content-Length": "", "Connection": "close"}
        )
        return 200, length, b" " * 300_000

    limits = Limits(retries=2, timeout=2.0, body=100_000)
    with serving(_completions(document)) as server:
        assert "larger than 100000 bytes" in _first_answer(server.url, limits=limits)
    assert 1 == len(server.completions())


def test_deep_nesting_is_refused():
    with serving(_completions((200, {}, b"[" * 200_000))) as server:
        assert "not JSON" in _first_answer(server.url)


@pytest.mark.parametrize("document", [b"[]", b"7", b'{"choices": {}}', b'{"choices": [7]}', b"null"])
def test_json_of_another_form_is_refused(document):
    with serving(_completions((200, {}, document))) as server:
        assert "one choice" in _first_answer(server.url)


def test_a_redirect_is_not_followed_with_the_key(monkeypatch):
    monkeypatch.setenv("ACCREDIT_API_KEY", KEY)
    with serving(vllm) as other:
        with serving(_completions((302, {"Location": other.url + "/completions"}, b""))) as server:
            assert "It redirects" in _first_answer(server.url)
        assert [] == other.asked


# -- retries, limits, budgets -------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_failure_is_tried_again(status):
    failures = iter([error(status, message="busy"), error(status, message="busy")])

    def document(body):
        return next(failures, None) or ok(completion(body))

    with serving(_completions(document)) as server:
        endpoint = Endpoint(server.url, limits=QUICK)
        [mine] = endpoint.score([_request()])
    [expected] = MODEL.score([_request()])
    np.testing.assert_allclose(mine.logprob, expected.logprob, rtol=1e-6)
    assert 2 == endpoint.spent.retries


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_a_refusal_is_not_tried_again(status):
    with serving(_completions(error(status, message="no", type="bad_thing", code=7))) as server:
        assert f"HTTP {status} (bad_thing)" in _first_answer(server.url)
    assert 1 == len(server.completions())


def test_more_tokens_than_vllm_shows_are_refused_with_its_switch():
    refusal = error(400, message="Requested prompt logprobs of 30", type="BadRequestError", code=400)
    with serving(_completions(refusal)) as server, pytest.raises(BackendError) as caught:
        _scored(server.url, _request(want=Want(topk=30)))
    assert "refuses topk:30" in str(caught.value)
    assert "--max-logprobs" in str(caught.value)


def test_waits_grow_and_follow_what_the_server_asks(monkeypatch):
    waits: list[float] = []
    with serving(lambda path, body: (429, {"Retry-After": "7"} if len(waits) == 2 else {}, b"")) as server:
        monkeypatch.setattr("accredit.signals.client._FIRST_WAIT", 0.5)
        client = Client(server.url, Limits(retries=4), waits.append)
        with pytest.raises(BackendError, match="HTTP 429 \\(5 attempts\\)"):
            client.post("/v1/completions", {})
    assert 7.0 == waits[2]
    for attempt, wait in enumerate(waits):
        if attempt != 2:
            assert 0.25 * 2**attempt <= wait <= 0.75 * 2**attempt


def test_a_server_that_is_not_there_is_told_apart_from_one_that_refuses():
    with serving(vllm) as server:
        url = server.url
    assert "no answer (ConnectionRefusedError) (3 attempts)" in _first_answer(url)


def test_a_slow_answer_is_given_up():
    import time

    def document(body):
        time.sleep(0.6)
        return ok(completion(body))

    with serving(_completions(document)) as server:
        says = _first_answer(server.url, limits=Limits(retries=0, timeout=0.2), dialect="vllm")
    assert "no whole answer within 0.2 s" in says


def test_at_most_so_many_requests_are_under_way():
    import threading
    import time

    lock, now, most = threading.Lock(), Counter(), Counter()

    def document(body):
        with lock:
            now["n"] += 1
            most["n"] = max(most["n"], now["n"])
        time.sleep(0.02)
        with lock:
            now["n"] -= 1
        return ok(completion(body))

    requests = [_request([i, 2, 3, 4, 5, 6]) for i in range(10)]
    with serving(_completions(document)) as server:
        _scored(server.url, *requests, limits=Limits(concurrency=3))
    assert 3 == most["n"]


def test_nothing_is_sent_beyond_the_budget_of_requests():
    requests = [_request([i, 2, 3, 4, 5, 6]) for i in range(10)]
    with serving(vllm) as server:
        # /v1/models, the first question, /version
        with pytest.raises(BudgetExceeded, match="budget of 6 requests"):
            _scored(server.url, *requests, limits=Limits(requests=6, concurrency=1))
        assert 6 == len(server.asked)


def test_nothing_is_sent_beyond_the_budget_of_tokens():
    requests = [_request([i, 2, 3, 4, 5, 6]) for i in range(10)]
    with serving(vllm) as server:
        with pytest.raises(BudgetExceeded, match="budget of 20 tokens"):
            _scored(server.url, *requests, limits=Limits(tokens=20, concurrency=1))
        assert 2 == len(server.completions())


def test_a_sequence_longer_than_the_context_is_refused_before_it_is_sent():
    with serving(lambda path, body: vllm(path, body, longest=6)) as server:
        assert "6 tokens is longer than the 5 that the server takes" in _first_answer(server.url)
        assert [] == server.completions()


# -- what must not be seen ----------------------------------------------------------------------


def _everything(caught, records) -> str:
    shown = "".join(traceback.format_exception(caught.value))
    return shown + repr(caught.value.__dict__) + "".join(f"{r.getMessage()} {r.__dict__}" for r in records)


@pytest.mark.parametrize("status", [400, 401, 500])
def test_neither_key_nor_prompt_enters_an_error_or_a_log(monkeypatch, caplog, status):
    """Servers repeat prompts and parts of keys in their sentences."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    words = {"message": f"Incorrect key {KEY} for prompt {PROMPT}", "type": KEY, "code": "invalid_api_key"}
    with serving(_completions((status, {}, json.dumps({"error": words}).encode()))) as server:
        endpoint = Endpoint(server.url, limits=QUICK)
        with pytest.raises(BackendError) as caught:
            list(endpoint.score([_request()]))
        shown = _everything(caught, caplog.records) + repr(endpoint) + repr(vars(endpoint))
    assert KEY not in shown
    assert "17, 29" not in shown
    assert "Incorrect key" not in shown
    assert "invalid_api_key" in shown
    assert f"Bearer {KEY}" == server.asked[-1][2]["Authorization"]


def test_the_key_is_that_of_accredit_first(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    monkeypatch.setenv("ACCREDIT_API_KEY", KEY + "\n")
    with serving(vllm) as server:
        _scored(server.url, _request())
    assert {f"Bearer {KEY}"} == {headers["Authorization"] for *_, headers in server.asked}


def test_without_a_key_none_is_sent():
    with serving(vllm) as server:
        _scored(server.url, _request())
    assert not [headers for *_, headers in server.asked if "Authorization" in headers]


def test_a_key_that_is_no_header_is_refused_without_being_shown(monkeypatch, caplog):
    monkeypatch.setenv("ACCREDIT_API_KEY", "sk-abc\r\nX-Evil: 1")
    with serving(vllm) as server, pytest.raises(ParamError, match="characters that no key has") as caught:
        _scored(server.url, _request())
    assert "sk-abc" not in _everything(caught, caplog.records)


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "ftp://h/v1",
        "http://",
        "http://user:pw@h/v1",
        "http://h/v1?key=secret",
        "http://h:99999/",
        "file:///etc",
    ],
)
def test_a_url_that_is_no_endpoint_is_refused_without_being_repeated(url):
    with pytest.raises(ParamError) as caught:
        Endpoint(url)
    assert not [word for word in ("pw", "secret") if word in str(caught.value)]


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"retries": -1}, "retries"),
        ({"concurrency": 0}, "concurrency"),
        ({"timeout": float("nan")}, "timeout"),
    ],
)
def test_limits_out_of_range_are_refused(values, name):
    with pytest.raises(ParamError, match=name):
        Limits(**values)


def test_a_server_without_log_probabilities_of_prompts_is_refused_with_what_was_tried():
    def respond(path, body):
        if path == "/v1/completions":
            return ok({"choices": [{"text": "x", "logprobs": None}]})
        return ok({"data": [{"id": "gpt-x", "owned_by": "somebody"}]}) if path == "/v1/models" else error(404)

    with serving(respond) as server:
        says = _first_answer(server.url)
    assert "gives no log-probabilities of given tokens" in says
    assert all(name in says for name in ("vllm:", "echo:", "llamacpp:"))


def test_of_several_models_one_must_be_named():
    cards = [{"id": "a", "owned_by": "vllm"}, {"id": "b", "owned_by": "vllm"}]

    def respond(path, body):
        return ok({"data": cards}) if path == "/v1/models" else vllm(path, body)

    with serving(respond) as server:
        with pytest.raises(ParamError, match="lists 2 models"):
            _scored(server.url, _request())
        _scored(server.url, _request(), model="b")
    assert "b" == server.completions()[-1]["model"]
