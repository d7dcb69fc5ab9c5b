"""Small files of our own making in foreign formats, with the traps of real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from accredit.data import Batch
from accredit.readers import read

DATA = Path(__file__).parent / "data"


def look(name: str, **options: Any) -> Batch:
    """Return the batch of a look-alike file or folder."""
    return read(DATA / name, **options)


def steps(batch: Batch) -> list[int]:
    """Return the number of steps of each rollout."""
    return np.diff(batch.step_start_R1).tolist()


def rewards(batch: Batch) -> list[float | None]:
    """Return the reward of each rollout, None where unscored."""
    return column(batch, "reward_R")


def column(batch: Batch, name: str) -> list[Any]:
    """Return a column's values, None where absent."""
    if not batch.has(name):
        return [None] * (len(batch) if name.endswith("_R") else batch.n_steps)
    found = batch.column(name)
    shown = found.decoded() if found.words is not None else found.values
    there = found.mask(found.values.shape[0])
    return [
        (v.item() if hasattr(v, "item") else v) if ok else None for v, ok in zip(shown, there, strict=True)
    ]


def of(batch: Batch, rollout: str, name: str) -> list[Any]:
    """Return a step column of one rollout."""
    return [column(batch, name)[s] for s in batch.steps_of(batch.position(rollout))]


def codes(batch: Batch) -> dict[str, int]:
    """Return how often each finding was made."""
    return {f.code: f.count for f in batch.findings}
