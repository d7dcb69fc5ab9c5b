"""NeMo Gym rollouts: the Responses API's request and response, ``reward``, ``_ng_task_index``.

A step is a turn: a run of reasoning, assistant messages and function calls, ended by a call's output or a
message of the user. Group: the instance id of the request's metadata, else file and task index (prompts may
differ within a task: hands are dealt anew). State from the last observation. Token ids and log-probabilities
are taken from the item of the turn that carries them. ``mask_sample`` makes a rollout untrained.
Missing: step rewards; tokens unless the run recorded them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from accredit.data import Rollout
from accredit.readers.chat import Message, Transcript, metadata_of, responses_messages
from accredit.readers.foreign import (
    Origin,
    from_records,
    list_of,
    mapping_of,
    need,
    rest_of,
    reward_of,
    text_of,
    top_keys,
)
from accredit.readers.formats import Format, Head, register

__all__ = ["NEMO_GYM"]

_USED = ("responses_create_params", "response", "reward", "truncated", "terminated")


def _score(head: Head) -> int:
    return 3 if {"responses_create_params", "response"} <= top_keys(head) else 0


def _rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
    response = need(value, "response", dict, origin)
    request = mapping_of(value.get("responses_create_params"))
    talk = Transcript(origin)
    for message in _prompt(request, origin):
        talk.add(message._replace(sampled=False))
    for message in responses_messages(need(response, "output", list, origin), origin):
        talk.add(message, **(_tokens(message, origin) if message.role == "assistant" else {}))
    task, number = text_of(value.get("_ng_task_index")), text_of(value.get("_ng_rollout_index"))
    instance = text_of(mapping_of(request.get("metadata")).get("instance_id"))
    unscored = value.get("eval_timed_out") is True
    yield talk.rollout(
        id=f"{origin.stem}/{task}.{number}" if task and number else origin.name,
        group=instance or (f"{origin.stem}/{task}" if task else None),
        reward=None if unscored else reward_of(value.get("reward")),
        status="failed" if unscored else _status(value),
        policy_version=text_of(response.get("model") or request.get("model")) or None,
        trainable=False if value.get("mask_sample") is True else None,
        metadata=(rest_of(value, *_USED) or {})
        | (metadata_of(request=rest_of(request, "input"), response=rest_of(response, "output")) or {}),
        extra={"terminated": value["terminated"]} if isinstance(value.get("terminated"), bool) else {},
    )


def _status(value: Mapping[str, Any]) -> str | None:
    if value.get("truncated") is True or value.get("agent_timed_out") is True:
        return "truncated"
    return "finished" if value.get("truncated") is False else None


def _prompt(request: Mapping[str, Any], origin: Origin) -> Iterator[Message]:
    if instructions := text_of(request.get("instructions")):
        yield Message("system", instructions)
    given = request.get("input")
    if isinstance(given, str):
        yield Message("user", given)
    yield from responses_messages(list_of(given), origin)
    if not given and (problem := mapping_of(request.get("metadata")).get("problem_statement")):
        yield Message("user", text_of(problem))


def _tokens(message: Message, origin: Origin) -> dict[str, Any]:
    """Return the ids of the turn's call; two calls in one turn have no common prompt, so none are taken."""
    calls = [m for m in list_of(message.raw) if isinstance(m, Mapping) and m.get("generation_token_ids")]
    if len(calls) > 1:
        origin.note("ACC858", f"a turn is made of {len(calls)} calls with token ids: its tokens are left out")
    if len(calls) != 1:
        return {}
    names = {
        "tokens": "generation_token_ids",
        "logprobs": "generation_log_probs",
        "prompt_tokens": "prompt_token_ids",
    }
    return {ours: calls[0][theirs] for ours, theirs in names.items() if calls[0].get(theirs)}


NEMO_GYM = register(Format("nemo-gym", "NeMo Gym rollouts", _score, from_records(_rollouts)))
