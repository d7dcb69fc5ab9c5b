r"""ReAct and FireAct dictionaries: question id -> reward, em, f1, gt, pred, traj.

A step is an assistant message (FireAct), or a numbered thought and action of one text (ReAct: ``Thought 1:
... Action 1: search[x] Observation 1: ...``). Its action is what follows the first ``Action:``: later ones
in the same message were never executed. Group: the question id. The line ``Episode finished, reward = ...``
tells the outcome; it becomes metadata and enters no state or observation. State from the last observation.
Missing: tokens, log-probabilities, step rewards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from accredit.data import Rollout
from accredit.readers.chat import Message, Transcript, chat_message
from accredit.readers.foreign import (
    Origin,
    element_keys,
    from_document,
    inner_keys,
    list_of,
    rest_of,
    reward_of,
    text_of,
    top_keys,
)
from accredit.readers.formats import Format, Head, register

__all__ = ["REACT"]

_ACTION = re.compile(r"^Action(?: \d+)?: *(.*)$", re.MULTILINE)
_LEAK = re.compile(r"^.*Episode finished, reward ?=.*$", re.MULTILINE)
_PART = re.compile(r"^(Thought|Action|Observation) \d+: ?", re.MULTILINE)
_MARKS = {"traj", "reward"}
_ANSWERS = {"gt", "gt_answer", "em", "f1", "pred", "answer"}


def _score(head: Head) -> int:
    for keys in (top_keys(head), element_keys(head), inner_keys(head)):
        if keys >= _MARKS and keys & _ANSWERS:
            return 3
    return 0


def _rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
    for name, record in _records(value, origin):
        yield _rollout(name, record, origin)


def _records(value: Any, origin: Origin) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        for i, record in enumerate(value):
            found = record.get("question_idx", i) if isinstance(record, Mapping) else i
            yield text_of(found), record
    elif isinstance(value, Mapping) and "traj" not in value:
        yield from value.items()
    elif isinstance(value, Mapping):
        yield text_of(value.get("question_idx", origin.number)), value
    else:
        raise origin.wrong("the document", value, "an object of questions")


def _rollout(name: str, record: Any, origin: Origin) -> Rollout:
    if not isinstance(record, Mapping) or not isinstance(record.get("traj"), str | list):
        raise origin.wrong(f"question {name!r}", record, "an object with a traj")
    talk, leaks = Transcript(origin), []
    for message in _messages(record, origin):
        leaks += _LEAK.findall(message.text)
        shown = message._replace(text=_LEAK.sub("", message.text).strip())
        if message.role == "assistant" and message.sampled:
            action = _ACTION.search(message.text)
            talk.act(message, action=action.group(1).strip() if action else None)
        elif shown.text or not leaks:
            talk.add(shown)
    parts = {k: reward_of(record[k]) for k in ("em", "f1") if k in record}
    left = rest_of(record, "traj", "reward", "em", "f1", "prompt") or {}
    return talk.rollout(
        id=f"{origin.stem}/{name}",
        group=name,
        reward=reward_of(record.get("reward")),
        rewards=parts or None,
        metadata=left | ({"ending": leaks[-1]} if leaks else {}) or None,
    )


def _messages(record: Mapping[str, Any], origin: Origin) -> Iterator[Message]:
    for raw in list_of(record.get("prompt")):
        yield chat_message(raw, origin)._replace(sampled=False)
    if isinstance(record["traj"], list):
        yield from (chat_message(raw, origin) for raw in record["traj"])
    else:
        yield from _told(record["traj"])


def _told(text: str) -> Iterator[Message]:
    """Yield the messages of a trajectory that is one text of numbered parts."""
    question, *parts = _PART.split(text)
    yield Message("user", question.strip())
    said: list[str] = []
    for kind, body in zip(parts[::2], parts[1::2], strict=True):
        if kind == "Observation":
            if said:
                yield Message("assistant", "\n".join(said))
            yield Message("user", f"Observation: {body.strip()}")
            said = []
        else:
            said.append(f"{kind}: {body.strip()}")
    if said:
        yield Message("assistant", "\n".join(said))


REACT = register(Format("react", "ReAct / FireAct dictionaries", _score, from_document(_rollouts)))
