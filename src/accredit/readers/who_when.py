"""Who&When: failed multi-agent runs with a human's label of the decisive step.

A step is a message of an agent: in the algorithm-generated part every ``name`` but ``Computer_terminal``, in
the hand-crafted part every role but ``human`` (``Orchestrator (-> X)`` and ``Orchestrator (thought)`` are the
agent Orchestrator; its ``(termination condition)`` is the harness). ``is_correct`` / ``is_corrected`` is the
reward. The label becomes the columns ``mistake_agent_R``, ``mistake_step_R`` (0-based among our steps; absent
where the labelled message is no step) and ``mistake_message_R`` (as labelled: 0-based among all messages),
and ``mistake_S`` on the step itself. Group: the question id. State: the whole prefix.
Missing: tokens, log-probabilities, step rewards; groups have one rollout unless files are joined.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from accredit.data import Rollout
from accredit.readers.chat import Message, Transcript, content_text
from accredit.readers.foreign import (
    Origin,
    element_keys,
    from_records,
    mapping_of,
    need,
    rest_of,
    reward_of,
    text_of,
    top_keys,
)
from accredit.readers.formats import Format, Head, register

__all__ = ["WHO_WHEN"]

_LABEL = {"mistake_agent", "mistake_step"}
_VERDICTS = {"is_correct", "is_corrected"}
_ASIDE = re.compile(r"\s*\((?P<aside>[^)]*)\)\s*$")
_TOOLS = re.compile(r"(?i)terminal$|^(human|user|system|tool|chat_manager)$")


def _score(head: Head) -> int:
    keys = top_keys(head) | element_keys(head)
    if keys >= _LABEL or ({"history", "question_ID"} <= keys and keys & _VERDICTS):
        return 3
    # A long history stands before the label: its agents write their intent into the role.
    return 2 if "history" in keys and b'"role": "Orchestrator (' in head.text else 0


def _rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
    history = need(value, "history", list, origin)
    label = _label(value.get("mistake_step"), len(history), origin)
    talk, at = Transcript(origin, rule="prefix"), None
    if (question := text_of(value.get("question"))) and _agent(mapping_of(history[0] if history else None)):
        talk.observe(question)
    for i, raw in enumerate(history):
        if not isinstance(raw, Mapping):
            raise origin.wrong(f"message {i} of history", raw, "an object")
        agent, text = _agent(raw), content_text(raw.get("content"))
        if not agent:
            talk.observe(text, text_of(raw.get("name") or raw.get("role")))
            continue
        at = len(talk) if i == label else at
        extra = {"mistake": i == label} if label is not None else {}
        talk.act(Message("assistant", text), agent=agent, metadata={"message": i}, extra=extra)
    verdict = next((value[k] for k in _VERDICTS if k in value), None)
    group = text_of(value.get("question_ID") or value.get("question")) or None
    yield talk.rollout(
        id=origin.name if group is None else f"{origin.stem}/{group}",
        group=group,
        reward=reward_of(verdict),
        metadata=rest_of(value, "history", "mistake_agent", "mistake_step"),
        extra=_columns(value, at),
    )


def _columns(value: Mapping[str, Any], at: int | None) -> dict[str, Any]:
    """Return the label as rollout columns: the agent, the step in our numbering, the label as it was."""
    found = {
        "mistake_agent": text_of(value.get("mistake_agent")) or None,
        "mistake_step": at,
        "mistake_message": text_of(value.get("mistake_step")) or None,
    }
    return {k: v for k, v in found.items() if v is not None}


def _label(given: Any, messages: int, origin: Origin) -> int | None:
    """Return the labelled message's position; it is written as a string, counted over all messages."""
    text = text_of(given).strip()
    if text.isascii() and text.isdigit() and len(text) < 10 and int(text) < messages:
        return int(text)
    if text:
        origin.note("ACC857", f"mistake_step {text[:20]!r} is no message of the {messages} in history")
    return None


def _agent(raw: Mapping[str, Any]) -> str:
    """Return the agent that speaks, "" for people, tools and the harness."""
    name = text_of(raw.get("name") or raw.get("role"))
    aside = _ASIDE.search(name)
    if aside and aside["aside"] == "termination condition":
        return ""
    name = _ASIDE.sub("", name)
    return "" if _TOOLS.search(name) else name


WHO_WHEN = register(Format("who-when", "Who&When failure attributions", _score, from_records(_rollouts)))
