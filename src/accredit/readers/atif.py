"""ATIF trajectories (Harbor, schema ATIF-v1.x), joined with the trial's ``result.json``.

A step is a step of source ``agent`` that a model call made (``llm_call_count`` not 0) and that is no copied
context; system and user steps, copies and scripted steps are context. The observation inside step k is seen
before step k+1. ATIF has no reward: a Harbor ``result.json`` beside the file, or in the folder above, gives
id (trial name), group (task and checksum, model), reward and status; without one the id is session and
agent, the group a hash of the first user message, and the rollout is unscored. Files that continue each
other (``continued_trajectory_ref``) are rows of one rollout: read the folder. Sub-agents
(``subagent_trajectories``) are unscored rollouts with ``parent``, the step that called them, and
``branch_kind: subagent``. Tokens and log-probabilities from ``metrics``, else per turn from the result's
``rollout_details`` if it has as many turns as the trajectory has steps. State from the last observation.
Missing: step rewards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from accredit.data import Rollout
from accredit.errors import DataError
from accredit.readers.chat import Call, Message, Transcript, content_text, usage_of
from accredit.readers.foreign import (
    Origin,
    from_document,
    list_of,
    mapping_of,
    need,
    outcome_of,
    rest_of,
    task_group,
    text_of,
    top_keys,
)
from accredit.readers.formats import Format, Head, register

__all__ = ["ATIF", "HARBOR_RESULT"]

_SEGMENT = re.compile(r"\.cont-(\d{1,6})\b")
_TIMEOUT = re.compile(r"(?i)timeout|budget|max_?turns|length")
_RESULT = {"trial_name", "task_name"}


def _score(head: Head) -> int:
    keys = top_keys(head)
    if "schema_version" in keys and b'"ATIF-v' in head.text[:4096]:
        return 3
    return 2 if {"session_id", "agent", "steps"} <= keys else 0


def _result_score(head: Head) -> int:
    return 3 if _RESULT | {"agent_info"} <= top_keys(head) else 0


# -- the trial's result -------------------------------------------------------------------------


@dataclass(slots=True)
class _Trial:
    """What a trial's result says about its rollout: nothing where there is none."""

    name: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    details: list[Any] = field(default_factory=list)


def _trial(origin: Origin) -> _Trial:
    """Return the result beside a trajectory, or in the folder above it."""
    for folder in (origin.path.parent, origin.path.parent.parent):
        path = folder / "result.json"
        if path == origin.path or not path.is_file():
            continue
        result = _loaded(path, origin)
        if result.keys() >= _RESULT:
            return _told(result, origin)
    return _Trial()


def _loaded(path: Path, origin: Origin) -> Mapping[str, Any]:
    try:
        size = path.stat().st_size
        origin.reading.limits.check("the result has bytes:", size, "line_bytes", str(path))
        return mapping_of(origin.reading.decoder.decode(path.read_bytes(), str(path)))
    except (OSError, DataError) as error:
        origin.note("ACC857", f"{path.name} beside it cannot be used: {error}")
        return {}


def _told(result: Mapping[str, Any], origin: Origin) -> _Trial:
    info = mapping_of(mapping_of(result.get("agent_info")).get("model_info"))
    model = "/".join(filter(None, (text_of(info.get("provider")), text_of(info.get("name")))))
    task = f"{text_of(result.get('task_name'))}@{text_of(result.get('task_checksum'))[:12]}"
    fault = text_of(mapping_of(result.get("exception_info")).get("exception_type"))
    given = mapping_of(result.get("verifier_result")).get("rewards")
    outcome = outcome_of(given, origin) if isinstance(given, Mapping) else outcome_of(None, origin)
    cut = bool(_TIMEOUT.search(fault))
    return _Trial(
        text_of(result["trial_name"]),
        {
            "group": f"{task.rstrip('@')} {model}".strip(),
            "reward": outcome.reward if cut or not fault else None,
            "rewards": outcome.rewards,
            "status": "truncated" if cut else "failed" if fault else "finished",
            "policy_version": model or None,
        },
        list_of(mapping_of(result.get("agent_result")).get("rollout_details")),
    )


def _result(value: Any, origin: Origin) -> Iterator[Rollout]:
    """Yield the rollout of a result: its steps from the recorded token ids, none if a trajectory has them."""
    trial, talk = _told(value, origin), Transcript(origin)
    for detail in [] if _has_trajectory(origin) else trial.details:
        for turn in _turns(detail):
            talk.act(Message("assistant"), context=(), **turn)
    yield talk.rollout(
        id=trial.name,
        row="result",
        metadata=rest_of(value, "agent_result", "config", "trial_name"),
        **trial.fields,
    )


def _has_trajectory(origin: Origin) -> bool:
    folder = origin.path.parent
    return (folder / "agent" / "trajectory.json").is_file() or (folder / "trajectory.json").is_file()


def _turns(detail: Any) -> list[dict[str, Any]]:
    """Return tokens, log-probabilities and prompt of each turn of a segment."""
    lists = {ours: list_of(mapping_of(detail).get(theirs)) for ours, theirs in _IDS.items()}
    return [
        {name: turns[t] for name, turns in lists.items() if t < len(turns)}
        for t in range(len(lists["tokens"]))
    ]


_IDS = {"tokens": "completion_token_ids", "logprobs": "logprobs", "prompt_tokens": "prompt_token_ids"}
HARBOR_RESULT = register(
    Format("harbor-result", "Harbor trial result", _result_score, from_document(_result))
)

# -- trajectories -------------------------------------------------------------------------------


class _Delegation(NamedTuple):
    """Who called a sub-agent, and where."""

    parent: str
    step: int | None


def _rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
    trial = _trial(origin)
    yield from _trajectory(value, origin, trial, None)


def _trajectory(
    value: Any, origin: Origin, trial: _Trial, caller: _Delegation | None, name: str = ""
) -> Iterator[Rollout]:
    steps = need(value, "steps", list, origin)
    agent = mapping_of(value.get("agent"))
    row = None if caller else _row(value, origin, trial)
    talk, called = Transcript(origin), dict[str, int]()
    recorded = [] if row is None or row >= len(trial.details) else _turns(trial.details[row])
    if len(recorded) != sum(map(_is_policy, steps)):
        recorded = []
    for step in steps:
        _take(step, talk, called, recorded, origin)
    id = name or trial.name or _session(value, agent) or origin.name
    yield talk.rollout(
        id=id,
        row=row,
        **_identity(origin, trial, talk, caller),
        agent=text_of(agent.get("name")) or None,
        metadata=rest_of(value, "steps", "subagent_trajectories"),
    )
    for i, inner in enumerate(list_of(value.get("subagent_trajectories"))):
        key = text_of(mapping_of(inner).get("trajectory_id"))
        whom = _Delegation(id, called.get(key))
        yield from _trajectory(inner, origin, trial, whom, f"{id}/{key or i}")


def _identity(origin: Origin, trial: _Trial, talk: Transcript, caller: _Delegation | None) -> dict[str, Any]:
    """Return group and outcome, and the place of a sub-agent, which has no outcome of its own."""
    prompt = next((text for role, text in talk.prompt if role == "user"), "")
    fields = trial.fields or {"group": task_group(origin, prompt)}
    if caller is None:
        return fields
    kept = {k: fields[k] for k in ("group", "policy_version") if k in fields}
    return kept | {"parent": caller.parent, "fork_step": caller.step, "branch_kind": "subagent"}


def _session(value: Mapping[str, Any], agent: Mapping[str, Any]) -> str:
    """Return an id: the session (shared by segments) and the agent (sessions may be placeholders)."""
    session = text_of(value.get("session_id")) or text_of(value.get("trajectory_id"))
    return f"{session}/{text_of(agent.get('name'))}" if session else ""


def _row(value: Mapping[str, Any], origin: Origin, trial: _Trial) -> int | None:
    """Return the number of a segment; None if the trajectory is whole and no result is joined to it."""
    index = mapping_of(mapping_of(value.get("agent")).get("extra")).get("continuation_index")
    named = _SEGMENT.search(origin.path.name)
    if type(index) is not int or index < 0:
        index = int(named.group(1)) if named else 0
    _note_missing(value, index, origin)
    return index if index or trial.name or value.get("continued_trajectory_ref") else None


def _note_missing(value: Mapping[str, Any], row: int, origin: Origin) -> None:
    """Note that other segments exist, unless the folder that is read holds them."""
    ref = text_of(value.get("continued_trajectory_ref"))
    root = Path(origin.reading.builder.source)
    alone = root not in origin.path.parents
    if ref and (alone or not (origin.path.parent / Path(ref).name).is_file()):
        origin.note("ACC857", f"the trajectory goes on in {ref[:80]!r}, which is not read with it")
    if row and alone:
        origin.note(
            "ACC857", f"the trajectory is segment {row} of a rollout whose first part is not read with it"
        )


def _is_policy(step: Any) -> bool:
    """Return whether a model call of this run made the step."""
    given = mapping_of(step)
    copied = given.get("is_copied_context") is True
    return given.get("source") == "agent" and not copied and given.get("llm_call_count") != 0


def _take(
    step: Any, talk: Transcript, called: dict[str, int], recorded: list[dict[str, Any]], origin: Origin
) -> None:
    if not isinstance(step, Mapping):
        raise origin.wrong("a step", step, "an object")
    message = Message(
        "assistant" if step.get("source") == "agent" else text_of(step.get("source")),
        content_text(step.get("message")),
        tuple(_call(raw, origin) for raw in list_of(step.get("tool_calls"))),
        text_of(step.get("reasoning_content")),
        sampled=_is_policy(step),
    )
    if message.sampled:
        metrics = mapping_of(step.get("metrics"))
        tokens = {ours: metrics[theirs] for ours, theirs in _IDS.items() if metrics.get(theirs)}
        if not tokens and recorded:
            tokens = recorded[len(talk)]
        talk.act(message, **tokens, extra=usage_of(metrics), metadata=rest_of(step, *_USED))
    else:
        talk.add(message)
    _observe(step, talk, called)


_USED = (
    "source",
    "message",
    "tool_calls",
    "reasoning_content",
    "observation",
    "metrics",
    "is_copied_context",
)


def _call(raw: Any, origin: Origin) -> Call:
    if not isinstance(raw, Mapping) or not isinstance(raw.get("function_name"), str):
        raise origin.wrong("a tool call", raw, "an object with a function_name")
    return Call(raw["function_name"], raw.get("arguments"), text_of(raw.get("tool_call_id")))


def _observe(step: Mapping[str, Any], talk: Transcript, called: dict[str, int]) -> None:
    for result in map(mapping_of, list_of(mapping_of(step.get("observation")).get("results"))):
        if result.get("content") is not None:
            talk.observe(content_text(result["content"]), "tool")
        for ref in map(mapping_of, list_of(result.get("subagent_trajectory_ref"))):
            if len(talk):
                called[text_of(ref.get("trajectory_id"))] = len(talk) - 1


ATIF = register(Format("atif", "ATIF trajectory (Harbor)", _score, from_document(_rollouts)))
