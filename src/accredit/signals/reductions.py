"""From rows of logits to one number a token, in numpy; memory is that of the rows.

These are the reference of the same reductions in torch (`torch_reductions`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from accredit.signals.request import Want
from accredit.typing import Array, Ints

__all__ = ["BLOCK_BYTES", "joined", "log_softmax", "reduced", "row_pieces", "rows_at_a_time", "top"]

BLOCK_BYTES = 1 << 24  # bytes of float32 logits that are held at once
_MOST_ROWS = 1024


def rows_at_a_time(vocabulary: int, budget: int = BLOCK_BYTES) -> int:
    """Return how many rows of float32 logits fit the budget: at least 1, at most 1,024.

    Example:
        >>> rows_at_a_time(152_000), rows_at_a_time(100)
        (27, 1024)
    """
    return max(1, min(_MOST_ROWS, budget // (4 * vocabulary)))


def row_pieces(n: int, size: int) -> Iterator[slice]:
    """Yield slices that cover ``n`` rows, ``size`` at a time.

    Example:
        >>> [(s.start, s.stop) for s in row_pieces(5, 2)]
        [(0, 2), (2, 4), (4, 5)]
    """
    for first in range(0, n, size):
        yield slice(first, min(first + size, n))


def log_softmax(logits: Array) -> Array:
    """Turn float32 logits ``[n, V]`` into log-probabilities in place, and return them.

    ``log p_v = z_v - max z - log sum_u exp(z_u - max z)``; the sum is taken in float64.

    Args:
        logits: float32 ``[n, V]``; overwritten.
    """
    logits -= logits.max(axis=1, keepdims=True)
    total = np.exp(logits).sum(axis=1, dtype=np.float64)
    logits -= np.log(total)[:, None].astype(np.float32)
    return logits


def reduced(logits: Array, chosen: Ints, want: Want, temperature: float = 1.0) -> dict[str, Array]:
    """Return what is wanted of some rows, by name of the `Scores` field.

    Args:
        logits: float32 ``[n, V]``; overwritten.
        chosen: ``[n]`` id that was chosen at each row.
        want: ``logprob``, ``entropy``, ``gradnorm``, ``topk`` and ``logits`` of it are answered.
        temperature: logits are divided by it; those that are returned are not.
    """
    found: dict[str, Array] = {}
    if want.logits:
        found["logits"] = logits[:, list(want.logits)].copy()
    if temperature != 1.0:
        logits /= np.float32(temperature)
    logits -= logits.max(axis=1, keepdims=True)
    weights = np.exp(logits)
    total = weights.sum(axis=1, dtype=np.float64)
    lse = np.log(total)
    mine = logits[np.arange(len(logits)), chosen] - lse
    if want.logprob:
        found["logprob"] = mine.astype(np.float32)
    if want.topk:
        found["topk_ids"], shifted = top(logits, want.topk)
        found["topk_logprobs"] = (shifted - lse[:, None]).astype(np.float32)
    if want.gradnorm:
        square = np.einsum("ij,ij->i", weights, weights) / total**2
        found["gradnorm"] = np.maximum(1 - 2 * np.exp(mine) + square, 0).astype(np.float32)
    if want.entropy:
        mean = np.einsum("ij,ij->i", weights, logits) / total
        found["entropy"] = np.maximum(lse - mean, 0).astype(np.float32)
    return found


def top(log: Array, k: int) -> tuple[Array, Array]:
    """Return ids and values ``[n, k]`` of the highest values; ties go to the lower id.

    Args:
        log: ``[n, V]`` log-probabilities, or these up to a number a row.
        k: how many; all where the vocabulary is smaller.
    """
    k = min(k, log.shape[1])
    border = np.partition(log, log.shape[1] - k, axis=1)[:, log.shape[1] - k]
    ids = np.empty((len(log), k), np.int32)
    for i, row in enumerate(log):  # ties at the border: the partition alone would pick any of them
        above, level = np.flatnonzero(row > border[i]), np.flatnonzero(row == border[i])
        picked = np.concatenate([above, level[: k - above.size]])
        ids[i] = picked[np.lexsort((picked, -row[picked]))]
    return ids, np.take_along_axis(log, ids.astype(np.int64), axis=1)


def joined(pieces: Iterable[Mapping[str, Array]]) -> dict[str, Array]:
    """Return pieces of rows put together, name by name.

    Args:
        pieces: at least one; all have the same names.
    """
    parts: Sequence[Mapping[str, Array]] = list(pieces)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
