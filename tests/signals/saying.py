"""Speakers that say what a test tells them to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from accredit.signals.speaking import Message, Said, Usage

Rule = Callable[[Sequence[Message], int], str]


class Scripted:
    """Answers by a rule of the chat and the seed; keeps what it was asked.

    Args:
        rule: the answer, or answers that are given in turn.
    """

    def __init__(self, rule: Rule | Sequence[str]) -> None:
        self.version, self.usage = "scripted", Usage()
        self.asked: list[list[dict[str, Any]]] = []
        self.seeds: list[int] = []
        self._rule = rule

    def say(self, messages: Sequence[Message], seed: int) -> Said:
        self.asked.append([dict(message) for message in messages])
        self.seeds.append(seed)
        rule = self._rule
        text = rule(messages, seed) if callable(rule) else rule[len(self.asked) - 1]
        said = Said(text, len(str(messages)), len(text))
        self.usage.add(said)
        return said
