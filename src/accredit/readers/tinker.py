"""Rollout summaries of the Tinker cookbook: ``iteration``, ``group_idx``, ``traj_idx``, ``total_reward``.

A step is a transition. Group: file, split, iteration and ``group_idx``. The number of policy tokens of a step
is ``ac_len``, that of its observation the signal ``observation_tokens``; the ids are not in the summary.
Outcome: ``total_reward``, which is the step rewards and ``final_reward`` together; the final reward is paid
at the last step, so that step rewards sum to the outcome.
Missing: states, actions, token ids and log-probabilities, so no method that needs states or token signals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from accredit.data import Rollout, Step
from accredit.readers.chat import metadata_of
from accredit.readers.foreign import (
    Origin,
    from_records,
    mapping_of,
    need,
    number_of,
    rest_of,
    text_of,
    top_keys,
)
from accredit.readers.formats import Format, Head, register

__all__ = ["TINKER"]

_USED = ("steps", "total_reward", "sampling_client_step")


def _score(head: Head) -> int:
    return 3 if {"group_idx", "traj_idx", "total_reward", "steps"} <= top_keys(head) else 0


def _rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
    steps = [_step(raw) for raw in need(value, "steps", list, origin)]
    place = "/".join(filter(None, (origin.stem, text_of(value.get("split")))))
    group = f"{place}/{text_of(value.get('iteration'))}.{text_of(value.get('group_idx'))}"
    yield Rollout(
        id=f"{group}.{text_of(value.get('traj_idx'))}",
        group=group,
        reward=number_of(value.get("total_reward")),
        policy_version=text_of(value.get("sampling_client_step")) or None,
        steps=_with_final(steps, number_of(value.get("final_reward"))),
        metadata=rest_of(value, *_USED),
    )


def _step(raw: Any) -> dict[str, Any]:
    step: Mapping[str, Any] = mapping_of(raw)
    seen, n = number_of(step.get("ob_len")), step.get("ac_len")
    return {
        "reward": number_of(step.get("reward")),
        "n_tokens": n if type(n) is int and n >= 0 else None,
        "metadata": metadata_of(metrics=step.get("metrics"), logs=step.get("logs")),
        "extra": {} if seen is None else {"observation_tokens": seen},
    }


def _with_final(steps: list[dict[str, Any]], final: float | None) -> list[Step]:
    """Return the steps, the final reward paid at the last of them."""
    if steps and final:
        steps[-1]["reward"] = (steps[-1]["reward"] or 0.0) + final
    return [Step(**step) for step in steps]


TINKER = register(Format("tinker", "Tinker rollout summaries", _score, from_records(_rollouts)))
