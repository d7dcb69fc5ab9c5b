"""A truth of a batch's steps, as rows."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import numpy as np

from accredit.data import Batch
from accredit.store.truth import NUMBERS, Truth


def truth_rows(
    batch: Batch,
    advantage: Any,
    *,
    se: Any = None,
    n: int = 0,
    source: str = "exact",
    drop: Container[int] = (),
    header: Mapping[str, Any] | None = None,
) -> Truth:
    """Return the advantage of each step that is not dropped; ``se`` is a number, or one a step."""
    rows = [(batch.ids[r], t, s) for r in range(len(batch)) for t, s in enumerate(batch.steps_of(r))]
    rows = [row for row in rows if row[2] not in drop]
    at = [s for _, _, s in rows]
    zero = np.zeros(len(rows))
    numbers = dict.fromkeys(NUMBERS, zero) | {"advantage": np.asarray(advantage)[at]}
    known = {name: zero.astype(bool) for name in NUMBERS} | {"advantage": zero == 0}
    if se is not None:
        numbers["se"], known["se"] = np.broadcast_to(se, batch.n_steps)[at].astype(float), zero == 0
    return Truth(
        tuple(r for r, _, _ in rows),
        tuple(t for _, t, _ in rows),
        numbers,
        known,
        (n,) * len(rows),
        (source,) * len(rows),
        header or {},
    )
