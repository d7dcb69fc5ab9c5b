"""A server on this machine that answers as vLLM, SGLang or llama.cpp do, with the fake back end's numbers.

Field names of the first are those of vLLM 0.1x's OpenAI server: ``choices[0].prompt_logprobs`` is a list
whose first entry is null and whose others map token ids (as strings) to ``{logprob, rank, decoded_token}``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from accredit.signals.fake import FakeBackend
from accredit.signals.request import ProbeRequest, Span, Want

MODEL = FakeBackend(vocabulary=50, seed=3)
Answer = tuple[int, dict[str, str], bytes]


class Server:
    """What was asked, and how it is answered.

    Args:
        respond: ``(path, body) -> (status, headers, bytes)``; body is None for a GET.
    """

    def __init__(self, respond: Callable[[str, Any], Answer]) -> None:
        self.respond = respond
        self.asked: list[tuple[str, Any, dict[str, str]]] = []
        self.url = ""

    def completions(self) -> list[Any]:
        return [body for path, body, _ in self.asked if path.endswith("completions") and _long(body)]


def _long(body: Any) -> bool:
    return len(body["prompt"]) != 3  # the client's first question has three tokens


@contextmanager
def serving(respond: Callable[[str, Any], Answer]) -> Iterator[Server]:
    server = Server(respond)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, body: Any) -> None:
            server.asked.append((self.path, body, dict(self.headers)))
            status, headers, data = server.respond(self.path, body)
            try:
                self.send_response(status)
                for name, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)
            except (BrokenPipeError, ConnectionResetError):
                pass

        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            self._answer(json.loads(self.rfile.read(length)))

        def log_message(self, *args: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def ok(document: Any) -> Answer:
    return 200, {}, json.dumps(document).encode()


def error(status: int, **fields: Any) -> Answer:
    return status, {}, json.dumps({"error": fields}).encode()


def vllm(path: str, body: Any, longest: int = 512) -> Answer:
    """Answer as vLLM does."""
    if path == "/v1/models":
        card = {"id": "org/tiny", "object": "model", "owned_by": "vllm", "max_model_len": longest}
        return ok({"object": "list", "data": [card]})
    if path == "/version":
        return ok({"version": "0.14.1"})
    if path == "/tokenize":
        return ok(
            {"count": len(body["prompt"]), "max_model_len": longest, "tokens": [*body["prompt"].encode()]}
        )
    if path == "/detokenize":
        return ok({"prompt": bytes(body["tokens"]).decode()})
    if path != "/v1/completions":
        return error(404, message="Not Found", type="NotFoundError", code=404)
    return ok(completion(body))


def completion(body: Any) -> dict[str, Any]:
    ids = body["prompt"]
    rows: list[Any] = [None, *entries(ids, body["prompt_logprobs"])]
    choice = {
        "index": 0,
        "text": " x",
        "logprobs": None,
        "finish_reason": "length",
        "stop_reason": None,
        "prompt_logprobs": rows,
        "prompt_token_ids": ids,
        "token_ids": [7],
    }
    usage = {"prompt_tokens": len(ids), "total_tokens": len(ids) + 1, "completion_tokens": 1}
    return {
        "id": "cmpl-1",
        "object": "text_completion",
        "model": "org/tiny",
        "choices": [choice],
        "usage": usage,
    }


def entries(ids: list[int], k: int) -> list[dict[str, Any]]:
    """Return, a position after the first, the k most probable tokens and the chosen one, which is last."""
    request = ProbeRequest(np.array(ids), (Span(0, 1, len(ids)),), Want(logprob=True, topk=k))
    [scores] = MODEL.score([request])
    found = []
    for t, chosen in enumerate(ids[1:]):
        named = {
            str(i): {"logprob": float(x), "rank": n, "decoded_token": f"<{i}>"}
            for n, (i, x) in enumerate(zip(scores.topk_ids[t], scores.topk_logprobs[t], strict=True), 1)
        }
        own = {"logprob": float(scores.logprob[t]), "rank": k + 1, "decoded_token": "y"}
        own = named.pop(str(chosen), own)
        found.append({**named, str(chosen): own})
    return found


def echoed(body: Any) -> dict[str, Any]:
    """Return a completion as OpenAI's first servers gave it: the prompt echoed with its log-probs."""
    ids = body["prompt"]
    request = ProbeRequest(np.array(ids), (Span(0, 1, len(ids)),), Want(logprob=True))
    [scores] = MODEL.score([request])
    values = [None, *map(float, scores.logprob), -0.5]
    logprobs = {
        "tokens": ["t"] * len(values),
        "token_logprobs": values,
        "top_logprobs": None,
        "text_offset": [],
    }
    return {
        "choices": [{"text": "t", "index": 0, "logprobs": logprobs}],
        "usage": {"prompt_tokens": len(ids)},
    }


def sglang(path: str, body: Any, longest: int = 512) -> Answer:
    """Answer as SGLang 0.5.23 does, by its sources: http_server.py, logprob_result_processor.py."""
    if path == "/v1/models":
        card = {"id": "org/tiny", "object": "model", "owned_by": "sglang", "root": "org/tiny"}
        return ok({"object": "list", "data": [{**card, "parent": None, "max_model_len": longest}]})
    if path == "/server_info":
        return ok({"model_path": "org/tiny", "frontend": "python", "version": "0.5.23"})
    if path == "/tokenize":
        tokens = [*body["prompt"].encode()]
        return ok({"tokens": tokens, "count": len(tokens), "max_model_len": longest})
    if path == "/detokenize":
        assert body["skip_special_tokens"] is False  # its default is true
        return ok({"text": bytes(body["tokens"]).decode()})
    if path == "/v1/completions":  # it knows no prompt_logprobs, and says nothing
        return ok({"choices": [{"index": 0, "text": " x", "logprobs": None}], "usage": {}})
    return ok(generated(body)) if path == "/generate" else error(404, message="Not Found")


def generated(body: Any) -> dict[str, Any]:
    """Return rows from ``logprob_start_len`` on, the first without a number; the last id is shown as 0."""
    ids, start, k = body["input_ids"], body["logprob_start_len"], body["top_logprobs_num"]
    request = ProbeRequest(np.array(ids), (Span(0, start + 1, len(ids)),), Want(logprob=True, topk=max(1, k)))
    [scores] = MODEL.score([request])
    values = [None, *map(float, scores.logprob)]
    shown = [i if i < MODEL.vocabulary - 1 else 0 for i in ids[start:]]
    top = [
        [[float(x), int(i), None] for i, x in zip(row, logs, strict=True)]
        for row, logs in zip(scores.topk_ids, scores.topk_logprobs, strict=True)
    ]
    told = {
        "id": "b1",
        "finish_reason": {"type": "length", "length": 1},
        "prompt_tokens": len(ids),
        "weight_version": "default",
        "input_token_logprobs": [[x, i, None] for x, i in zip(values, shown, strict=True)],
        "output_token_logprobs": [[-0.5, 7, None]],
        "completion_tokens": 1,
        "cached_tokens": start,
    }
    if k:
        told |= {"input_top_logprobs": [None, *top], "output_top_logprobs": [[[-0.5, 7, None]]]}
    return {"text": " x", "output_ids": [7], "meta_info": told}


def llamacpp(path: str, body: Any, *, biased: bool = False, obeys: bool = True) -> Answer:
    """Answer as llama.cpp's server does: it scores what it generates, and shows it without the bias."""
    if path == "/v1/models":
        meta = {"vocab_type": 2, "n_vocab": MODEL.vocabulary, "n_ctx": 256, "n_ctx_train": 512}
        card = {"id": "/srv/models/tiny.gguf", "object": "model", "owned_by": "llamacpp", "meta": meta}
        return ok({"object": "list", "data": [card]})
    if path == "/tokenize":
        return ok({"tokens": [*body["content"].encode()]})
    if path == "/detokenize":
        return ok({"content": bytes(body["tokens"]).decode()})
    if path != "/completion":
        return error(404, message="File Not Found", type="not_found_error", code=404)
    ids, k = body["prompt"], body["n_probs"]
    [[token, bias]] = body["logit_bias"]
    request = ProbeRequest(
        np.array([*ids, token]), (Span(0, len(ids), len(ids) + 1),), Want(logprob=True, topk=k)
    )
    [scores] = MODEL.score([request])
    top = [_shown(int(i), float(x)) for i, x in zip(scores.topk_ids[0], scores.topk_logprobs[0], strict=True)]
    assert bias >= 1e5
    own = _shown(token, 0.0 if biased else float(scores.logprob[0]))
    row = {**(own if obeys else top[0]), "top_logprobs": top}
    return ok(
        {"index": 0, "content": "x", "tokens": [row["id"]], "stop": True, "completion_probabilities": [row]}
    )


def _shown(token: int, logprob: float) -> dict[str, Any]:
    return {"id": token, "token": f"<{token}>", "bytes": [120], "logprob": logprob}
