"""Asking a language model for one JSON object: strict reading, repairs, and a log of every reply."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import Template
from typing import Any

from accredit.data import Batch
from accredit.data.chance import prf
from accredit.errors import ParamError
from accredit.signals.continuation.ledger import Ledger
from accredit.signals.hints import plain_text, word_of
from accredit.signals.remembering import Remembered
from accredit.signals.speaking import SEEDS, Message, Speaker, TooLong

__all__ = ["Asker", "Instructions", "Reply", "Unreadable", "object_of", "steps_text", "task_text"]

_LONGEST = 20_000  # characters of a reply that is read
_TASKS = ("task", "objective", "question")


class Unreadable(ValueError):
    """A reply that is not what was asked for; its words tell the model why."""


def object_of(text: str) -> dict[str, Any]:
    """Return the one JSON object in a reply; words and a fence around it do not matter.

    Args:
        text: of the reply.

    Raises:
        Unreadable: if there is none, more than one, a brace that begins none, or a name twice in one.

    Example:
        >>> object_of('Here it is: {"start": 2, "end": 3}')
        {'start': 2, 'end': 3}
    """
    if len(text) > _LONGEST:
        raise Unreadable(f"the reply has {len(text)} characters, more than {_LONGEST}")
    decoder = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_never)
    found: list[dict[str, Any]] = []
    at = 0
    while (at := text.find("{", at)) >= 0:
        try:
            one, at = decoder.raw_decode(text, at)
        except Unreadable:
            raise
        except (ValueError, RecursionError):
            raise Unreadable("what begins with { in the reply is not JSON") from None
        found.append(one)
    if len(found) != 1:
        raise Unreadable(f"the reply holds {len(found) or 'no'} JSON object{'s' * (len(found) > 1)}, not one")
    return found[0]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Unreadable("a name stands twice in the JSON object")
    return found


def _never(name: str) -> Any:
    raise Unreadable(f"{name} is not JSON")


@dataclass(frozen=True, slots=True)
class Instructions:
    """What a model is told; ``$name`` stands for what is filled in.

    Args:
        system: who it is.
        opening: what it is asked.
        again: what it is told of a reply that cannot be, ``$fault`` is why.
        width: characters of each field of a step that are shown; what is cut ends with ``...``.
    """

    system: str
    opening: str
    again: str = "That cannot be: $fault. Reply again with one JSON object and nothing else."
    width: int = 2000

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ParamError(f"width must be >= 1, got {self.width!r}")

    @property
    def fingerprint(self) -> str:
        """Hash of all of it."""
        text = "\0".join((self.system, self.opening, self.again, str(self.width)))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]

    def check(self, *names: str) -> None:
        """Refuse an opening that does not say all that it must.

        Args:
            *names: that are filled in.

        Raises:
            ParamError: naming what is missing or unknown.
        """
        told = set(Template(self.opening).get_identifiers())
        if told != set(names) or Template(self.again).get_identifiers() != ["fault"]:
            raise ParamError(
                f"the opening names {', '.join(sorted(told)) or 'nothing'}",
                hint=f"All of {', '.join('$' + n for n in names)}, and $fault in `again`; a dollar is $$",
            )

    def begun(self, **told: str) -> list[Message]:
        """Return the first messages of a chat.

        Args:
            **told: by name.
        """
        return [
            {"role": "system", "content": self.system},
            {"role": "user", "content": Template(self.opening).substitute(told)},
        ]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a model, whatever became of it.

    Args:
        subject: id of the rollout that was asked about.
        turn: number of the question about it, from 0.
        text: as it was said; "" where nothing was.
        fault: why it was not taken as it stands; "" if it was.
        tokens: generated.
    """

    subject: str
    turn: int
    text: str
    fault: str = ""
    tokens: int = 0


@dataclass(slots=True)
class Asker:
    """Chats of one model about rollouts, one a rollout, each question booked and each reply kept.

    Args:
        speaker: who answers.
        name: of the task, part of the seeds.
        seed: of all sampling; it does not depend on the order of questions.
        ledger: books each question as a judge call, and says when there may be no more; None: no limit.
        replies: every one so far.
    """

    speaker: Speaker
    name: str
    seed: int = 0
    ledger: Ledger | None = None
    replies: list[Reply] = field(default_factory=list)
    _chats: dict[str, list[Message]] = field(default_factory=dict)

    def begin(self, subject: str, messages: Sequence[Message]) -> None:
        """Begin the chat about a rollout anew.

        Args:
            subject: id of the rollout.
            messages: the first ones.
        """
        self._chats[subject] = list(messages)

    def tell(self, subject: str, text: str) -> None:
        """Add what a user says to the chat.

        Args:
            subject: id of the rollout.
            text: as it stands.
        """
        self._chats[subject].append({"role": "user", "content": text})

    def ask(self, subject: str) -> str | None:
        """Return the answer to the chat so far; None where nothing may or can be asked, which is noted.

        Args:
            subject: id of the rollout.

        Raises:
            BackendError: if the model does not answer.
            BudgetExceeded: if a budget of the speaker is spent.
        """
        chat = self._chats[subject]
        turn = sum(message["role"] == "assistant" for message in chat)
        seed = prf(self.seed, self.name, subject, turn) % SEEDS
        known = isinstance(self.speaker, Remembered) and self.speaker.knows(chat, seed)
        if self.ledger is not None and not self.ledger.admits_question(known=known):
            self.replies.append(Reply(subject, turn, "", "the budget of questions is spent"))
            return None
        try:
            said = self.speaker.say(chat, seed)
        except TooLong as error:
            self.replies.append(Reply(subject, turn, "", error.message))
            return None
        chat.append({"role": "assistant", "content": said.text})
        self.replies.append(Reply(subject, turn, said.text, tokens=said.tokens))
        return said.text

    def refuse(self, fault: str) -> None:
        """Note why the last reply was not taken.

        Args:
            fault: the reason.
        """
        last = self.replies[-1]
        self.replies[-1] = Reply(last.subject, last.turn, last.text, fault, last.tokens)

    def refused(self) -> list[Reply]:
        """Return the replies that were not taken, and the questions that were not asked."""
        return [reply for reply in self.replies if reply.fault]


def task_text(batch: Batch, r: int, width: int) -> str:
    """Return what a rollout's task is, as a paragraph; "" where nothing says so but its steps.

    Args:
        batch: rollouts with ``task``, ``objective`` or ``question``, as a field or in ``metadata``.
        r: position of one.
        width: characters of it that are shown.
    """
    told = next((text for name in _TASKS if (text := word_of(batch, r, name))), None)
    return f"The task: {plain_text(told, width)}\n\n" if told else ""


def steps_text(steps: Sequence[Mapping[str, Any]], width: int, first: int = 0) -> str:
    """Return steps as lines: number, what was seen, what was done, what came back.

    Args:
        steps: records.
        width: characters of each field.
        first: number of the first step.
    """
    return "\n".join(_step_text(t, step, width) for t, step in enumerate(steps, first))


def _step_text(t: int, step: Mapping[str, Any], width: int) -> str:
    seen = step.get("text") or step.get("state")
    said = [("saw", seen), ("did", step.get("action")), ("then", step.get("observation"))]
    lines = [f"{name}: {plain_text(str(value), width)}" for name, value in said if value not in (None, "")]
    if step.get("tool") == "error":
        lines.append("this failed with an error")
    return f"[step {t}]\n" + "\n".join(lines)
