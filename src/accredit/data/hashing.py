"""A fingerprint of a batch's content: equal batches have equal fingerprints."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
import numpy as np

from accredit.data.batch import Batch
from accredit.data.column import Column
from accredit.data.joins import absent_values
from accredit.typing import Array

__all__ = ["batch_hash"]


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


_json = msgspec.json.Encoder(order="sorted", enc_hook=_plain).encode


def batch_hash(batch: Batch) -> str:
    """Return ``sha256:…`` over ids, groups, offsets and every column.

    What does not change the rollouts does not change it: the order of columns, how words are
    coded, findings and provenance.

    Example:
        >>> one = Batch.from_records([{"id": "a", "group": "g", "reward": 1, "steps": []}])
        >>> batch_hash(one) == batch_hash(one.take([0]))
        True
    """
    digest = hashlib.sha256()
    groups = Column("rollout", batch.group_R, None, batch.group_names)
    digest.update(_json(["accredit.batch/1", batch.ids]))
    _update(digest, "group_R", groups, batch)
    for start in (batch.step_start_R1, batch.token_start_S1, batch.context_start_S1):
        digest.update(b"-" if start is None else _bytes(start))
    for name in sorted(batch.columns):
        _update(digest, name, batch.columns[name], batch)
    return f"sha256:{digest.hexdigest()}"


def _update(digest: Any, name: str, column: Column, batch: Batch) -> None:
    mask = column.mask(len(batch) if column.level == "rollout" else batch.n_steps)
    digest.update(_json([name, column.level, str(column.values.dtype), list(column.values.shape)]))
    digest.update(_bytes(np.packbits(mask)))
    if column.words is not None:
        there = mask if column.level in ("rollout", "step") else ~absent_values(batch, column.level, mask)
        codes, words = _canonical(column.values, column.words, there)
        digest.update(_json(words))
        digest.update(_bytes(codes))
    elif column.is_json:
        digest.update(_json(column.values.tolist()))
    elif column.values.dtype.kind == "f":
        digest.update(_bytes(column.values + column.values.dtype.type(0)))  # -0.0 equals 0.0
    else:
        digest.update(_bytes(column.values))


def _canonical(codes: Array, words: tuple[Any, ...], mask: Array) -> tuple[Array, list[str]]:
    """Return codes by first appearance, 0 where absent, and the words in use as typed JSON."""
    used, first, dense = np.unique(codes[mask], return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(used.size, np.int64)
    rank[order] = np.arange(used.size)
    found = np.zeros(codes.size, np.int64)
    found[mask] = rank[dense]
    return found, [json.dumps(words[c]) for c in used[order].tolist()]


def _bytes(values: Array) -> Any:
    return np.ascontiguousarray(values, values.dtype.newbyteorder("<")).data.cast("B") if values.size else b""
