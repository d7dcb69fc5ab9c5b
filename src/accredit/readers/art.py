"""ART trajectories (Parquet, one row a trajectory): ``group_index``, ``messages``, ``reward``.

A step is an assistant message that ART trains on; messages with ``trainable: false`` are context. Group: file
and ``group_index``. State from the last observation. Metrics and metadata, JSON inside strings, stay in the
metadata. Missing: tokens and log-probabilities, which ART's Parquet leaves out; step rewards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from accredit.data import Rollout
from accredit.errors import DataError
from accredit.readers.chat import Transcript, chat_message
from accredit.readers.foreign import Origin, from_records, need, rest_of, reward_of, text_of, top_keys
from accredit.readers.formats import Format, Head, register

__all__ = ["ART"]

_PACKED = ("group_metadata", "group_metrics", "metrics", "metadata", "tools")


def _score(head: Head) -> int:
    return 3 if {"group_index", "messages", "reward"} <= top_keys(head) else 0


def _rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
    talk = Transcript(origin)
    for raw in need(value, "messages", list, origin):
        talk.add(chat_message(raw, origin))
    number = text_of(value.get("group_index"))
    rest = rest_of(value, "messages", "reward") or {}
    yield talk.rollout(
        id=origin.name,
        group=f"{origin.stem}/{number}" if number else None,
        reward=reward_of(value.get("reward")),
        metadata={k: _unpacked(v, origin) if k in _PACKED else v for k, v in rest.items()} or None,
    )


def _unpacked(value: Any, origin: Origin) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return origin.loads(value)
    except DataError:
        return value


ART = register(Format("art", "ART trajectories", _score, from_records(_rollouts)))
