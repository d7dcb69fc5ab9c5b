"""How uncertain the policy was at each step."""

from __future__ import annotations

import numpy as np

from accredit.index.core import Index
from accredit.index.segments import segment_sum
from accredit.typing import Floats

__all__ = ["step_entropy"]


def step_entropy(index: Index) -> tuple[Floats, int]:
    """Return the entropy of each step, nats ``[S]``, and how many steps with tokens have none.

    `node_entropy` where it is given, else the mean negative log-probability of the step's tokens; 0
    for a step without either.

    Args:
        index: of the batch.
    """
    batch, size = index.batch, index.batch.n_steps
    found, known = np.zeros(size), np.zeros(size, bool)
    if batch.has("logprob_T"):
        total = segment_sum(batch.logprob_T, index.step_T, size)
        known = batch.column("logprob_T").mask(size) & (index.tokens_S > 0)
        found = np.where(known, -total / np.maximum(index.tokens_S, 1), 0.0)
    if batch.has("node_entropy_S"):
        column = batch.column("node_entropy_S")
        given = column.mask(size)
        found, known = np.where(given, column.values, found), known | given
    return found, int(((index.tokens_S > 0) & ~known).sum())
