"""The same numbers as verl on ragged random batches, and what differs where all rewards tie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from accredit import Batch, assign
from accredit.typing import Array, BoolArray, Floats
from bench.peers import peer_input, peers

__all__ = ["TOLERANCE", "parity_section"]

TOLERANCE = 1e-5  # of max(1, |A|): verl works in float32

# The policy for a group of one differs between verl's own forms; ours is told which to follow.
SINGLETON = {
    ("grpo", "loop"): "raw",
    ("grpo", "vectorised"): "raw",
    ("rloo", "loop"): "raw",
    ("rloo", "vectorised"): "zero",
}


class Ragged(NamedTuple):
    """One random batch in both worlds."""

    batch: Batch
    mask: BoolArray
    reward_R: Floats
    group_R: Array


def parity_section(batches: int) -> dict[str, Any]:
    """The largest difference of each form over random batches, and the advantages in ties."""
    verl = peers()
    worst = dict.fromkeys(SINGLETON, 0.0)
    tokens = singletons = 0
    for ragged in _random_batches(batches):
        tokens += int(ragged.mask.sum())
        singletons += int((np.unique(ragged.group_R, return_counts=True)[1] == 1).sum())
        for (method, form), singleton in SINGLETON.items():
            ours = assign(ragged.batch, method, singleton=singleton).padded(ragged.mask)
            theirs = verl[method][form](peer_input(ragged.reward_R, ragged.mask, ragged.group_R))
            apart = np.abs(ours - theirs) / np.maximum(1, np.abs(theirs))
            worst[method, form] = max(worst[method, form], float(apart.max()))
    rows = [
        {"method": m, "form": f, "singleton": SINGLETON[m, f], "worst": gap} for (m, f), gap in worst.items()
    ]
    return {
        "batches": batches,
        "tokens": tokens,
        "singleton_groups": singletons,
        "tolerance": TOLERANCE,
        "rows": rows,
        "ties": _ties(),
    }


def _random_batches(n: int) -> Iterator[Ragged]:
    for seed in range(n):
        rng = np.random.default_rng(seed)
        index = np.repeat(np.arange(40), rng.integers(1, 9, 40))
        rng.shuffle(index)
        yield _ragged(rng, index, rng.normal(size=index.size).astype(np.float32).astype(np.float64))


def _ragged(rng: np.random.Generator, index: Array, reward_R: Floats) -> Ragged:
    """Rows of 1 to 96 positions; a third of them are observation tokens inside the row."""
    length = rng.integers(1, 97, index.size)
    inside = np.arange(96) < length[:, None]
    mask = inside & (rng.random(inside.shape) < 0.67)
    mask[np.arange(index.size), length - 1] = True
    return Ragged(Batch.from_records(_records(mask, index, reward_R)), mask, reward_R, index)


def _records(mask: BoolArray, index: Array, reward_R: Floats) -> Iterator[dict[str, Any]]:
    """One record a row; each run of policy tokens is a step."""
    for r, row in enumerate(mask):
        edges = np.flatnonzero(np.diff(np.concatenate([[False], row, [False]])))
        steps = [{"n_tokens": int(b - a)} for a, b in edges.reshape(-1, 2)]
        yield {"id": f"r{r}", "group": int(index[r]), "reward": float(reward_R[r]), "steps": steps}


def _ties() -> list[dict[str, Any]]:
    """Eight equal rewards: the advantage is 0; what rounding makes of it in each implementation."""
    verl = peers()
    found = []
    for reward in (0.1, 0.3, 0.7, 1 / 3):
        reward_R, index = np.full(8, reward), np.zeros(8, np.int64)
        ragged = _ragged(np.random.default_rng(0), index, reward_R)
        row: dict[str, Any] = {"reward": reward}
        for method in ("grpo", "rloo"):
            row[f"accredit {method}"] = float(np.abs(assign(ragged.batch, method).tokens).max())
            for form, call in verl[method].items():
                theirs = call(peer_input(reward_R, ragged.mask, index))
                row[f"verl {method} {form}"] = float(np.abs(theirs).max())
        found.append(row)
    return found
