"""A model behind a URL as a back end: vLLM, SGLang, OpenAI-like completions with echo, or llama.cpp.

Only chosen-token log-probabilities and the k most probable ids come through HTTP.  The entropy of the
whole distribution does not: `entropy_bounds` says between which values it lies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from accredit.errors import BackendError, ParamError, suggest
from accredit.signals.client import Client, Limits, Refused, Spent
from accredit.signals.dialects import DIALECTS, Dialect, LlamaCpp
from accredit.signals.request import ProbeRequest, Provenance, Scores, Span, Want
from accredit.typing import Array, Floats, Ints, Json

__all__ = ["Endpoint", "entropy_bounds", "public_name"]

_UNIT = 16_384  # tokens a request under way
_NO_STATES = "No server gives hidden states through this interface: score with a local model"
_WHY_NOT = {
    "entropy": "A server shows the k most probable tokens, not the whole distribution: ask for topk:20 and "
    "take the bounds that `entropy_bounds` gives, or score with a local model",
    "gradnorm": "It needs the sum over the whole distribution: score with a local model",
    "logits": "Servers give log-probabilities: score with a local model",
    "hidden_at": _NO_STATES,
    "hidden_before": _NO_STATES,
}
_TEXT_IN = {"llamacpp": "content", "sglang": "text"}  # of what /detokenize answers; elsewhere "prompt"
_VERSION_AT = {"vllm": "/version", "sglang": "/server_info"}


@dataclass(frozen=True, slots=True)
class _Served:
    """What is known of the server once it was asked: the model's name there, and one fit to be shown."""

    id: str
    model: str
    dialect: Dialect
    version: str
    context: int | None
    vocabulary: int | None


class Endpoint:
    """A server as a back end.

    The key, if there is one, is ``ACCREDIT_API_KEY`` or ``OPENAI_API_KEY`` of the environment.

    Args:
        url: with or without ``/v1`` at its end.
        model: its name there; None: the only one that the server has.
        dialect: ``vllm``, ``sglang``, ``echo``, ``llamacpp``, or ``auto``: what the server answers to.
        limits: retries, timeout, concurrency, budgets.

    Raises:
        ParamError: for a URL or a dialect that is none.

    Example:
        >>> Endpoint("http://localhost:8000/v1", dialect="vllm")
        Endpoint('http://localhost:8000')
    """

    def __init__(
        self, url: str, model: str | None = None, *, dialect: str = "auto", limits: Limits | None = None
    ) -> None:
        if dialect != "auto" and dialect not in DIALECTS:
            raise ParamError(f"no dialect {dialect!r}", hint=suggest(dialect, ["auto", *DIALECTS]))
        self.client = Client(url, limits)
        self._wanted_model = model
        self._wanted_dialect = dialect
        self._served: _Served | None = None

    def __repr__(self) -> str:
        return f"Endpoint({self.client.root!r})"

    @property
    def served(self) -> _Served:
        """What the server is; it is asked once."""
        if self._served is None:
            self._served = self._ask()
        return self._served

    @property
    def spent(self) -> Spent:
        """Requests and tokens so far."""
        return self.client.spent

    @property
    def offers(self) -> frozenset[str]:
        """What can be asked of it: ``logprob``, and ``topk`` where it names ids."""
        return self.served.dialect.offers

    @property
    def longest(self) -> int | None:
        """Tokens of the longest sequence that it scores, one less than its context: it generates one more."""
        context = self.served.context
        return None if context is None else context - 1

    def why_not(self, kind: str) -> str:
        """Return why something cannot be asked of it, as a sentence.

        Args:
            kind: name of `Want.kinds`.
        """
        return _WHY_NOT.get(kind, "This server does not name the ids of other tokens")

    @property
    def batch_tokens(self) -> int:
        """Tokens of one unit of a job: enough for all that may be under way, little to lose."""
        return _UNIT * self.client.limits.concurrency

    @property
    def vocabulary(self) -> int | None:
        """Number of ids; None where it does not say."""
        return self.served.vocabulary

    @property
    def provenance(self) -> Provenance:
        """Model and server; weights and dtype are not known through HTTP."""
        served = self.served
        return Provenance(
            model=served.model, backend=f"endpoint:{served.dialect.name}", version=served.version
        )

    def score(self, requests: Sequence[ProbeRequest]) -> Iterator[Scores]:
        """Yield the scores of each request as they come.

        Args:
            requests: scored ``limits.concurrency`` at a time.

        Raises:
            BackendError: if the server cannot give what is asked for, or gives what does not fit.
            BudgetExceeded: if a budget is spent.
        """
        for request in requests:
            self._allowed(request)
        served = self.served
        todo = iter(requests)
        pool = ThreadPoolExecutor(self.client.limits.concurrency, "accredit-endpoint")
        try:
            under_way: set[Future[Scores]] = set()
            while True:
                for request in islice(todo, 2 * self.client.limits.concurrency - len(under_way)):
                    under_way.add(pool.submit(served.dialect.score, self.client, served.id, request))
                if not under_way:
                    return
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                yield from [future.result() for future in done]
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def encode(self, text: str) -> Ints:
        """Return the server's ids of a text; special tokens in it are read as such, none is added.

        Args:
            text: any.

        Raises:
            BackendError: if the server does not tokenise.
        """
        if self.served.dialect.name == "llamacpp":
            body: dict[str, Any] = {"content": text, "add_special": False, "parse_special": True}
        else:
            body = {"model": self.served.id, "prompt": text, "add_special_tokens": False}
        found = self._tokens("/tokenize", body).get("tokens")
        if not isinstance(found, list) or any(type(i) is not int or i < 0 for i in found):
            raise BackendError("the server's /tokenize gives no ids")
        return np.array(found, np.int64)

    def decode(self, ids: Ints) -> str:
        """Return the text of ids, special tokens kept.

        Args:
            ids: int64 ``[n]``.

        Raises:
            BackendError: if the server does not say.
        """
        body: dict[str, Any] = {"tokens": np.asarray(ids).tolist()}
        dialect = self.served.dialect.name
        if dialect != "llamacpp":
            body["model"] = self.served.id
        if dialect == "sglang":
            body["skip_special_tokens"] = False
        found = self._tokens("/detokenize", body).get(_TEXT_IN.get(dialect, "prompt"))
        if not isinstance(found, str):
            raise BackendError("the server's /detokenize gives no text")
        return found

    def _tokens(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        found = self.client.post(path, body)
        return found if isinstance(found, dict) else {}

    def _allowed(self, request: ProbeRequest) -> None:
        missing = sorted(request.want.kinds - self.offers)
        if missing:
            raise BackendError(f"{self!r} gives no {missing[0]}", hint=self.why_not(missing[0]))
        longest = self.longest
        if longest is not None and request.ids.size > longest:
            raise BackendError(
                f"a sequence of {request.ids.size} tokens is longer than the {longest} that the server takes",
                hint="It is never cut: leave such rollouts out, or serve the model with a longer context",
            )

    def _ask(self) -> _Served:
        listed = _listed(self.client)
        entry = _entry(listed, self._wanted_model)
        name = str(entry.get("id", self._wanted_model or ""))
        meta = entry.get("meta") if isinstance(entry.get("meta"), dict) else {}
        dialect = self._dialect(str(entry.get("owned_by", "")), name)
        if dialect.name == "sglang":
            _require_base(listed, entry, name)
        context = entry.get("max_model_len", meta.get("n_ctx") if meta else None)
        return _Served(
            id=name,
            model=public_name(name),
            dialect=dialect,
            version=_version(self.client, _VERSION_AT.get(dialect.name)),
            context=context if type(context) is int and context > 0 else None,
            vocabulary=meta.get("n_vocab") if meta and type(meta.get("n_vocab")) is int else None,
        )

    def _dialect(self, owner: str, model: str) -> Dialect:
        """Return the first way of asking that the server answers, its own first."""
        if self._wanted_dialect != "auto":
            return _tried(DIALECTS[self._wanted_dialect], self.client, model)
        order = sorted(DIALECTS.values(), key=lambda d: d.name != owner)
        reasons = []
        for dialect in order:
            try:
                return _tried(dialect, self.client, model)
            except Refused as error:
                if error.status in (401, 403):
                    raise
                reasons.append(f"{dialect.name}: HTTP {error.status}")
            except BackendError as error:
                reasons.append(f"{dialect.name}: {error.message}")
        raise BackendError(
            f"{self!r} gives no log-probabilities of given tokens ({'; '.join(reasons)})",
            hint="Serve the model with vLLM, SGLang or llama.cpp, or score with a local model",
        )


def _tried(dialect: Dialect, client: Client, model: str) -> Dialect:
    """Return the dialect if the server answers a question of three tokens in it."""
    ids = np.zeros(3, np.int64)
    if isinstance(dialect, LlamaCpp):
        dialect.check(client, ids.tolist())
    else:
        dialect.score(client, model, ProbeRequest(ids, (Span(0, 1, 3),), Want(logprob=True)))
    return dialect


def _listed(client: Client) -> list[dict[str, Any]]:
    try:
        found = client.get("/v1/models")
    except Refused as error:
        if error.status in (401, 403):
            raise
        return []
    data = found.get("data") if isinstance(found, dict) else None
    return [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []


def _entry(listed: list[dict[str, Any]], model: str | None) -> dict[str, Any]:
    if model is not None:
        return next((e for e in listed if e.get("id") == model), {})
    if len(listed) != 1:
        raise ParamError(
            f"the server lists {len(listed)} models, so one must be named", hint="Give its name as model"
        )
    return listed[0]


def public_name(name: str) -> str:
    """Return a model's name without the folders of the server's disk, and without control characters.

    Args:
        name: as the server has it.
    """
    plain = re.sub(r"[^\x20-\x7e]", "?", name)[:200]
    return plain.replace("\\", "/").rpartition("/")[2] if re.match(r"/|[A-Za-z]:", plain) else plain


def _require_base(listed: list[dict[str, Any]], entry: dict[str, Any], name: str) -> None:
    """Refuse a name that SGLang's ``/generate`` would not obey: it is not told one, nor an adapter's."""
    if listed and (not entry or entry.get("parent")):
        raise BackendError(
            f"SGLang would score the model that it serves, not {public_name(name)!r}",
            hint="Give the name of the model that it serves; adapters are scored where they are merged",
        )


def _version(client: Client, path: str | None) -> str:
    if path is None:
        return ""
    try:
        found: Json = client.get(path)
    except Refused:
        return ""
    text = found.get("version") if isinstance(found, dict) else None
    return text if isinstance(text, str) and re.fullmatch(r"[\w.+-]{1,64}", text) else ""


def entropy_bounds(topk_logprobs: Array, vocabulary: int) -> tuple[Floats, Floats]:
    r"""Return between which values the entropy of each distribution lies, from its k largest terms.

    With m the probability of what is not shown, ``-sum p log p - m log m`` (all of m on one token)
    is at most the entropy, and ``m log(V - k)`` more (m spread evenly) at least.

    Args:
        topk_logprobs: ``[T, k]``, nats, of distinct tokens.
        vocabulary: V, number of tokens; more than k.

    Returns:
        Lower and upper bound ``[T]``, nats.

    Raises:
        ParamError: if V is not more than k.

    Source: methods/README-probes.md, section 4.

    Example:
        >>> low, high = entropy_bounds(np.log([[0.5, 0.25]]), 4)
        >>> low.round(4).tolist(), high.round(4).tolist()
        ([1.0397], [1.213])
    """
    shown = np.asarray(topk_logprobs, np.float64)
    k = shown.shape[1]
    if vocabulary <= k:
        raise ParamError(f"a vocabulary of {vocabulary} has no bounds from {k} shown tokens")
    p = np.exp(shown)
    rest = np.clip(1.0 - p.sum(axis=1), 0.0, 1.0)
    low = -(p * shown).sum(axis=1) - rest * np.log(np.where(rest > 0, rest, 1.0))
    return low, low + rest * np.log(vocabulary - k)
