"""verl-agent style step rows: ``uid``, ``traj_uid``, ``anchor_obs``, ``rewards``, one row a step.

Rows of JSON Lines or Parquet, as a trainer's ``non_tensor_batch`` (and its tensors as lists) is written out.
Rollout: ``traj_uid``; its rows are joined and counted once, in order of ``step`` (``step_idx``, ``turn``) if
that is there, else in order of the rows. Group: ``uid``. State: ``anchor_obs``, the environment's own. Step
reward: ``rewards``; outcome: ``episode_rewards``, their sum. Tokens: ``responses`` where ``response_mask``
is 1, with ``rollout_log_probs`` or ``old_log_probs``; prompt: ``prompts`` where ``attention_mask`` is 1.
``is_action_valid`` is a signal. Rows with a false ``active_masks`` are padding and no steps.
Missing: the action as text unless a column ``action``, ``output`` or ``response`` has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from accredit.data import Rollout, Step
from accredit.readers.foreign import (
    Origin,
    canonical,
    from_records,
    letters,
    list_of,
    need,
    number_of,
    rest_of,
    reward_of,
    text_of,
    top_keys,
)
from accredit.readers.formats import Format, Head, register

__all__ = ["VERL_AGENT"]

_ORDER = ("step", "step_idx", "turn")
_TEXTS = ("action", "output", "response")
_TENSORS = (
    "responses",
    "response_mask",
    "rollout_log_probs",
    "old_log_probs",
    "prompts",
    "attention_mask",
    "input_ids",
    "position_ids",
)
_USED = (
    *("uid", "traj_uid", "anchor_obs", "rewards", "episode_rewards", "active_masks", "is_action_valid"),
    *_ORDER,
    *_TEXTS,
    *_TENSORS,
)


def _score(head: Head) -> int:
    keys = top_keys(head)
    shown = keys & {"anchor_obs", "rewards", "episode_rewards"}
    return 3 if {"uid", "traj_uid"} <= keys and shown else 0


def _rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
    name = text_of(value.get("traj_uid")) if isinstance(value, Mapping) else ""
    if not name:
        need(value, "traj_uid", str, origin)
    if value.get("active_masks") in (False, 0):
        origin.note("ACC855", "rows that are not active are padding")
        return
    row = next((value[k] for k in _ORDER if type(value.get(k)) is int), None)
    if row is None:
        origin.note(
            "ACC863",
            "rows have no number of the step: the steps of a rollout are taken in order of the rows",
            hint="Write a column step; discounted returns need the order",
        )
    action = next((text_of(value[k]).strip() for k in _TEXTS if isinstance(value.get(k), str)), None)
    valid = value.get("is_action_valid")
    yield Rollout(
        id=name,
        group=text_of(value.get("uid")) or None,
        row=origin.number if row is None else row,
        reward=reward_of(value.get("episode_rewards")),
        metadata=rest_of(value, *_USED),
        steps=[
            Step(
                state=_state(value.get("anchor_obs")),
                action=action or None,
                reward=number_of(value.get("rewards")),
                extra={} if valid is None else {"is_action_valid": bool(valid)},
                **_tokens(value, origin),
            )
        ],
    )


def _state(seen: Any) -> str | None:
    """Return the key of an observation: a text as it is, anything else (an array) by its content."""
    return seen if seen is None or isinstance(seen, str) else letters(canonical(seen))


def _tokens(value: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
    """Return what the row's tensors have at the policy's positions."""
    ids, mask = list_of(value.get("responses")), list_of(value.get("response_mask"))
    if not ids or not mask:
        return {}
    if len(ids) != len(mask):
        raise origin.wrong("response_mask", f"{len(mask)} values", f"{len(ids)} values, as responses")
    found: dict[str, Any] = {"tokens": _where(ids, mask)}
    logprobs = list_of(value.get("rollout_log_probs")) or list_of(value.get("old_log_probs"))
    if len(logprobs) == len(mask):
        found["logprobs"] = _where(logprobs, mask)
    prompt, attention = list_of(value.get("prompts")), list_of(value.get("attention_mask"))
    if prompt and len(attention) >= len(prompt):
        found["prompt_tokens"] = _where(prompt, attention[: len(prompt)])
    return found


def _where(values: list[Any], mask: list[Any]) -> list[Any]:
    return [v for v, m in zip(values, mask, strict=True) if m]


VERL_AGENT = register(Format("verl-agent", "verl-agent step rows", _score, from_records(_rollouts)))
