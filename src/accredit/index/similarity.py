"""States that are nearly equal: symmetric clusters of texts, or of embeddings.

Two states of one group are the same when a chain of similar pairs leads from one to the other
(connected components), so neither the order of rollouts nor of arguments decides.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from accredit.data import Batch
from accredit.errors import DataError, MissingSignal, ParamError
from accredit.typing import Array, Ints

__all__ = ["Nearness", "near_codes", "nearness_of"]

# Distinct states of one group up to which all pairs are compared.
MOST = 4000


class Nearness(NamedTuple):
    """How alike two states must be: ``similar:0.95`` (texts) or ``embedding:0.9`` (vectors)."""

    kind: str
    threshold: float


def nearness_of(key: object) -> Nearness | None:
    """Return what a key string says about nearness, or None if it is another kind of key.

    Example:
        >>> nearness_of("similar:0.95")
        Nearness(kind='similar', threshold=0.95)

    Raises:
        ParamError: the threshold is not a number in (0, 1].
    """
    if not isinstance(key, str):
        return None
    kind, _, text = key.partition(":")
    if kind not in ("similar", "embedding") or not text:
        return None
    try:
        threshold = float(text)
    except ValueError:
        threshold = 0.0
    if not 0 < threshold <= 1:
        raise ParamError(f"the threshold of state key {key!r} must be a number in (0, 1]")
    return Nearness(kind, threshold)


def near_codes(batch: Batch, near: Nearness) -> tuple[Ints, int]:
    """Return the cluster of each step's state ``[S]`` and the number of clusters.

    Clusters never cross groups; a step without a state (or embedding) is a cluster of its own.

    Args:
        batch: must have text states (``similar``) or ``embedding_S``, one vector a step.
        near: kind and threshold: ``difflib`` ratio in either order, or cosine.

    Raises:
        MissingSignal: no embeddings.
        DataError: states that are not texts, or too many distinct ones in a group.
    """
    items, known = _texts(batch) if near.kind == "similar" else _vectors(batch)
    alike = _alike_texts if near.kind == "similar" else _alike_vectors
    rollout_S = np.repeat(np.arange(len(batch)), np.diff(batch.step_start_R1))
    group_S = batch.group_R[rollout_S]
    codes = np.full(batch.n_steps, -1, np.int64)
    n = 0
    for group in np.unique(group_S[known]).tolist():
        steps = np.flatnonzero((group_S == group) & known)
        found, count = _clusters(items[steps], near.threshold, alike, batch.group_names[group])
        codes[steps] = n + found
        n += count
    missing = np.flatnonzero(codes < 0)
    codes[missing] = n + np.arange(missing.size)
    return codes, n + missing.size


def _clusters(
    items: Array, threshold: float, alike: Callable[[Array, float], sparse.csr_array], group: object
) -> tuple[Ints, int]:
    distinct, place = np.unique(items, axis=0, return_inverse=True)
    if distinct.shape[0] > MOST:
        raise DataError(
            f"group {group!r} has {distinct.shape[0]} distinct states, more than {MOST}",
            hint="Use a normaliser as state key (strip-digits, strip-ids …), which joins states directly",
        )
    count, labels = csgraph.connected_components(alike(distinct, threshold), directed=False)
    return labels[place.reshape(-1)].astype(np.int64), int(count)


def _texts(batch: Batch) -> tuple[Array, Array]:
    column = batch.column("state_S")
    known = column.mask(batch.n_steps)
    words = column.decoded()
    if not all(isinstance(word, str) for word in words[known].tolist()):
        raise DataError("similar states must be texts", hint="Give string states, or an exact key")
    texts = np.array([w if isinstance(w, str) else "" for w in words.tolist()])
    return texts, known


def _vectors(batch: Batch) -> tuple[Array, Array]:
    if not batch.has("embedding_S"):
        raise MissingSignal(
            "state key embedding needs `embedding` at every step, which these rollouts lack",
            code="ACC401",
            hint="Give a vector a step: steps[].embedding, or with_column('embedding_S', ...)",
        )
    column = batch.column("embedding_S")
    if column.values.ndim != 2:
        raise DataError("embeddings must be vectors of one length", hint="Give the same length at every step")
    norm = np.linalg.norm(column.values, axis=1, keepdims=True)
    return column.values / np.where(norm > 0, norm, 1.0), column.mask(batch.n_steps)


def _alike_texts(texts: Array, threshold: float) -> sparse.csr_array:
    length = np.array([len(t) for t in texts.tolist()], np.float64)
    bound = 2 * np.minimum(length[:, None], length) / np.maximum(length[:, None] + length, 1)
    rows, cols = np.nonzero(np.triu(bound >= threshold, 1))
    keep = [_similar(str(texts[i]), str(texts[j]), threshold) for i, j in zip(rows, cols, strict=True)]
    return _links(rows[keep], cols[keep], texts.size)


def _similar(a: str, b: str, threshold: float) -> bool:
    """Whether the ratio reaches the threshold in either order (it can differ by the order)."""
    forth = difflib.SequenceMatcher(None, a, b, autojunk=False)
    if forth.quick_ratio() < threshold:
        return False
    back = difflib.SequenceMatcher(None, b, a, autojunk=False)
    return max(forth.ratio(), back.ratio()) >= threshold


def _alike_vectors(vectors: Array, threshold: float) -> sparse.csr_array:
    rows, cols = np.nonzero(np.triu(vectors @ vectors.T >= threshold - 1e-12, 1))
    return _links(rows, cols, vectors.shape[0])


def _links(rows: Ints, cols: Ints, n: int) -> sparse.csr_array:
    return sparse.csr_array((np.ones(rows.size), (rows, cols)), shape=(n, n))
