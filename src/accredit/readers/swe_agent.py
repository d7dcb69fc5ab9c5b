"""SWE-agent trajectories (``.traj``, 0.x and 1.x) and mini-swe-agent.

A step is an entry of ``trajectory``; ``history`` holds demonstrations and shortened copies and gives only
the prompt. The entry's ``state`` (an object, or a JSON string before 1.0) is the environment after the step,
so the state before step k is made of state and observation of step k-1, the first of the prompt. Group: the
instance id of ``replay_config``, else the file's name. No rewards: join the evaluation's list of resolved
instances. mini-swe-agent: a list of messages, or an object with ``messages`` and ``info``; a step is an
assistant message, its action the one fenced command; state from the last observation.
Missing: rewards, tokens, log-probabilities.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from accredit.data import Rollout
from accredit.errors import DataError
from accredit.readers.chat import Message, Transcript, chat_message, content_text
from accredit.readers.foreign import (
    Origin,
    canonical,
    element_keys,
    from_document,
    letters,
    list_of,
    mapping_of,
    need,
    number_of,
    rest_of,
    text_of,
    top_keys,
)
from accredit.readers.formats import Format, Head, register
from accredit.readers.volatile import steady

__all__ = ["MINI_SWE_AGENT", "SWE_AGENT"]

_STATUS = re.compile(
    r"(?P<truncated>cost|context|limits?exceeded|time|early)|(?P<failed>error|api|environment)"
)


def _score(head: Head) -> int:
    keys = top_keys(head)
    if {"trajectory", "history"} <= keys:
        return 3
    # A long trajectory hides the other keys; its entries show what it is.
    return 3 if "trajectory" in keys and b'"thought"' in head.text and b'"observation"' in head.text else 0


def _rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
    entries = need(value, "trajectory", list, origin)
    info = mapping_of(value.get("info"))
    talk = Transcript(origin)
    for message in _prompt(value, entries, origin):
        talk.add(message._replace(sampled=False))
    state: str | None = None
    for entry in entries:
        state = _step(talk, entry, state, origin)
    instance = _instance(value, origin) or origin.stem.rpartition("/")[2]
    yield talk.rollout(
        id=origin.stem,
        group=instance,
        status=_status(text_of(info.get("exit_status"))),
        final_state=state,
        metadata=rest_of(value, "trajectory", "history"),
    )


def _prompt(value: Mapping[str, Any], entries: list[Any], origin: Origin) -> Iterator[Message]:
    """Yield what stood before the first turn, from the history or from the first step's query."""
    query = list_of(mapping_of(entries[0]).get("query")) if entries else []
    for raw in query or list_of(value.get("history")):
        message = chat_message(raw, origin)
        if not query and message.role == "assistant" and raw.get("is_demo") is not True:
            return
        yield message


def _step(talk: Transcript, entry: Any, state: str | None, origin: Origin) -> str:
    """Take one entry; return the key of the state after it."""
    if not isinstance(entry, Mapping):
        raise origin.wrong("an entry of trajectory", entry, "an object")
    observation = content_text(entry.get("observation"))
    extra = {"execution_time": t} if (t := number_of(entry.get("execution_time"))) is not None else {}
    talk.act(
        Message("assistant", text_of(entry.get("response") or entry.get("thought"))),
        state=state,
        snapshot=True,
        action=text_of(entry.get("action")).strip(),
        metadata=rest_of(entry, *_USED),
        extra=extra,
    )
    if observation:
        talk.observe(observation, "tool")
    return letters("snapshot", canonical(_snapshot(entry.get("state"), origin)), steady(observation))


_USED = ("action", "observation", "response", "state", "execution_time", "query", "thought", "messages")


def _snapshot(state: Any, origin: Origin) -> Any:
    """Return the environment as an object; before 1.0 it is the text of one."""
    if not isinstance(state, str):
        return state
    try:
        return origin.loads(state)
    except DataError:
        return steady(state)


def _instance(value: Mapping[str, Any], origin: Origin) -> str:
    replay = value.get("replay_config")
    if isinstance(replay, str):
        try:
            replay = origin.loads(replay)
        except DataError:
            return ""
    return text_of(mapping_of(mapping_of(replay).get("problem_statement")).get("id"))


def _status(exit_status: str) -> str | None:
    """Return truncated where a limit ended it (autosubmission included), failed where a fault did."""
    found = _STATUS.search(exit_status.lower())
    return found.lastgroup if found else "finished" if exit_status else None


SWE_AGENT = register(Format("swe-agent", "SWE-agent .traj", _score, from_document(_rollouts)))

# -- mini-swe-agent ---------------------------------------------------------------------------

_FENCED = re.compile(r"```[\w-]*[ \t]*\r?\n(.*?)\r?\n?```", re.DOTALL)


def _mini_score(head: Head) -> int:
    keys = top_keys(head)
    if {"messages", "info"} <= keys:
        return 3 if b'"mini' in head.text or b'"exit_status"' in head.text else 0
    return 2 if {"role", "content"} <= element_keys(head) else 0


def _mini_rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
    record = {"messages": value} if isinstance(value, list) else value
    info = mapping_of(mapping_of(record).get("info"))
    talk = Transcript(origin)
    for raw in need(record, "messages", list, origin):
        message = chat_message(raw, origin)
        fenced = _FENCED.findall(message.text)
        if message.role == "exit":
            continue
        if message.role == "assistant" and len(fenced) == 1 and not message.calls:
            talk.add(message, action=fenced[0].strip())
        else:
            talk.add(message)
    instance = text_of(mapping_of(record).get("instance_id") or info.get("instance_id"))
    yield talk.rollout(
        id=origin.stem,
        group=instance or origin.stem.rpartition("/")[2],
        status=_status(text_of(info.get("exit_status"))),
        metadata=rest_of(record, "messages"),
    )


MINI_SWE_AGENT = register(
    Format("mini-swe-agent", "mini-swe-agent: a list of messages", _mini_score, from_document(_mini_rollouts))
)
