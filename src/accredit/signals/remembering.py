"""Answers of a speaker kept in a file as they come: what was paid is not asked again after a kill."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from accredit.signals.speaking import Message, Said, Speaker, Usage
from accredit.store.journal import LineJournal

__all__ = ["SCHEMA", "Remembered"]

SCHEMA = "accredit.replies/1"


class _Line(msgspec.Struct):
    key: str
    said: Said


class Remembered:
    """A speaker that gives the answer again where it was asked the same with the same seed.

    The file holds answers and hashes of chats, no prompts and no keys.

    Args:
        speaker: who is asked otherwise.
        path: the file; it is made where it is not there, and belongs to one version of a speaker.

    Raises:
        DataError: if the file is of another speaker, or no such file.
        StoreError: if it cannot be opened, or another process has it open.

    Example:
        >>> import tempfile
        >>> from accredit.signals.speaking import ChatServer
        >>> path = Path(tempfile.mkdtemp()) / "replies.jsonl"
        >>> with Remembered(ChatServer("http://localhost:8000/v1", "org/tiny"), path) as speaker:
        ...     speaker.version, speaker.knows([{"role": "user", "content": "Hi"}], 0)
        ('chat:org/tiny:T=0:max=512', False)
    """

    def __init__(self, speaker: Speaker, path: str | Path) -> None:
        self.version = speaker.version
        self._speaker = speaker
        self._journal = LineJournal(path, SCHEMA, {"speaker": speaker.version}, resume=True)
        self._known = {line.key: line.said for line in self._journal.records(_Line)}

    @property
    def usage(self) -> Usage:
        """What was really asked."""
        return self._speaker.usage

    def knows(self, messages: Sequence[Message], seed: int) -> bool:
        """Return whether the answer to a chat is there already.

        Args:
            messages: of the chat.
            seed: of sampling.
        """
        return _key(messages, seed) in self._known

    def say(self, messages: Sequence[Message], seed: int) -> Said:
        """Return the answer to a chat, the one that was given before if it was (see `Speaker.say`).

        Args:
            messages: of the chat.
            seed: of sampling.

        Raises:
            StoreError: if the answer cannot be kept.
        """
        key = _key(messages, seed)
        if key not in self._known:
            self._known[key] = self._speaker.say(messages, seed)
            self._journal.add({"key": key, "said": msgspec.to_builtins(self._known[key])})
        return self._known[key]

    def close(self) -> None:
        """Let others open the file."""
        self._journal.close()

    def __enter__(self) -> Remembered:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _key(messages: Sequence[Message], seed: int) -> str:
    text = json.dumps([[dict(message) for message in messages], seed], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
