"""OpenTelemetry GenAI spans as JSON (OTLP, span lists), and Langfuse exports.

A rollout is a trace (a conversation, where several traces share a ``gen_ai.conversation.id``); a step is a
chat span (Langfuse: GENERATION), in order of start; agent spans repeat their children's output and are no
steps. Agent: the nearest agent span above. Action: the output message. Observation: the tool spans that
follow. State: the last observation in the call's own input. Where chat spans of different agents overlap in
time, each of these agents' runs is a rollout of its own (``branch_kind: subagent``), not a step in between.
Outcome: ``gen_ai.evaluation.*`` and Langfuse scores outside of calls; those of a call are signals
``evaluation.<name>`` of its step. Group: a ``task.id`` attribute, else a hash of the first input. Dialects:
``gen_ai.input.messages``, ``gen_ai.prompt``, message events, OpenInference, Traceloop. Without content
(switched off) steps have no state and no action. The spans of one file are held together in memory.
Missing: tokens, log-probabilities, usually rewards.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from accredit.data import Rollout
from accredit.errors import DataError
from accredit.readers.chat import Message, Transcript, chat_message, metadata_of, usage_of
from accredit.readers.foreign import (
    Origin,
    element_keys,
    mapping_of,
    outcome_of,
    reward_of,
    task_group,
    text_of,
    top_keys,
    values,
)
from accredit.readers.formats import Format, Head, Item, Reading, register
from accredit.readers.spans import Span, messages_of, spans_of

__all__ = ["OTEL"]

_TASK = ("task.id", "task_id", "gen_ai.task.id", "example_id", "instance_id", "problem_id", "dataset.item.id")


def _score(head: Head) -> int:
    keys = top_keys(head)
    if keys & {"resourceSpans", "resource_spans"} or {"trace", "observations"} <= keys:
        return 3
    keys |= element_keys(head)
    if {"traceId", "spanId"} <= keys or {"context", "parent_id", "attributes"} <= keys:
        return 3
    return 2 if {"trace_id", "span_id"} <= keys or {"traceId", "parentObservationId"} <= keys else 0


def _items(reading: Reading) -> Iterator[Item]:
    traces: dict[str, list[Span]] = {}
    origin = Origin(reading.source.path, reading.source.name, 0, reading.builder.log, reading)
    for where, value in values(reading):
        place = Origin(reading.source.path, where, 0, reading.builder.log, reading)
        if isinstance(value, DataError):
            yield Item(where, value)
            continue
        try:
            for span in spans_of(value, place):
                traces.setdefault(span.trace, []).append(span)
        except DataError as error:
            yield Item(where, error)
    for name, spans in _conversations(traces).items():
        where = f"{origin.where} trace {name[:64]}"
        try:
            for rollout in _trace(name, spans, Origin(origin.path, where, 0, origin.log, reading)):
                yield Item(where, rollout)
        except DataError as error:
            yield Item(where, error)


def _conversations(traces: dict[str, list[Span]]) -> dict[str, list[Span]]:
    """Return the spans by rollout: by trace, joined where traces share one conversation."""
    named: dict[str, set[str]] = {}
    for trace, spans in traces.items():
        for span in spans:
            if talk := text_of(span.attributes.get("gen_ai.conversation.id")):
                named.setdefault(talk, set()).add(trace)
    shared = {trace: talk for talk, found in named.items() if len(found) > 1 for trace in sorted(found)}
    joined: dict[str, list[Span]] = {}
    for trace, spans in traces.items():
        joined.setdefault(shared.get(trace, trace), []).extend(spans)
    return joined


# Deeper than any real nesting of agents, and the end of parents that go in a circle.
_LEVELS = 100

# -- one trace ----------------------------------------------------------------------------------


def _trace(name: str, spans: list[Span], origin: Origin) -> Iterator[Rollout]:
    spans = sorted(spans, key=lambda s: (s.start, s.end))
    above = {s.id: s for s in spans}
    lanes = _lanes([s for s in spans if s.kind == "chat"], above)
    if not any(lanes.values()):
        return
    prompt = _shown(next(calls for calls in lanes.values() if calls)[0], origin)
    fields = {
        "group": _task(spans) or task_group(origin, [m.text for m in prompt if m.role != "assistant"]),
        "status": "failed" if any(s.failed for s in spans if not s.parent) else None,
    }
    outcome = outcome_of(_scores(spans, above), origin) if _scores(spans, above) else None
    trunk = lanes.pop("")
    tools = [s for s in spans if s.kind == "tool"]
    talk = _talk(trunk, tools, above, origin)
    if trunk:
        scored = {"reward": outcome.reward, "rewards": outcome.rewards} if outcome else {}
        yield talk.rollout(id=name, metadata=_about(spans), **fields, **scored)
    for lane, calls in lanes.items():
        begun = sum(s.start < calls[0].start for s in trunk)
        place = {"parent": name, "fork_step": begun, "branch_kind": "subagent"} if trunk else {}
        branch = _talk(calls, tools, above, origin)
        yield branch.rollout(id=f"{name}/{lane}", agent=_agent(calls[0], above), **fields, **place)


def _talk(calls: list[Span], tools: list[Span], above: Mapping[str, Span], origin: Origin) -> Transcript:
    """Return the steps of the calls, each followed by the tools that its agent ran before the next."""
    talk, after = Transcript(origin), _by_call(calls, tools, above)
    for i, call in enumerate(calls):
        context = _shown(call, origin)
        if not i:
            for message in context:
                talk.add(message._replace(sampled=False))
        said = messages_of(call, "output", origin)
        if not said:
            origin.note("ACC858", "a call has no content: its step has neither state nor action")
        talk.act(
            said[-1] if said else Message("assistant"),
            context=context,
            action=None if said else "",
            agent=_agent(call, above),
            metadata=metadata_of(span=call.id, parent=call.parent, model=call.model, ended=call.ended),
            extra=usage_of(call.attributes) | {f"evaluation.{k}": v for k, v in _numbers(call.scores)},
        )
        for tool in after[i]:
            talk.observe(text_of(tool.output), "tool")
    return talk


def _by_call(calls: list[Span], tools: list[Span], above: Mapping[str, Span]) -> list[list[Span]]:
    """Return the tools after each call and before the next, if the same run of an agent made them."""
    starts, found = [call.start for call in calls], [list[Span]() for _ in calls]
    for tool in tools:
        i = bisect_right(starts, tool.start) - 1
        if i >= 0 and _run(calls[i], above) == _run(tool, above):
            found[i].append(tool)
    return found


def _numbers(scores: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in scores.items():
        if (number := reward_of(value)) is not None:
            yield name, number


def _shown(call: Span, origin: Origin) -> list[Message]:
    system = call.attributes.get("gen_ai.system_instructions")
    first = (
        [Message("system", chat_message({"role": "system", "content": system}, origin).text)]
        if system
        else []
    )
    return first + messages_of(call, "input", origin)


def _lanes(calls: list[Span], above: Mapping[str, Span]) -> dict[str, list[Span]]:
    """Return the calls by run: "" for those in sequence, a run's span id where runs overlap in time."""
    overlapping: set[str] = set()
    alone: dict[str, float] = {}  # runs that overlapped none so far, and when their last call ends
    latest = ("", 0.0)
    for call in calls:
        run = _run(call, above)
        alone = {other: end for other, end in alone.items() if end > call.start}
        others = {other for other in alone if other != run}
        if others or (latest[0] != run and latest[1] > call.start):
            overlapping |= others | {run}
            alone = {}
        if run not in overlapping:
            alone[run] = max(call.end, alone.get(run, 0.0))
        latest = max(latest, (run, call.end), key=lambda known: known[1])
    lanes: dict[str, list[Span]] = {"": []}
    for call in calls:
        run = _run(call, above)
        lanes.setdefault(run if run in overlapping else "", []).append(call)
    return lanes


def _up(span: Span, above: Mapping[str, Span]) -> Iterator[Span]:
    for _ in range(_LEVELS):
        if span.parent not in above:
            return
        span = above[span.parent]
        yield span


def _run(span: Span, above: Mapping[str, Span]) -> str:
    """Return the id of the nearest run of an agent above a span, "" if there is none."""
    return next((s.id for s in _up(span, above) if s.agent), "")


def _agent(span: Span, above: Mapping[str, Span]) -> str | None:
    return span.agent or next((s.agent for s in _up(span, above) if s.agent), None)


def _task(spans: Iterable[Span]) -> str:
    found = (text_of(s.attributes.get(k)) for k in _TASK for s in spans)
    return next(filter(None, found), "")


def _scores(spans: Iterable[Span], above: Mapping[str, Span]) -> dict[str, Any]:
    return {k: v for s in spans if s.kind != "chat" for k, v in s.scores.items()}


def _about(spans: list[Span]) -> dict[str, Any] | None:
    root = next((s for s in spans if not s.parent), spans[0])
    return metadata_of(name=root.name, attributes=dict(mapping_of(root.attributes)), **root.about)


OTEL = register(Format("otel", "OpenTelemetry GenAI spans, Langfuse export", _score, _items))
