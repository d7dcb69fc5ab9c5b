"""Spans of GenAI calls in one shape, whatever exported them, and the messages in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from accredit.errors import DataError
from accredit.readers.chat import Message, chat_message
from accredit.readers.foreign import Origin, list_of, mapping_of, text_of

__all__ = ["Span", "messages_of", "spans_of"]

_KINDS = {
    "chat": "chat",
    "text_completion": "chat",
    "generate_content": "chat",
    "execute_tool": "tool",
    "generation": "chat",
    "tool": "tool",
    "llm": "chat",
    "agent": "agent",
    "invoke_agent": "agent",
}
Events: TypeAlias = Sequence[tuple[str, Mapping[str, Any]]]
_VALUES = ("stringValue", "intValue", "doubleValue", "boolValue", "bytesValue")


@dataclass(slots=True)
class Span:
    """One span: where it hangs, when it ran, what it was, what went in and out.

    Args:
        trace: id of its trace.
        id: its id.
        parent: id of the span above, "" at the top.
        name: its name.
        start: seconds since 1970.
        end: seconds since 1970.
        kind: chat, tool, agent or "".
        agent: name of the agent that it is a run of, "" for others.
        attributes: as exported, JSON texts unpacked where messages stand in them.
        events: name and attributes of its events.
        input: what went in (Langfuse), else None.
        output: what came out.
        scores: named scores given to it.
        failed: whether it ended in an error.
        about: further facts of the whole trace.
    """

    trace: str
    id: str
    parent: str
    name: str
    start: float
    end: float
    kind: str = ""
    agent: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    events: Events = ()
    input: Any = None
    output: Any = None
    scores: dict[str, Any] = field(default_factory=dict)
    failed: bool = False
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """Model that answered."""
        names = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
        return next((text_of(self.attributes[k]) for k in names if self.attributes.get(k)), "")

    @property
    def ended(self) -> str:
        """Why the answer ended, as recorded."""
        return text_of(self.attributes.get("gen_ai.response.finish_reasons"))


def spans_of(value: Any, origin: Origin) -> Iterator[Span]:
    """Yield the spans of a value: an OTLP export, a span, a Langfuse export or observation.

    Raises:
        DataError: if a span lacks its ids.
    """
    record = mapping_of(value)
    resources = record.get("resourceSpans", record.get("resource_spans"))
    if isinstance(resources, list):
        for resource in map(mapping_of, resources):
            yield from _of_resource(resource, origin)
    elif "observations" in record:
        yield from _langfuse(record, origin)
    elif "parentObservationId" in record:
        yield _observation(record, origin)
    else:
        yield _span(record, origin)


def _of_resource(resource: Mapping[str, Any], origin: Origin) -> Iterator[Span]:
    common = _attributes(mapping_of(resource.get("resource")).get("attributes"))
    for scope in map(mapping_of, list_of(resource.get("scopeSpans", resource.get("scope_spans")))):
        for raw in list_of(scope.get("spans")):
            span = _span(mapping_of(raw), origin)
            span.attributes = {**common, **span.attributes}
            yield span


def _span(raw: Mapping[str, Any], origin: Origin) -> Span:
    context = mapping_of(raw.get("context")) or raw
    trace = text_of(context.get("traceId") or context.get("trace_id"))
    name = text_of(context.get("spanId") or context.get("span_id"))
    if not trace or not name:
        raise origin.wrong("a span", raw, "an object with a trace id and a span id")
    attributes = _attributes(raw.get("attributes"))
    events = [
        (text_of(e.get("name")), _attributes(e.get("attributes")) | dict(mapping_of(e.get("body"))))
        for e in map(mapping_of, list_of(raw.get("events")))
    ]
    status = mapping_of(raw.get("status"))
    kind = _kind(attributes, text_of(raw.get("name")))
    tool = attributes.get("gen_ai.tool.call.result", attributes.get("output.value"))
    return Span(
        trace,
        name,
        text_of(raw.get("parentSpanId") or raw.get("parent_span_id") or raw.get("parent_id")),
        text_of(raw.get("name")),
        _time(raw.get("startTimeUnixNano", raw.get("start_time"))),
        _time(raw.get("endTimeUnixNano", raw.get("end_time"))),
        kind,
        _agent_of(attributes, kind, text_of(raw.get("name"))),
        attributes,
        events,
        output=tool if kind == "tool" else None,
        scores=_evaluations(attributes, events),
        failed=status.get("code") in (2, "STATUS_CODE_ERROR") or status.get("status_code") == "ERROR",
    )


def _attributes(given: Any) -> dict[str, Any]:
    """Return attributes as an object: OTLP writes a list of keys with typed values."""
    if isinstance(given, Mapping):
        return dict(given)
    pairs = (mapping_of(p) for p in list_of(given))
    return {text_of(p.get("key")): _value(mapping_of(p.get("value"))) for p in pairs}


def _value(typed: Mapping[str, Any]) -> Any:
    if "arrayValue" in typed:
        return [_value(mapping_of(v)) for v in list_of(mapping_of(typed["arrayValue"]).get("values"))]
    if "kvlistValue" in typed:
        return _attributes(mapping_of(typed["kvlistValue"]).get("values"))
    found = next((typed[k] for k in _VALUES if k in typed), None)
    return _number(found) if "intValue" in typed else found


def _number(text: Any) -> Any:
    """Return a 64-bit number that JSON writes as a text."""
    return int(text) if isinstance(text, str) and re.fullmatch(r"-?\d{1,19}", text) else text


def _time(given: Any) -> float:
    """Return seconds: of nanoseconds (OTLP) or of an ISO date; 0 if neither."""
    if isinstance(given, str) and given.isdigit() and len(given) <= 20:
        given = int(given)
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given < 1e25:
        return given / 1e9
    try:
        return datetime.fromisoformat(text_of(given).replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def _kind(attributes: Mapping[str, Any], name: str) -> str:
    operation = attributes.get("gen_ai.operation.name") or attributes.get("openinference.span.kind")
    operation = operation or attributes.get("traceloop.span.kind") or attributes.get("llm.request.type")
    found = _KINDS.get(text_of(operation).lower())
    if found is None and any(k.startswith(("gen_ai.prompt.", "llm.input_messages.")) for k in attributes):
        return "chat"
    return found or ("agent" if name.startswith("invoke_agent") else "")


def _agent_of(attributes: Mapping[str, Any], kind: str, name: str) -> str:
    """Return the agent that a span runs; calls and tools name theirs too and are no runs."""
    if kind in ("chat", "tool"):
        return ""
    found = text_of(attributes.get("gen_ai.agent.name") or attributes.get("agent_name"))
    return found or (name.removeprefix("invoke_agent ") if kind == "agent" else "")


def _evaluations(attributes: Mapping[str, Any], events: Events) -> dict[str, Any]:
    found = {}
    for given in (attributes, *(a for _, a in events)):
        value = given.get("gen_ai.evaluation.score.value")
        if value is not None:
            found[text_of(given.get("gen_ai.evaluation.name")) or "score"] = value
    return found


# -- Langfuse -----------------------------------------------------------------------------------


def _langfuse(record: Mapping[str, Any], origin: Origin) -> Iterator[Span]:
    trace = mapping_of(record.get("trace"))
    name = text_of(trace.get("id"))
    given: dict[str, dict[str, Any]] = {}
    for score in map(mapping_of, list_of(trace.get("scores")) + list_of(record.get("scores"))):
        value = score.get("value") if score.get("value") is not None else score.get("stringValue")
        given.setdefault(text_of(score.get("observationId")), {})[text_of(score.get("name"))] = value
    about = {k: trace[k] for k in ("tags", "sessionId", "metadata") if trace.get(k)}
    yield Span(
        name, f"trace {name}", "", text_of(trace.get("name")), 0, 0, scores=given.get("", {}), about=about
    )
    for raw in list_of(record["observations"]):
        span = _observation(mapping_of(raw), origin)
        span.trace = span.trace or name
        span.scores = given.get(span.id, {})
        yield span


def _observation(raw: Mapping[str, Any], origin: Origin) -> Span:
    if not text_of(raw.get("id")):
        raise origin.wrong("an observation", raw, "an object with an id")
    attributes = mapping_of(mapping_of(_opened(raw.get("metadata"), origin)).get("attributes"))
    kind = _KINDS.get(text_of(raw.get("type")).lower(), "")
    usage = {k: v for k, v in mapping_of(raw.get("usageDetails")).items() if k in ("input", "output")}
    model = {"gen_ai.response.model": raw["model"]} if raw.get("model") else {}
    return Span(
        text_of(raw.get("traceId")),
        text_of(raw["id"]),
        text_of(raw.get("parentObservationId")),
        text_of(raw.get("name")),
        _time(raw.get("startTime")),
        _time(raw.get("endTime")),
        kind,
        _agent_of(attributes, kind, text_of(raw.get("name"))),
        {**attributes, **usage, **model},
        input=_opened(raw.get("input"), origin),
        output=_opened(raw.get("output"), origin),
        failed=raw.get("level") == "ERROR",
    )


# -- messages -----------------------------------------------------------------------------------

_EVENTS = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_KEYS = {
    "input": ("gen_ai.input.messages", "gen_ai.prompt", "input.value"),
    "output": ("gen_ai.output.messages", "gen_ai.completion", "output.value"),
}
_FLAT = {
    "input": ("llm.input_messages.", "gen_ai.prompt."),
    "output": ("llm.output_messages.", "gen_ai.completion."),
}


def messages_of(span: Span, side: str, origin: Origin) -> list[Message]:
    """Return the messages that went into a call, or came out of it; none where content is switched off.

    Args:
        span: of a call.
        side: input or output.
        origin: its place.

    Raises:
        DataError: if a message has no role.
    """
    given = span.input if side == "input" else span.output
    places = (span.attributes, *(attributes for _, attributes in span.events))
    found = [given, *(p[k] for k in _KEYS[side] for p in places if k in p)]
    for value in found:
        if messages := _as_messages(_opened(value, origin), side, origin):
            return messages
    flat = next((f for prefix in _FLAT[side] if (f := _unflattened(span.attributes, prefix))), [])
    return [chat_message(raw, origin) for raw in flat] or _told_by_events(span, side, origin)


def _opened(value: Any, origin: Origin) -> Any:
    """Return the JSON value of a text that holds one (twice, where it was packed twice)."""
    for _ in range(2):
        if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{", '"'):
            break
        try:
            value = origin.loads(value)
        except DataError:
            break
    return value


def _as_messages(value: Any, side: str, origin: Origin) -> list[Message]:
    inner = mapping_of(value).get("messages")
    raws = inner if isinstance(inner, list) else value if isinstance(value, list) else [value]
    if raws and all(isinstance(mapping_of(raw).get("role"), str) for raw in raws):
        return [chat_message(raw, origin) for raw in raws]
    if isinstance(value, str) and value:
        return [Message("user" if side == "input" else "assistant", value)]
    return []


def _told_by_events(span: Span, side: str, origin: Origin) -> list[Message]:
    if side == "output":
        choices = (_choice(a) for name, a in span.events if name == "gen_ai.choice")
        return [chat_message({"role": "assistant", **raw}, origin) for raw in choices]
    told = ((_EVENTS[name], a) for name, a in span.events if name in _EVENTS)
    return [chat_message({"role": role, **a}, origin) for role, a in told]


def _choice(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping_of(attributes.get("message")) or attributes


_ROOM = 10_000


def _unflattened(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Return the objects that are written one attribute a field, as in ``<prefix>0.role``."""
    tree: dict[str, Any] = {}
    for key, value in attributes.items():
        if key.startswith(prefix):
            holder = tree
            *way, last = [p for p in key[len(prefix) :].split(".") if p not in ("message", "tool_call")]
            for part in way[:8]:
                holder = holder.setdefault(part, {})
                if not isinstance(holder, dict):
                    break
            else:
                holder[last] = value
    return [raw for raw in _listed(tree) if isinstance(raw.get("role"), str)]


def _listed(tree: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return objects by number, with the lists inside them in order."""
    found = []
    for number in sorted((k for k in tree if k.isdigit() and len(k) < 6), key=int)[:_ROOM]:
        raw = tree[number]
        if isinstance(raw, dict):
            calls = raw.get("tool_calls")
            found.append(raw | {"tool_calls": _listed(calls)} if isinstance(calls, dict) else raw)
    return found
