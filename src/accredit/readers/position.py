"""Groups by position, where a file names none and the user says how many rollouts make one."""

from __future__ import annotations

import numpy as np

from accredit.data import Batch, FindingLog
from accredit.errors import DataError

__all__ = ["grouped_by_position"]


def grouped_by_position(batch: Batch, size: int) -> Batch:
    """Return the batch with each ``size`` rollouts that follow each other as a group, and a finding.

    A rollout that is told in several rows counts once.

    Args:
        batch: all rollouts of a source, in their order.
        size: rollouts a group, at least 1.

    Raises:
        DataError: if rollouts were excluded or branched off, since then positions say nothing.

    Example:
        >>> batch = Batch.from_records([{"id": i, "reward": 1.0, "steps": []} for i in "abcd"])
        >>> grouped_by_position(batch, 2).group_R.tolist()
        [0, 0, 1, 1]
    """
    if type(size) is not int or size < 1:
        raise DataError(f"group_size must be a whole number from 1, got {size!r}", code="ACC901")
    branches = batch.has("parent_R") and bool(batch.column("parent_R").mask(len(batch)).any())
    if batch.excluded or branches:
        why = "rollouts are branches" if branches else f"{len(batch.excluded)} rollouts were left out"
        raise DataError(
            f"groups of {size} by position cannot be told: {why}",
            code="ACC862",
            hint="Mend the file, or give each rollout the id of its group",
        )
    codes = np.arange(len(batch), dtype=np.int32) // np.int32(min(size, max(len(batch), 1)))
    last = len(batch) - size * int(codes[-1]) if len(batch) else size
    short = f"; the last group has only {last}" if last < size else ""
    log = FindingLog()
    log.add(
        "ACC862",
        "warning",
        f"each {size} rollouts that follow each other are one group, as you said{short}",
        hint="Shuffled, filtered or lost rows break such groups: record the id of the group",
    )
    names = tuple(f"position-{k}" for k in range(int(codes[-1]) + 1 if len(batch) else 0))
    mended = batch._replace(group_R=codes, group_names=names)
    return mended.annotated((*mended.findings, *log.findings()), mended.excluded)
