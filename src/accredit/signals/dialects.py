"""How servers give log-probabilities of given tokens: one class a way of asking.

vLLM answers ``prompt_logprobs``; SGLang ``return_logprob``; older OpenAI completions ``echo`` with
``logprobs``; llama.cpp gives none of a prompt, so each token is asked for alone: it is forced with a
bias, and the server still shows what the unbiased model gave it.  Every answer is checked against the
ids that were sent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from accredit.errors import BackendError
from accredit.signals.client import Client, Refused
from accredit.signals.request import ProbeRequest, Scores
from accredit.typing import Array, Json

__all__ = ["DIALECTS", "Dialect", "Echo", "LlamaCpp", "Sglang", "Vllm"]

_ROUNDING = 1e-3  # a log-probability may exceed 0 by this: bfloat16 sums
_MOST = 20  # tokens a position that vLLM shows if it is not told otherwise
_FORCED = 1e6  # added to a logit: no other token is left
# Whatever the model's own generation settings are: probabilities are those of the whole softmax.
_UNCHANGED = {"temperature": 1.0, "top_p": 1.0}
_UNCUT = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}


class Dialect(Protocol):
    """A way of asking a server."""

    name: ClassVar[str]
    offers: ClassVar[frozenset[str]]

    def score(self, client: Client, model: str, request: ProbeRequest) -> Scores:
        """Return the scores of one request.

        Args:
            client: of the server.
            model: its name there.
            request: ids with spans.

        Raises:
            BackendError: if the answer does not fit the ids.
        """


class Vllm:
    """``/v1/completions`` with ``prompt_logprobs``: one request a sequence."""

    name: ClassVar[str] = "vllm"
    offers: ClassVar[frozenset[str]] = frozenset({"logprob", "topk"})

    def score(self, client: Client, model: str, request: ProbeRequest) -> Scores:
        """Return the scores of one request.

        Args:
            client: of the server.
            model: its name there.
            request: ids with spans.

        Raises:
            BackendError: if the answer has no ``prompt_logprobs``, or they do not fit the ids.
        """
        ids = request.ids.tolist()
        body = {"model": model, "prompt": ids, "max_tokens": 1, "return_token_ids": True, **_UNCHANGED}
        body |= {**_UNCUT, "add_special_tokens": False}
        body["prompt_logprobs"] = max(1, request.want.topk)
        try:
            answer = client.post("/v1/completions", body, len(ids))
        except Refused as error:
            if error.status == 400 and request.want.topk > _MOST:
                hint = f"vLLM gives {_MOST}, unless it was started with a larger --max-logprobs"
                raise BackendError(f"the server refuses topk:{request.want.topk}", hint=hint) from None
            raise
        choice = _choice(answer)
        _same_ids(choice.get("prompt_token_ids"), ids)
        _same_count(answer, ids)
        rows = choice.get("prompt_logprobs")
        if not isinstance(rows, list):
            raise BackendError("the answer has no prompt_logprobs")
        if len(rows) != len(ids):
            raise BackendError(f"the answer has {len(rows)} prompt_logprobs for {len(ids)} tokens")
        found = [_by_id(rows[p], p) for p in request.positions.tolist()]
        return _scores(request, found)


class Sglang:
    """``/generate`` of SGLang with ``return_logprob``: one request a sequence.

    Rows begin one token before the first that is asked for, so that what stands before may come from the
    server's cache. One token is generated: with none, some settings of the server read fewer positions.
    """

    name: ClassVar[str] = "sglang"
    offers: ClassVar[frozenset[str]] = frozenset({"logprob", "topk"})

    def score(self, client: Client, model: str, request: ProbeRequest) -> Scores:
        """Return the scores of one request.

        Args:
            client: of the server.
            model: not sent: ``/generate`` knows the one that is served.
            request: ids with spans.

        Raises:
            BackendError: if the answer has no ``input_token_logprobs``, or they do not fit the ids.
        """
        ids, places = request.ids.tolist(), request.positions.tolist()
        start = min(places, default=1) - 1
        body = {"input_ids": ids, "sampling_params": {"max_new_tokens": 1, **_UNCHANGED, **_UNCUT}}
        body |= {"return_logprob": True, "logprob_start_len": start, "return_text_in_logprobs": False}
        body["top_logprobs_num"] = request.want.topk
        answer = client.post("/generate", body, len(ids))
        told = answer.get("meta_info") if isinstance(answer, dict) else None
        if not isinstance(told, dict):
            raise BackendError("the answer has no meta_info")
        _same_count({"usage": told}, ids)
        rows = _triples(told.get("input_token_logprobs"), "input_token_logprobs")
        _same_ids([token for _, token in rows], ids[start:], start)
        found = [{ids[p]: _number(rows[p - start][0], p)} for p in places]
        if request.want.topk:
            more = told.get("input_top_logprobs")
            if not isinstance(more, list) or len(more) != len(rows):
                raise BackendError(f"the answer does not hold {len(rows)} input_top_logprobs")
            likely = [_triples(more[p - start], f"input_top_logprobs at index {p}") for p in places]
            found = [
                {token: _number(value, p) for value, token in row} | own
                for p, row, own in zip(places, likely, found, strict=True)
            ]
        return _scores(request, found)


class Echo:
    """``/v1/completions`` with ``echo`` and ``logprobs``: one request a sequence, no ids of others."""

    name: ClassVar[str] = "echo"
    offers: ClassVar[frozenset[str]] = frozenset({"logprob"})

    def score(self, client: Client, model: str, request: ProbeRequest) -> Scores:
        """Return the scores of one request.

        Args:
            client: of the server.
            model: its name there.
            request: ids with spans.

        Raises:
            BackendError: if the answer does not echo the prompt, token by token.
        """
        ids = request.ids.tolist()
        body = {"model": model, "prompt": ids, "max_tokens": 1, "echo": True, "logprobs": 1, **_UNCHANGED}
        answer = client.post("/v1/completions", body, len(ids))
        _same_count(answer, ids)
        logprobs = _choice(answer).get("logprobs")
        rows = logprobs.get("token_logprobs") if isinstance(logprobs, dict) else None
        # One more token is generated, unless the server knows to stop at none.
        if not isinstance(rows, list) or not len(ids) <= len(rows) <= len(ids) + 1 or rows[0] is not None:
            raise BackendError("the answer does not echo the prompt with its log-probabilities")
        values = [_number(rows[p], p) for p in request.positions.tolist()]
        return Scores(request.key, logprob=np.array(values, np.float32))


class LlamaCpp:
    """``/completion`` of llama.cpp: one request a token, each forced by a bias.

    The server keeps the prefix, so a token costs one step of the model, not the whole prompt.
    """

    name: ClassVar[str] = "llamacpp"
    offers: ClassVar[frozenset[str]] = frozenset({"logprob", "topk"})

    def score(self, client: Client, model: str, request: ProbeRequest) -> Scores:
        """Return the scores of one request, token by token.

        Args:
            client: of the server.
            model: not sent: such a server has one.
            request: ids with spans.

        Raises:
            BackendError: if the server does not take the token it was given.
        """
        ids = request.ids.tolist()
        places = request.positions.tolist()
        return _scores(request, [self.row(client, ids[:p], ids[p], p, request.want.topk) for p in places])

    def row(self, client: Client, prefix: list[int], token: int, p: int, k: int) -> dict[int, float]:
        """Return log-probabilities by id after ``prefix``: of ``token`` and of the ``k`` most probable.

        Args:
            client: of the server.
            prefix: ids before the token.
            token: id that is forced.
            p: its index, for messages.
            k: how many others.

        Raises:
            BackendError: if the server took another token.
        """
        body = {"prompt": prefix, "n_predict": 1, "n_probs": max(1, k), "cache_prompt": True}
        body |= {"temperature": 0.0, "logit_bias": [[token, _FORCED]], "post_sampling_probs": False}
        answer = client.post("/completion", body, len(prefix))
        rows = answer.get("completion_probabilities") if isinstance(answer, dict) else None
        if not isinstance(rows, list) or len(rows) != 1 or not isinstance(rows[0], dict):
            raise BackendError(f"the answer has no probabilities of the token at index {p}")
        if rows[0].get("id") != token:
            raise BackendError(f"the server did not take the token that it was given at index {p}")
        others = rows[0].get("top_logprobs")
        entries = [e for e in others if isinstance(e, dict)] if isinstance(others, list) else []
        found = {int(e["id"]): _number(e.get("logprob"), p) for e in entries if type(e.get("id")) is int}
        return {**found, token: _number(rows[0].get("logprob"), p)}

    def check(self, client: Client, prefix: list[int]) -> None:
        """Make sure that a forced token shows the unbiased model's log-probability.

        Args:
            client: of the server.
            prefix: ids that exist in the model.

        Raises:
            BackendError: if forcing changes what is shown.
        """
        likely = self.row(client, prefix, prefix[0], len(prefix), 2)
        second = sorted(likely.items(), key=lambda item: -item[1])[1]
        forced = self.row(client, prefix, second[0], len(prefix), 2)[second[0]]
        if not math.isclose(forced, second[1], abs_tol=1e-2):
            raise BackendError("the server shows probabilities after the bias, not the model's own")


_ALL: tuple[Dialect, ...] = (Vllm(), Sglang(), Echo(), LlamaCpp())
DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in _ALL}


def _choice(answer: Json) -> dict[str, Any]:
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise BackendError("the answer does not hold one choice")
    return choices[0]


def _same_ids(got: Json, ids: list[int], start: int = 0) -> None:
    if got is None:
        return
    if not isinstance(got, list) or len(got) != len(ids):
        raise BackendError(f"the server scored other ids than the {len(ids)} that were sent")
    apart = [p for p, (a, b) in enumerate(zip(got, ids, strict=True), start) if a != b]
    if apart:
        raise BackendError(f"the server scored other ids than were sent, first at index {apart[0]}")


def _triples(rows: Json, what: str) -> list[tuple[Any, int]]:
    """Return log-probability and id of rows ``[logprob, id, text]``."""
    if not isinstance(rows, list):
        raise BackendError(f"the answer has no {what}")
    if any(not isinstance(row, list) or len(row) != 3 or type(row[1]) is not int for row in rows):
        raise BackendError(f"the {what} are not rows of log-probability, id and text")
    return [(row[0], row[1]) for row in rows]


def _same_count(answer: Json, ids: list[int]) -> None:
    usage = answer.get("usage")
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    if count is not None and count != len(ids):
        raise BackendError(
            f"the server counts {str(count)[:20]} prompt tokens, but {len(ids)} were sent",
            hint="It adds or cuts tokens: switch off its own BOS token and its truncation",
        )


def _by_id(row: Json, p: int) -> dict[int, float]:
    """Return the log-probabilities of a position by id; nothing says that the chosen one is first."""
    if not isinstance(row, dict):
        raise BackendError(f"the token at index {p} has no log-probabilities")
    found = {}
    for key, entry in row.items():
        if not (key.isdecimal() and isinstance(entry, dict)):
            raise BackendError(f"the log-probabilities at index {p} are not given by token id")
        found[int(key)] = _number(entry.get("logprob"), p)
    return found


def _number(value: Json, p: int) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or value > _ROUNDING:
        raise BackendError(
            f"the token at index {p} has no log-probability: not a finite number of at most 0",
            hint="A token that sampling had ruled out has none; score with the whole vocabulary",
        )
    return min(0.0, float(value))


def _scores(request: ProbeRequest, rows: list[dict[int, float]]) -> Scores:
    chosen = []
    for p, row in zip(request.positions.tolist(), rows, strict=True):
        token = int(request.ids[p])
        if token not in row:
            raise BackendError(f"the answer leaves out the token that stands at index {p}")
        chosen.append(row[token])
    logprob = np.array(chosen, np.float32) if request.want.logprob else None
    if not request.want.topk:
        return Scores(request.key, logprob=logprob)
    ids, values = _most_probable(request, rows)
    return Scores(request.key, logprob=logprob, topk_ids=ids, topk_logprobs=values)


def _most_probable(request: ProbeRequest, rows: list[dict[int, float]]) -> tuple[Array, Array]:
    k = request.want.topk
    ranked = [sorted(row.items(), key=lambda item: (-item[1], item[0]))[:k] for row in rows]
    least = min((len(row) for row in ranked), default=k)
    if least < k:
        raise BackendError(
            f"the server gives {least} of the {k} most probable tokens",
            hint="Ask for fewer, or start it with a larger --max-logprobs",
        )
    table = np.array(ranked, np.float64).reshape(len(ranked), k, 2)
    return table[:, :, 0].astype(np.int32), table[:, :, 1].astype(np.float32)
