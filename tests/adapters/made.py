"""Recorded rollouts, the padded tensors a trainer would make of them, and 40 ways to spoil those."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

KINDS = ("shifted", "dropped", "duplicated", "retokenised", "mismasked")
SEEDS = range(8)
MUTATIONS = [(kind, seed) for kind in KINDS for seed in SEEDS]
LENGTH = 24


@dataclass(frozen=True)
class Tensors:
    """One row a recorded row: what a trainer holds."""

    tokens: np.ndarray
    mask: np.ndarray
    rewards: np.ndarray
    group: list[str]
    rollout: list[str]
    order: list[int]


def recorded(seed: int = 0, *, rows: bool = True) -> list[dict[str, Any]]:
    """Native records of two groups; token ids differ everywhere, so that no spoiling is without effect."""
    rng = np.random.default_rng(seed)
    fresh = iter(rng.permutation(100_000).tolist())

    def ids(low: int, high: int) -> list[int]:
        return [next(fresh) for _ in range(int(rng.integers(low, high)))]

    records = []
    for g in range(2):
        for i in range(4):
            reward = float(rng.integers(0, 2)) if i else float(g)
            for row in range(2 if rows and i == 1 else 1):
                steps = [
                    {"state": f"s{t}", "tokens": ids(2, 5), "context_tokens": ids(1, 3)} for t in range(3)
                ]
                record = {"id": f"g{g}r{i}", "group": f"g{g}", "reward": reward, "steps": steps}
                records.append(record | ({"row": row} if rows and i == 1 else {}))
    return records


def tensors_of(records: list[dict[str, Any]]) -> Tensors:
    """Rows as a trainer pads them: answers and what lies between, without the first prompt."""
    tokens = np.zeros((len(records), LENGTH), np.int64)
    mask = np.zeros((len(records), LENGTH), np.int64)
    for b, record in enumerate(records):
        at = 0
        for t, step in enumerate(record["steps"]):
            for part, sampled in ((step["context_tokens"] if t else [], 0), (step["tokens"], 1)):
                tokens[b, at : at + len(part)] = part
                mask[b, at : at + len(part)] = sampled
                at += len(part)
    return Tensors(
        tokens,
        mask,
        np.array([r["reward"] for r in records]),
        [r["group"] for r in records],
        [r["id"] for r in records],
        [r.get("row", 0) for r in records],
    )


def spoiled(sound: Tensors, kind: str, seed: int) -> Tensors:
    """The tensors with one mistake of a kind; eight seeds give eight different ones."""
    rng = np.random.default_rng(seed)
    b = int(rng.integers(len(sound.tokens)))
    return {
        "shifted": _shifted,
        "dropped": _dropped,
        "duplicated": _duplicated,
        "retokenised": _retokenised,
        "mismasked": _mismasked,
    }[kind](sound, b, seed)


def _shifted(t: Tensors, b: int, seed: int) -> Tensors:
    tokens, mask = t.tokens.copy(), t.mask.copy()
    by = 1 + seed // 4
    if seed % 4 == 0:
        tokens[b] = np.roll(tokens[b], by)
    elif seed % 4 == 1:
        mask[b] = np.roll(mask[b], by)
    elif seed % 4 == 2:
        tokens, mask = np.roll(tokens, -by, axis=1), np.roll(mask, -by, axis=1)
    else:
        tokens, mask = np.roll(tokens, by, axis=0), np.roll(mask, by, axis=0)
    return replace(t, tokens=tokens, mask=mask)


def _dropped(t: Tensors, b: int, seed: int) -> Tensors:
    if seed % 2:
        return _take(t, [i for i in range(len(t.tokens)) if i != b])
    tokens, mask = t.tokens.copy(), t.mask.copy()
    where = np.flatnonzero(mask[b])
    at = int(where[seed % where.size])
    for array in (tokens, mask):
        array[b, at:-1] = array[b, at + 1 :]
    return replace(t, tokens=tokens, mask=mask)


def _duplicated(t: Tensors, b: int, seed: int) -> Tensors:
    rows = list(range(len(t.tokens)))
    if seed % 4 == 0:
        return _take(t, [*rows, b])
    if seed % 4 == 1:
        return _take(t, [b if i == (b + 1) % len(rows) else i for i in rows])
    tokens, mask = t.tokens.copy(), t.mask.copy()
    where = np.flatnonzero(mask[b])
    at = int(where[seed % where.size])
    tokens[b, at + 1 :] = t.tokens[b, at:-1]
    mask[b, at + 1 :] = t.mask[b, at:-1]
    return replace(t, tokens=tokens, mask=mask)


def _retokenised(t: Tensors, b: int, seed: int) -> Tensors:
    tokens, mask = t.tokens.copy(), t.mask.copy()
    where = np.flatnonzero(mask[b])
    at = int(where[seed % (where.size - 1)])
    if seed % 3 == 0:  # another id for the same text
        tokens[b, at] += 100_000
    elif seed % 3 == 1:  # two tokens became one
        tokens[b, at + 1 : -1], mask[b, at + 1 : -1] = tokens[b, at + 2 :], mask[b, at + 2 :]
        tokens[b, at] += 100_000
    else:  # one became two
        tokens[b, at + 1 :], mask[b, at + 1 :] = t.tokens[b, at:-1], t.mask[b, at:-1]
        tokens[b, at : at + 2] += 100_000
    return replace(t, tokens=tokens, mask=mask)


def _mismasked(t: Tensors, b: int, seed: int) -> Tensors:
    mask = t.mask.copy()
    ones, zeros = np.flatnonzero(mask[b]), np.flatnonzero(mask[b] == 0)
    if seed % 4 in (0, 2):
        mask[b, ones[seed % ones.size]] = 0
    if seed % 4 in (1, 2):
        mask[b, zeros[seed % zeros.size]] = 1
    if seed % 4 == 3:
        mask[b] = 1 - mask[b]
    return replace(t, mask=mask)


def _take(t: Tensors, rows: list[int]) -> Tensors:
    return Tensors(
        t.tokens[rows],
        t.mask[rows],
        t.rewards[rows],
        *([getattr(t, name)[i] for i in rows] for name in ("group", "rollout", "order")),
    )


def all_spoiled(sound: Tensors) -> Iterator[tuple[str, int, Tensors]]:
    """The 40 mistakes."""
    for kind, seed in MUTATIONS:
        yield kind, seed, spoiled(sound, kind, seed)
