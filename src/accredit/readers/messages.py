"""Messages of the chat dialects in plain terms: who says what and calls which tool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from accredit.errors import DataError
from accredit.readers.foreign import Origin, canonical, list_of, text_of

__all__ = [
    "Call",
    "Message",
    "action_key",
    "call_of",
    "chat_message",
    "content_text",
    "responses_messages",
]


class Call(NamedTuple):
    """A tool call: name, arguments (JSON value), id."""

    name: str
    arguments: Any = None
    id: str = ""

    @property
    def key(self) -> str:
        """Name and canonical JSON of the arguments: spelling and order of keys do not matter."""
        return f"{self.name} {canonical(self.arguments)}"


class Message(NamedTuple):
    """A message in plain terms.

    Args:
        role: system, user, assistant, tool, or a role of the format's own.
        text: what it says.
        calls: tool calls it makes.
        reasoning: thoughts beside the text.
        name: of the author (agent or tool).
        sampled: False: an assistant message that the policy did not sample here (context).
        raw: what it was made of.
    """

    role: str
    text: str = ""
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    name: str = ""
    sampled: bool = True
    raw: Any = None


def action_key(message: Message) -> str:
    """Return what a turn did: its calls by name and arguments, one a line; else its text, stripped.

    A turn with neither calls nor text is known by its reasoning.

    Example:
        >>> action_key(Message("assistant", "Let me look.", (Call("ls", {"p": "/"}),)))
        'ls {"p":"/"}'
        >>> action_key(Message("assistant", " done "))
        'done'
    """
    if message.calls:
        return "\n".join(call.key for call in message.calls)
    return message.text.strip() or message.reasoning.strip()


# -- OpenAI's dialect and relatives -----------------------------------------------------------

_ROLES = {"developer": "system", "human": "user", "ai": "assistant", "model": "assistant", "function": "tool"}
_ANSWERS = ("response", "result")
_TEXTS = ("text", "content", "thinking", "reasoning", "summary", "refusal", "output", "response", "result")


def chat_message(raw: Any, origin: Origin) -> Message:
    """Return a chat message: content as text, null or parts; calls as objects or as JSON strings.

    Args:
        raw: an object with ``role`` and ``content`` (or ``parts``); ``tool_calls`` nested as OpenAI has
            them, flat (``name``, ``arguments``), or with ``function`` a name; ``weight: 0`` and
            ``trainable: false`` mark context.
        origin: its place.

    Raises:
        DataError: if it is no object or has no role.
    """
    if not isinstance(raw, Mapping) or not isinstance(raw.get("role"), str):
        raise origin.wrong("a message", raw, "an object with a role")
    parts = raw.get("content", raw.get("parts"))
    inner = [p for p in list_of(parts) if isinstance(p, Mapping)]
    calls = [c for c in inner if c.get("type") in ("tool_use", "tool_call")] + _calls(raw, origin)
    thought = raw.get("reasoning_content") or raw.get("reasoning") or raw.get("thinking")
    return Message(
        _ROLES.get(raw["role"].lower(), raw["role"].lower()),
        content_text([p for p in parts if not _is_thought(p)] if isinstance(parts, list) else parts),
        tuple(call_of(c, origin) for c in calls),
        content_text(thought or [p for p in inner if _is_thought(p)]),
        text_of(raw.get("name")),
        raw.get("weight") != 0 and raw.get("trainable") is not False,
        raw,
    )


def _calls(raw: Mapping[str, Any], origin: Origin) -> list[Any]:
    calls = raw.get("tool_calls")
    if isinstance(calls, str) and calls.strip():
        calls = origin.loads(calls)
    legacy = raw.get("function_call")
    return list_of(calls) + ([legacy] if isinstance(legacy, Mapping) else [])


def _is_thought(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in ("reasoning", "thinking", "redacted_thinking")


def call_of(raw: Any, origin: Origin) -> Call:
    """Return a tool call given as an object or as the JSON string of one.

    Raises:
        DataError: if it names no function.
    """
    found = origin.loads(raw) if isinstance(raw, str) else raw
    if not isinstance(found, Mapping):
        raise origin.wrong("a tool call", raw, "an object with a name")
    inner = found.get("function")
    body = inner if isinstance(inner, Mapping) else found
    name = inner if isinstance(inner, str) else body.get("name")
    if not isinstance(name, str):
        raise origin.wrong("a tool call", raw, "an object with a name")
    given = next((body[k] for k in ("arguments", "input", "args", "kwargs") if k in body), None)
    return Call(name, _arguments(given, origin), text_of(found.get("id") or found.get("call_id")))


def _arguments(given: Any, origin: Origin) -> Any:
    """Return arguments as a JSON value; a text that is not JSON (the policy's mistake) stays a text."""
    if not isinstance(given, str):
        return given
    try:
        return origin.loads(given)
    except DataError:
        return given


def content_text(content: Any) -> str:
    r"""Return the text of a message's content: a string, parts joined by line ends, media by their type.

    Example:
        >>> content_text([{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {}}])
        'see\n[image_url]'
    """
    if isinstance(content, list):
        shown = [_part_text(part) for part in content]
        return "\n".join(text for text in shown if text)
    return _part_text(content) if isinstance(content, Mapping) else text_of(content)


def _part_text(part: Any) -> str:
    if not isinstance(part, Mapping):
        return text_of(part)
    kind = text_of(part.get("type"))
    if kind in ("tool_use", "tool_call"):
        return ""
    for name in _TEXTS:
        if isinstance(part.get(name), str | list):
            return content_text(part[name])
        if name in _ANSWERS and part.get(name) is not None:
            return text_of(part[name])
    return f"[{kind}]" if kind else canonical(part)


# -- the Responses API ------------------------------------------------------------------------


def responses_messages(items: Iterable[Any], origin: Origin) -> Iterator[Message]:
    """Yield the messages of Responses-API items; a run of the policy's items is one message.

    Reasoning, assistant messages and calls that follow each other are one turn; it ends with an output of a
    call or a message of anyone else. ``raw`` is the list of the items.

    Raises:
        DataError: if an item is no object, or a call has no name.
    """
    turn: list[Message] = []
    for item in items:
        message = _responses_item(item, origin)
        if message.role == "assistant":
            turn.append(message)
            continue
        if turn:
            yield _joined(turn)
            turn = []
        yield message
    if turn:
        yield _joined(turn)


def _responses_item(item: Any, origin: Origin) -> Message:
    if not isinstance(item, Mapping):
        raise origin.wrong("an item", item, "an object")
    kind = text_of(item.get("type")) or "message"
    if kind == "reasoning":
        shown = content_text(item.get("content")) or content_text(item.get("summary"))
        return Message("assistant", reasoning=shown, raw=item)
    if kind.endswith("_output"):
        return Message("tool", content_text(item.get("output")), raw=item)
    if kind.endswith("_call"):
        return Message("assistant", calls=(_responses_call(kind, item, origin),), raw=item)
    return chat_message(item, origin)._replace(raw=item)


def _responses_call(kind: str, item: Mapping[str, Any], origin: Origin) -> Call:
    if "name" in item:
        return call_of(item, origin)
    given = item.get("action") or item.get("queries") or item.get("code") or item.get("input")
    return Call(kind.removesuffix("_call"), given, text_of(item.get("call_id") or item.get("id")))


def _joined(turn: list[Message]) -> Message:
    return Message(
        "assistant",
        "\n".join(m.text for m in turn if m.text),
        tuple(call for m in turn for call in m.calls),
        "\n".join(m.reasoning for m in turn if m.reasoning),
        next((m.name for m in turn if m.name), ""),
        all(m.sampled for m in turn),
        [m.raw for m in turn],
    )
