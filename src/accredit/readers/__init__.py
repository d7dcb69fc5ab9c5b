"""Files of rollouts, read as untrusted input."""

from __future__ import annotations

import json
from pathlib import Path

from accredit.data import Batch

__all__ = ["read"]


def read(path: str | Path) -> Batch:
    """Return the batch of a native JSONL file."""
    with Path(path).open() as lines:
        return Batch.from_records(json.loads(line) for line in lines if line.strip())
