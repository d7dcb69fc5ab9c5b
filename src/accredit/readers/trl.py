"""TRL's completions (``log_completions``): Parquet with step, prompt, completion, scores, advantage.

A step is an assistant message of the completion; a completion that is a text is one step. Group: equal
prompts of one training step. State from the last observation. Columns of fractions are the scores of the
reward functions; the outcome is their sum, as TRL sums them where every weight is 1, and a score that is
null was abstained from. TRL's own advantage is the signal ``advantage_R``, for comparison; the column
``accredit`` of our adapter, credit a step, is the signal ``credit_S`` where it has as many numbers as the
completion has steps, and stays metadata elsewhere.
Missing: tokens, log-probabilities, step rewards, the weights of the reward functions; a prompt that one
training step drew twice makes one group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from accredit.data import Rollout
from accredit.readers.chat import Message, Transcript, chat_message
from accredit.readers.foreign import Origin, from_records, number_of, rest_of, task_group, text_of, top_keys
from accredit.readers.formats import Format, Head, register

__all__ = ["TRL"]

_USED = ("step", "prompt", "completion", "advantage")
_CREDIT = "accredit"


def _score(head: Head) -> int:
    keys = top_keys(head)
    return 3 if set(_USED) <= keys and "problem_id" not in keys else 0


def _messages(given: Any, role: str, origin: Origin) -> Iterator[Message]:
    if isinstance(given, str):
        yield Message(role, given)
        return
    if not isinstance(given, list):
        raise origin.wrong("prompt or completion", given, "a text or a list of messages")
    yield from (chat_message(raw, origin) for raw in given)


def _rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
    if not isinstance(value, Mapping):
        raise origin.wrong("a record", value, "an object")
    talk = Transcript(origin)
    for message in _messages(value.get("prompt"), "user", origin):
        talk.add(message._replace(sampled=False))
    said = list(_messages(value.get("completion"), "assistant", origin))
    turns = [b for b, message in enumerate(said) if message.role == "assistant" and message.sampled]
    credit = dict(zip(turns, _credit(value, len(turns)), strict=False))
    for b, message in enumerate(said):
        talk.add(message, **({"extra": {"credit": credit[b]}} if b in credit else {}))
    step = text_of(value.get("step"))
    scores = {k: v for k, v in value.items() if k not in _USED and isinstance(v, float)}
    yield talk.rollout(
        id=origin.name,
        group=task_group(origin, f"step {step}", value.get("prompt")),
        reward=_sum(scores, origin),
        rewards=scores or None,
        policy_version=step or None,
        metadata=rest_of(value, *_USED, *scores, *([_CREDIT] if credit else [])),
        extra=_advantage(value),
    )


def _credit(value: Mapping[str, Any], turns: int) -> list[float]:
    """Return the credit of each turn if there is a number for each, else nothing."""
    given = value.get(_CREDIT)
    found = [number_of(c) for c in given] if isinstance(given, list) and len(given) == turns else []
    return [c for c in found if c is not None] if None not in found else []


def _advantage(value: Mapping[str, Any]) -> dict[str, Any]:
    found = number_of(value.get("advantage"))
    return {} if found is None else {"advantage": found}


def _sum(scores: Mapping[str, float], origin: Origin) -> float | None:
    if len(scores) > 1:
        shown = ", ".join(list(scores)[:8])
        origin.note("ACC860", f"the outcome is the sum of the columns {shown}")
    return sum(scores.values()) if scores else None


TRL = register(Format("trl", "TRL's completions", _score, from_records(_rollouts)))
