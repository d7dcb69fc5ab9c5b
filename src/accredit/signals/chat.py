"""Chat prompts edited as ids: one message is decoded, changed and tokenised again, all else stays.

Messages lie between special tokens, which merge with nothing, so the ids outside the edited message
are the recorded ones.  Inserted text never opens or closes a message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from accredit.errors import BackendError, DataError, ParamError, suggest
from accredit.typing import Ints

__all__ = [
    "CHATS",
    "PLACES",
    "Chat",
    "HfTokenizer",
    "Message",
    "Prompt",
    "Tokenizer",
    "chat_of",
    "tokenizer_of",
]

Rewrite: TypeAlias = Callable[[str], str | None]

PLACES = ("first_user", "last_user", "end")


@runtime_checkable
class Tokenizer(Protocol):
    """Ids of a text and back, special tokens read and kept, none added."""

    def encode(self, text: str) -> Ints:
        """Return the ids of a text.

        Args:
            text: special tokens in it become their ids.
        """

    def decode(self, ids: Ints) -> str:
        """Return the text of ids.

        Args:
            ids: int64 ``[n]``.
        """


class HfTokenizer:
    """A tokenizer of the transformers or tokenizers library.

    Args:
        tokenizer: ``AutoTokenizer.from_pretrained(...)``, or a ``tokenizers.Tokenizer``.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str) -> Ints:
        """Return the ids of a text, none added.

        Args:
            text: special tokens in it become their ids.
        """
        found = self._tokenizer.encode(text, add_special_tokens=False)
        return np.array(getattr(found, "ids", found), np.int64)

    def decode(self, ids: Ints) -> str:
        """Return the text of ids, special tokens kept and spaces untouched.

        Args:
            ids: int64 ``[n]``.
        """
        tidy = (
            {"clean_up_tokenization_spaces": False}
            if hasattr(self._tokenizer, "added_tokens_encoder")
            else {}
        )
        return str(self._tokenizer.decode(np.asarray(ids).tolist(), skip_special_tokens=False, **tidy))


def tokenizer_of(backend: object) -> Tokenizer:
    """Return the tokenizer that a back end comes with.

    Args:
        backend: with ``encode`` and ``decode`` (an endpoint), or with a ``tokenizer``.

    Raises:
        BackendError: if it has none.
    """
    if isinstance(backend, Tokenizer):
        return backend
    found = getattr(backend, "tokenizer", None)
    if found is None:
        raise BackendError(
            "this back end has no tokenizer, and a context is text",
            hint="Give tokenizer=, or a back end with a model's folder or an endpoint",
        )
    return (
        found
        if isinstance(found, Tokenizer) and not hasattr(found, "all_special_ids")
        else HfTokenizer(found)
    )


@dataclass(frozen=True, slots=True)
class Chat:
    """How a family of models writes messages.

    Args:
        name: of the family.
        open: special token that begins a message.
        close: special token that ends it.
        user: what stands between ``open`` and the text of a user's message.
        assistant: what stands between ``open`` and what the model says.
        between: what stands between a ``close`` and the next ``open``.
    """

    name: str
    open: str
    close: str
    user: str
    assistant: str
    between: str

    @property
    def fingerprint(self) -> str:
        """Hash of the markers."""
        text = "\0".join((self.open, self.close, self.user, self.assistant, self.between))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


CHATS: tuple[Chat, ...] = (
    Chat("chatml", "<|im_start|>", "<|im_end|>", "user\n", "assistant\n", "\n"),
    Chat(
        "llama3",
        "<|start_header_id|>",
        "<|eot_id|>",
        "user<|end_header_id|>\n\n",
        "assistant<|end_header_id|>\n\n",
        "",
    ),
    Chat("gemma", "<start_of_turn>", "<end_of_turn>", "user\n", "model\n", "\n"),
    Chat(
        "llama4", "<|header_start|>", "<|eot|>", "user<|header_end|>\n\n", "assistant<|header_end|>\n\n", ""
    ),
)


@dataclass(frozen=True, slots=True)
class Message:
    """A message inside a prompt.

    Args:
        start: index of its first id after ``open``.
        stop: index of ``close``, or of the prompt's end where it is not closed.
        text: decoded, role and all.
        closed: whether ``close`` follows.
    """

    start: int
    stop: int
    text: str
    closed: bool


@dataclass(frozen=True, slots=True)
class Prompt:
    """Ids before the first policy token, and how to change them.

    Args:
        ids: int64 ``[n]``.
        tokenizer: of the model.
        chat: how messages are written; None: the prompt is one plain text.
    """

    ids: Ints
    tokenizer: Tokenizer
    chat: Chat | None

    def messages(self) -> Iterator[Message]:
        """Yield the messages in order; none in a plain prompt."""
        if self.chat is None:
            return
        opened, closed = (self.tokenizer.encode(t) for t in (self.chat.open, self.chat.close))
        starts = [*_found(self.ids, opened)]
        ends = np.array([*_found(self.ids, closed)], np.int64)
        for at in starts:
            start = at + opened.size
            after = ends[ends >= start]
            stop = int(after[0]) if after.size else self.ids.size
            yield Message(start, stop, self.tokenizer.decode(self.ids[start:stop]), bool(after.size))

    def body(self, place: str) -> str | None:
        """Return the text that ``place`` means; None where the prompt has no such message.

        Args:
            place: one of `PLACES`.
        """
        if self.chat is None:
            return self.tokenizer.decode(self.ids)
        found = self._message(place)
        return None if found is None else found.text.removeprefix(self.chat.user)

    def rewritten(self, place: str, rewrite: Rewrite) -> Ints | None:
        """Return the ids with one message rewritten; None where there is none or nothing to change.

        Args:
            place: ``first_user`` or ``last_user`` message, or ``end``: a user's message of its own
                before the generation prompt.
            rewrite: new text of the message; None: leave all as it is.

        Raises:
            DataError: if the new text would open or close a message.
        """
        if self.chat is None:
            text = rewrite(self.tokenizer.decode(self.ids))
            return None if text is None else self._ids(text)
        if place == "end":
            return self._with_message(rewrite(""))
        message = self._message(place)
        if message is None:
            return None
        text = rewrite(message.text.removeprefix(self.chat.user))
        if text is None:
            return None
        return self._cut(message.start, message.stop, self.chat.user + self._safe(text))

    def _message(self, place: str) -> Message | None:
        if place not in PLACES:
            raise ParamError(f"no place {place!r} in a prompt", hint=suggest(place, PLACES))
        assert self.chat is not None
        users = [m for m in self.messages() if m.closed and m.text.startswith(self.chat.user)]
        if not users or place == "end":
            return None
        return users[0] if place == "first_user" else users[-1]

    def _with_message(self, text: str | None) -> Ints | None:
        if text is None:
            return None
        assert self.chat is not None
        last = [*self.messages()][-1:]
        # The generation prompt opens a message that the policy closes.
        at = (
            last[0].start - self.tokenizer.encode(self.chat.open).size
            if last and not last[0].closed
            else None
        )
        at = self.ids.size if at is None else at
        return self._cut(
            at, at, f"{self.chat.open}{self.chat.user}{self._safe(text)}{self.chat.close}{self.chat.between}"
        )

    def _cut(self, start: int, stop: int, text: str) -> Ints:
        return np.concatenate([self.ids[:start], self._ids(text), self.ids[stop:]])

    def _ids(self, text: str) -> Ints:
        return np.asarray(self.tokenizer.encode(text), np.int64)

    def _safe(self, text: str) -> str:
        """Return the text with markers taken apart: what rollouts say cannot become a message."""
        assert self.chat is not None
        for marker in (self.chat.open, self.chat.close):
            text = text.replace(marker, f"{marker[0]} {marker[1:]}")
        return text


def chat_of(ids: Ints, tokenizer: Tokenizer, chat: str = "auto") -> Chat | None:
    """Return how a prompt's messages are written.

    Args:
        ids: of a prompt.
        tokenizer: of the model.
        chat: name of a family, ``plain`` for prompts that are one text, ``auto``: told by the ids.

    Raises:
        DataError: auto: if no known family fits.
        ParamError: for an unknown name.
    """
    if chat == "plain":
        return None
    named = {c.name: c for c in CHATS}
    if chat != "auto":
        if chat not in named:
            raise ParamError(f"no chat family {chat!r}", hint=suggest(chat, ["auto", "plain", *named]))
        return named[chat]
    for family in CHATS:
        marker = tokenizer.encode(family.open)
        if marker.size == 1 and np.any(ids == marker[0]):
            return family
    raise DataError(
        "a prompt shows no known chat format, so there is no safe place for a context",
        code="ACC761",
        hint=f"Known: {', '.join(named)}; chat='plain' takes each prompt as one text",
    )


def _found(ids: Ints, marker: Ints) -> Iterator[int]:
    """Yield where a marker begins."""
    n = marker.size
    if not n or n > ids.size:
        return
    windows = np.lib.stride_tricks.sliding_window_view(ids, n)
    yield from np.flatnonzero((windows == marker).all(axis=1)).tolist()
