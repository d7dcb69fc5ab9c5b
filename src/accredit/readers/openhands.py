"""OpenHands: lists of events, and ``output.jsonl`` of the issue resolver or of an evaluation.

A step is an action of the agent (``source: agent``; in the old flat form, which has no source, every action
but the first message); actions from one model response are one step. Observations belong to the action that
``cause`` names, else to the one before. Changes of the agent's state, ``null`` observations, recalls and
condensations are the harness and no steps. Action key: kind and arguments of the action without what the
harness adds. Group: owner/repo#number of the issue, the instance id, else a hash of the task. Reward:
``success`` of the resolver, ``resolved`` of an evaluation's report; event lists have none. State from the
last observation. Missing: tokens, log-probabilities, step rewards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from accredit.data import Rollout
from accredit.readers.chat import Call, Message, Transcript, content_text, metadata_of, usage_of
from accredit.readers.foreign import (
    Origin,
    element_keys,
    from_document,
    from_records,
    mapping_of,
    need,
    rest_of,
    reward_of,
    task_group,
    text_of,
    top_keys,
)
from accredit.readers.formats import Format, Head, register

__all__ = ["OPENHANDS", "OPENHANDS_EVENTS"]

_HARNESS_ACTIONS = frozenset(
    ("change_agent_state", "null", "system", "recall", "condensation", "condensation_request", "initialize")
)
_HARNESS_OBSERVATIONS = frozenset(("agent_state_changed", "null", "condense", "server_ready"))
# What the harness adds to an action's arguments, and the fields of the old flat form that are no arguments.
_NO_ARGUMENTS = frozenset(
    "thought action source id timestamp message args timeout cause tool_call_metadata llm_metrics "
    "keep_prompt is_confirmed confirmation_state action_risk security_risk kernel_init_code "
    "translated_ipython_code impl_source hidden blocking wait_for_response images_urls image_urls".split()
)


def _score(head: Head) -> int:
    keys = top_keys(head)
    if "history" in keys and ("git_patch" in keys or {"instance_id", "test_result"} <= keys):
        return 3
    return 2 if "instruction" in keys and {"issue", "issue_type"} <= keys else 0


def _events_score(head: Head) -> int:
    keys = element_keys(head)
    return 3 if {"source", "timestamp"} <= keys and keys & {"action", "observation"} else 0


def _records(value: Any, origin: Origin) -> Iterator[Rollout]:
    talk = _transcript(_flat(need(value, "history", list, origin)), origin)
    issue = mapping_of(value.get("issue"))
    failed = bool(value.get("error"))
    if issue.get("number") is not None:
        group: str | None = (
            f"{text_of(issue.get('owner'))}/{text_of(issue.get('repo'))}#{text_of(issue['number'])}"
        )
    else:
        group = text_of(value.get("instance_id")) or task_group(origin, value.get("instruction"))
    yield talk.rollout(
        id=origin.name,
        group=group,
        reward=None if failed else _reward(value),
        status="failed" if failed else None,
        metadata=rest_of(value, "history", "success"),
    )


def _reward(value: Mapping[str, Any]) -> float | None:
    result = mapping_of(value.get("test_result"))
    places = (value, mapping_of(value.get("report")), result, mapping_of(result.get("report")))
    return next(
        (reward_of(p[k]) for p in places for k in ("success", "resolved") if p.get(k) is not None), None
    )


def _flat(history: list[Any]) -> Iterator[Any]:
    """Yield the events; some versions pair each action with its observation."""
    for entry in history:
        yield from entry if isinstance(entry, list) else [entry]


def _event_list(value: Any, origin: Origin) -> Iterator[Rollout]:
    if not isinstance(value, list):
        raise origin.wrong("the document", value, "a list of events")
    talk = _transcript(value, origin)
    yield talk.rollout(id=origin.stem, group=task_group(origin, [text for _, text in talk.prompt]))


# -- events to turns ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Turn:
    """The actions of one model response, and what they led to."""

    response: str
    actions: list[Mapping[str, Any]]
    seen: list[tuple[str, str]] = field(default_factory=list)


def _transcript(events: Iterable[Any], origin: Origin) -> Transcript:
    talk, turns, by_id = Transcript(origin), [_Turn("", [])], dict[Any, _Turn]()
    waiting = True
    for event in events:
        if not isinstance(event, Mapping):
            raise origin.wrong("an event", event, "an object")
        acts = _acts(event, waiting)
        if acts:
            turn = _turn(event, turns)
            by_id[_key(event.get("id"))] = turn
        elif (seen := _seen(event)) is not None:
            by_id.get(_key(event.get("cause")), turns[-1]).seen.append(seen)
        if event.get("action") == "message":
            waiting = acts and _field(event, "wait_for_response") is True
    for turn in turns:
        _replay(turn, talk)
    return talk


def _key(number: Any) -> Any:
    return number if isinstance(number, int | str) else None


def _acts(event: Mapping[str, Any], waiting: bool) -> bool:
    """Return whether an event is an action of the policy; without a source, a message answers the agent."""
    kind = event.get("action")
    if not isinstance(kind, str) or kind in _HARNESS_ACTIONS:
        return False
    if "source" in event:
        return bool(event["source"] == "agent")
    return kind != "message" or not waiting


def _turn(event: Mapping[str, Any], turns: list[_Turn]) -> _Turn:
    response = text_of(mapping_of(_metadata(event).get("model_response")).get("id"))
    if not (response and turns[-1].response == response):
        turns.append(_Turn(response, []))
    turns[-1].actions.append(event)
    return turns[-1]


def _metadata(event: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping_of(event.get("tool_call_metadata"))


def _field(event: Mapping[str, Any], name: str) -> Any:
    """Return a field of an event: among ``args`` in new versions, beside ``action`` in old ones."""
    args = event.get("args")
    return args.get(name) if isinstance(args, Mapping) else event.get(name)


def _seen(event: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return who tells what to the policy, None for what it does not see."""
    if event.get("action") == "message":
        return text_of(event.get("source")) or "user", content_text(_field(event, "content"))
    kind = event.get("observation")
    if not isinstance(kind, str) or kind in _HARNESS_OBSERVATIONS:
        return None
    around = mapping_of(mapping_of(event.get("extras")).get("metadata"))
    text = text_of(around.get("prefix")) + content_text(event.get("content")) + text_of(around.get("suffix"))
    code = event.get("exit_code")
    return "tool", text if code is None else f"{text}\n[exit code {text_of(code)}]"


def _replay(turn: _Turn, talk: Transcript) -> None:
    if turn.actions:
        first = turn.actions[0]
        calls = [_call(event) for event in turn.actions]
        thoughts = [text_of(_field(event, "thought")) for event in turn.actions]
        words = [content_text(_field(e, "content")) for e in turn.actions if e.get("action") == "message"]
        message = Message(
            "assistant", "\n".join(words), tuple(c for c in calls if c), "\n".join(filter(None, thoughts))
        )
        usage = usage_of(mapping_of(_metadata(first).get("model_response")).get("usage"))
        kept = metadata_of(
            event=first.get("id"), kind=first.get("action"), tool=_metadata(first).get("function_name")
        )
        talk.act(message, metadata=kept, extra=usage)
    for role, text in turn.seen:
        talk.observe(text, role)


def _call(event: Mapping[str, Any]) -> Call | None:
    """Return an action as a call of its kind; a message is none."""
    if event["action"] == "message":
        return None
    args = event.get("args")
    given = args if isinstance(args, Mapping) else event
    return Call(event["action"], {k: v for k, v in given.items() if k not in _NO_ARGUMENTS and v is not None})


OPENHANDS = register(
    Format("openhands", "OpenHands output.jsonl (resolver, evaluation)", _score, from_records(_records))
)
OPENHANDS_EVENTS = register(
    Format("openhands-events", "OpenHands list of events", _events_score, from_document(_event_list))
)
