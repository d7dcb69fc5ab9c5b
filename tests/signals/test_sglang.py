"""SGLang's way of giving log-probabilities: its sources' shapes, and answers that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

from accredit.errors import BackendError, ParamError
from accredit.signals.client import Limits
from accredit.signals.endpoint import Endpoint
from accredit.signals.request import ProbeRequest, Span, Want
from tests.signals.served import MODEL, generated, ok, serving, sglang

QUICK = Limits(retries=0, timeout=2.0, concurrency=2)
PROMPT = [5, 17, 29, 3, 11, 43]
LOGPROB = Want(logprob=True)


@pytest.fixture(autouse=True)
def _no_key(monkeypatch):
    monkeypatch.delenv("ACCREDIT_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def _request(ids=PROMPT, want=LOGPROB, start=2) -> ProbeRequest:
    return ProbeRequest(np.array(ids), (Span(0, start, start + 2), Span(1, start + 3, len(ids))), want)


def _asked(server) -> list:
    return [body for path, body, _ in server.asked if path == "/generate" and len(body["input_ids"]) > 3]


def _changed(change):
    """Answer like SGLang, but what follows its first question of three tokens otherwise."""

    def respond(path, body):
        if path != "/generate" or len(body["input_ids"]) == 3:
            return sglang(path, body)
        found = generated(body)
        change(found["meta_info"], found)
        return ok(found)

    return respond


def _refusal(respond, want=LOGPROB, **options) -> str:
    with serving(respond) as server, pytest.raises(BackendError) as caught:
        list(Endpoint(server.url, limits=QUICK, **options).score([_request(want=want)]))
    return str(caught.value)


def test_a_server_that_owns_its_models_as_sglang_is_asked_in_its_way():
    wants = (LOGPROB, Want(logprob=True, topk=4), Want(topk=1))
    requests = [*(_request(want=want) for want in wants), _request([9, 8, 7, 6, 5, 4, 3, 2], start=4)]
    with serving(sglang) as server:
        endpoint = Endpoint(server.url, limits=QUICK)
        found = {s.key: s for s in endpoint.score(requests)}
        made = endpoint.provenance
        assert ("org/tiny", "endpoint:sglang", "0.5.23") == (made.model, made.backend, made.version)
        assert 511 == endpoint.longest
        assert "/v1/completions" not in [path for path, *_ in server.asked]
    for request, expected in zip(requests, MODEL.score(requests), strict=True):
        mine = found[request.key].arrays()
        assert expected.arrays().keys() == mine.keys()
        for name, values in mine.items():
            np.testing.assert_allclose(values, expected.arrays()[name], rtol=1e-6)


def test_a_server_that_says_nothing_of_itself_is_asked_in_this_way_before_echo():
    def respond(path, body):
        card = {"id": "org/tiny", "owned_by": "somebody"}
        return ok({"data": [card]}) if path == "/v1/models" else sglang(path, body)

    with serving(respond) as server:
        assert "endpoint:sglang" == Endpoint(server.url, limits=QUICK).provenance.backend
        assert not [body for _, body, _ in server.asked if body and "echo" in body]


def test_rows_are_asked_for_from_the_token_before_the_first_and_with_the_whole_softmax():
    with serving(sglang) as server:
        list(Endpoint(server.url, limits=QUICK, dialect="sglang").score([_request(want=Want(topk=3))]))
        [body] = _asked(server)
    assert (PROMPT, 1, 3, True) == tuple(
        body[name] for name in ("input_ids", "logprob_start_len", "top_logprobs_num", "return_logprob")
    )
    sampling = body["sampling_params"]
    assert {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": -1,
        "repetition_penalty": 1.0,
    }.items() <= sampling.items()
    assert 1 == sampling["max_new_tokens"]


def test_text_goes_through_the_tokenizer_of_the_server_with_special_tokens_kept():
    with serving(sglang) as server:
        endpoint = Endpoint(server.url, limits=QUICK)
        assert "né" == endpoint.decode(endpoint.encode("né"))
    assert [False] == [body["add_special_tokens"] for path, body, _ in server.asked if path == "/tokenize"]


@pytest.mark.parametrize("name", ["adapter", "elsewhere"])
def test_a_name_that_the_server_would_not_obey_is_refused(name):
    """`/generate` is told no name: it would score the base model, and the provenance would say otherwise."""

    def respond(path, body):
        base = {"id": "org/tiny", "owned_by": "sglang", "parent": None}
        cards = [base, {"id": "adapter", "owned_by": "sglang", "parent": "org/tiny"}]
        return ok({"data": cards}) if path == "/v1/models" else sglang(path, body)

    assert f"not '{name}'" in _refusal(respond, model=name)
    with serving(respond) as server:
        assert "org/tiny" == Endpoint(server.url, "org/tiny", limits=QUICK).provenance.model
        with pytest.raises(ParamError, match="lists 2 models"):
            Endpoint(server.url, limits=QUICK).provenance  # noqa: B018 - it asks the server


def _shorter(told, _):
    told["input_token_logprobs"].pop()


def _cut(told, _):
    told["prompt_tokens"] -= 1


def _other_ids(told, _):
    told["input_token_logprobs"][2][1] += 1


def _null(told, _):
    told["input_token_logprobs"][1][0] = None


def _positive(told, _):
    told["input_token_logprobs"][1][0] = 0.5


def _pairs(told, _):
    told["input_token_logprobs"] = [row[:2] for row in told["input_token_logprobs"]]


def _no_rows(told, _):
    del told["input_token_logprobs"]


def _no_meta(_, found):
    found["meta_info"] = None


def _no_top(told, _):
    told.pop("input_top_logprobs")


def _empty_top(told, _):
    told["input_top_logprobs"][1] = None


def _few_top(told, _):
    told["input_top_logprobs"][1].pop()
    told["input_top_logprobs"][1].pop()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_shorter, "other ids than the 5 that were sent"),
        (_cut, "counts 5 prompt tokens, but 6 were sent"),
        (_other_ids, "other ids than were sent, first at index 3"),
        (_null, "index 2 has no log-probability"),
        (_positive, "index 2 has no log-probability"),
        (_pairs, "not rows of log-probability, id and text"),
        (_no_rows, "no input_token_logprobs"),
        (_no_meta, "no meta_info"),
        (_no_top, "does not hold 5 input_top_logprobs"),
        (_empty_top, "no input_top_logprobs at index 2"),
        (_few_top, "of the 4 most probable tokens"),
    ],
)
def test_an_answer_that_does_not_fit_its_ids_is_refused(change, says):
    assert says in _refusal(_changed(change), Want(logprob=True, topk=4), dialect="sglang")


def test_the_last_id_of_the_vocabulary_which_the_server_shows_as_0_is_refused():
    last = MODEL.vocabulary - 1
    with serving(sglang) as server, pytest.raises(BackendError, match="first at index 3"):
        list(Endpoint(server.url, limits=QUICK).score([_request([5, 17, 29, last, 11, 43])]))
