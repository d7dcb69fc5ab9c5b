"""tau-bench results (v1): a list of runs with ``task_id``, ``trial``, ``reward``, ``traj``.

A step is an assistant message; the user is simulated and never a step, and its turns and the tools' answers
are observations. Group: file and task id, since a file is one model in one domain and task numbers repeat
between domains. State from the last observation. A run with an error has no reward.
Missing: tokens, log-probabilities, step rewards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from accredit.data import Rollout
from accredit.readers.chat import Transcript, chat_message
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

__all__ = ["TAU_BENCH"]


def _score(head: Head) -> int:
    keys = top_keys(head) | element_keys(head)
    return 3 if {"task_id", "trial", "traj"} <= keys else 2 if {"task_id", "reward", "traj"} <= keys else 0


def _rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
    talk = Transcript(origin)
    for raw in need(value, "traj", list, origin):
        talk.add(chat_message(raw, origin))
    task, trial = text_of(value.get("task_id")), text_of(value.get("trial"))
    failed = bool(mapping_of(value.get("info")).get("error"))
    yield talk.rollout(
        id=f"{origin.stem}/{task}.{trial}" if task and trial else origin.name,
        group=f"{origin.stem}/{task}" if task else None,
        reward=None if failed else reward_of(value.get("reward")),
        status="failed" if failed else None,
        metadata=rest_of(value, "traj", "reward"),
    )


TAU_BENCH = register(Format("tau-bench", "tau-bench results", _score, from_records(_rollouts)))
