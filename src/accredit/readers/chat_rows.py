"""OpenAI chat messages a row, or prompt and completion; rows of JSON Lines, Parquet or a data set.

A step is an assistant message (``weight: 0`` and ``trainable: false`` mark context), of ``messages`` or of
``completion``; items of the Responses API are a second dialect. ``choices`` of a stored response are the last
turn, with its log-probabilities, and its token ids where the server returned them. Id, group and reward are
columns of the user's own: the usual names are known, others are given by ``mapping``. Without a group, equal
prompts (of one training step) are a group. State from the last observation.
Missing: tokens (unless ``choices`` are kept), step rewards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from accredit.data import Rollout, Step
from accredit.errors import DataError
from accredit.readers.chat import Message, Transcript, chat_message, responses_messages
from accredit.readers.columns import NAMES, known_columns, mapping_hint
from accredit.readers.foreign import (
    Origin,
    element_keys,
    from_records,
    list_of,
    mapping_of,
    outcome_of,
    rest_of,
    task_group,
    text_of,
    top_keys,
)
from accredit.readers.formats import Format, Head, register

__all__ = ["CHAT"]

_CUT = ("length", "max_tokens")


def _score(head: Head) -> int:
    keys = top_keys(head) | element_keys(head)
    if "messages" in keys and "steps" not in keys:
        return 2
    return 2 if {"prompt", "completion"} <= keys and keys & set(NAMES["reward"]) else 0


def _columns(value: Any, origin: Origin) -> dict[str, str]:
    """Return the record's column of each field: the mapping's, else one of a usual name."""
    if not isinstance(value, Mapping):
        raise origin.wrong("a record", value, "an object")
    mapping = origin.reading.mapping
    for ours, theirs in mapping.items():
        if theirs not in value:
            shown = ", ".join(str(k)[:40] for k in list(value)[:20])
            raise DataError(
                f"there is no column {theirs!r} for {ours!r}; the columns are {shown}",
                code="ACC110",
                where=origin.where,
                hint=mapping_hint(list(value), ours),
            )
    taken = set(mapping.values())
    usual = {k: v for k, v in known_columns(list(value)).items() if v not in taken}
    return {**usual, **mapping}


def _rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
    at = _columns(value, origin)
    found = {ours: value[theirs] for ours, theirs in at.items()}
    talk = Transcript(origin)
    _fill(talk, found, value, origin)
    made = [_step(raw, origin) for raw in list_of(found.get("steps"))]
    outcome = outcome_of(found.get("reward"), origin)
    rollout = talk.rollout(
        id=text_of(found.get("id")) or origin.name,
        group=text_of(found.get("group")) or _prompted(talk, found, origin),
        reward=outcome.reward,
        rewards=outcome.rewards,
        policy_version=text_of(found.get("policy_version")) or None,
        agent=text_of(found.get("agent")) or None,
        status=_status(found, value),
        metadata=rest_of(value, *at.values(), "choices", "prompt_token_ids"),
    )
    yield msgspec.structs.replace(rollout, steps=made) if made else rollout


def _step(raw: Any, origin: Origin) -> Step:
    """Return a step that a row has as an object with the names of a native record."""
    if not isinstance(raw, Mapping):
        raise origin.wrong("a step", raw, "an object")
    known = {k: v for k, v in raw.items() if k in Step.__struct_fields__ and k != "extra"}
    return Step(**known, extra={str(k): v for k, v in raw.items() if k not in Step.__struct_fields__})


def _prompted(talk: Transcript, found: Mapping[str, Any], origin: Origin) -> str | None:
    if not talk.prompt:
        return None
    return task_group(origin, f"step {text_of(found.get('policy_version'))}", *map(list, talk.prompt))


def _status(found: Mapping[str, Any], value: Mapping[str, Any]) -> str | None:
    if isinstance(found.get("status"), str):
        return str(found["status"])
    choice = mapping_of(next(iter(list_of(value.get("choices"))), None))
    return "truncated" if choice.get("finish_reason") in _CUT else None


def _fill(talk: Transcript, found: Mapping[str, Any], value: Mapping[str, Any], origin: Origin) -> None:
    if isinstance(found.get("steps"), list):
        return
    if found.get("messages") is None and found.get("completion") is None:
        shown = ", ".join(str(k)[:40] for k in list(value)[:20])
        raise DataError(
            f"no column has messages or a completion; the columns are {shown}",
            code="ACC110",
            where=origin.where,
            hint=mapping_hint(list(value), "messages"),
        )
    if found.get("messages") is None:
        for message in _messages(found.get("prompt"), "user", origin):
            talk.add(message._replace(sampled=False))
    said = found["completion"] if found.get("messages") is None else found["messages"]
    for message in _messages(said, "assistant", origin):
        talk.add(message)
    for choice in list_of(value.get("choices"))[:1]:
        message = chat_message(mapping_of(choice).get("message"), origin)
        talk.add(message, **_tokens(mapping_of(choice), value))


def _messages(given: Any, role: str, origin: Origin) -> Iterable[Message]:
    """Return messages of a text, of a list (also as JSON in a string), or of Responses-API items."""
    if given is None:
        return ()
    if isinstance(given, str) and given.lstrip()[:2] in ("[{", "[]"):
        given = origin.loads(given)
    if isinstance(given, str):
        return (Message(role, given),)
    if not isinstance(given, list):
        raise origin.wrong("messages", given, "a list of messages, or a text")
    if any(isinstance(m, Mapping) and text_of(m.get("type")).startswith(_ITEMS) for m in given):
        return responses_messages(given, origin)
    return [chat_message(_turn(m), origin) for m in given]


_ITEMS = ("function_call", "reasoning")


def _turn(raw: Any) -> Any:
    """Return a message of the ``from``/``value`` dialect with the names of the usual one."""
    if isinstance(raw, Mapping) and "role" not in raw and isinstance(raw.get("from"), str):
        role = "assistant" if raw["from"] == "gpt" else raw["from"]
        return {**raw, "role": role, "content": raw.get("value")}
    return raw


def _tokens(choice: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
    """Return log-probabilities and, where the server returned them, ids of a stored response's turn."""
    content = list_of(mapping_of(choice.get("logprobs")).get("content"))
    logprobs = [mapping_of(token).get("logprob") for token in content]
    ids = list_of(choice.get("token_ids"))
    found = {"tokens": ids, "prompt_tokens": list_of(value.get("prompt_token_ids")), "logprobs": logprobs}
    return {name: numbers for name, numbers in found.items() if numbers}


CHAT = register(Format("chat", "chat messages, or prompt and completion", _score, from_records(_rollouts)))
