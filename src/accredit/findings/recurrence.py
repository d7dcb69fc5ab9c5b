"""How often states recur in their group, and what a coarser key would add."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from accredit.index import NORMALISERS, Index, first_seen, key_column, segment_sum, word_keys
from accredit.typing import BoolArray, Ints, Scalar

__all__ = ["Revisits", "normaliser_gains", "revisits", "state_column"]

# Normalisers are regular expressions over every different state: this many characters take about 0.1 s.
_CHARACTERS = 200_000


class Revisits(NamedTuple):
    """Shares of the steps that have a state.

    Args:
        anywhere: share whose (group, state) occurs at another step.
        across: share whose (group, state) occurs in another rollout.
        steps: number of steps that have a state.
        distinct: number of different states.
    """

    anywhere: float
    across: float
    steps: int
    distinct: int


def state_column(index: Index) -> str:
    """Return the name of the column that the index's key takes as state.

    Args:
        index: of the batch.
    """
    return key_column(index.batch, index.key)[0]


def revisits(index: Index) -> Revisits | None:
    """Return how often states recur in their group, under the index's key; None without states.

    Args:
        index: of the batch.

    Example:
        >>> from accredit.data import Batch
        >>> step = {"state": "s"}
        >>> batch = Batch.from_records([{"id": i, "group": "g", "steps": [step, {"state": i}]} for i in "ab"])
        >>> revisits(Index(batch))
        Revisits(anywhere=0.5, across=0.5, steps=4, distinct=3)
    """
    use_S = _stated(index)
    if use_S is None:
        return None
    share = _shares(index, index.anchor_S, use_S)
    return Revisits(*share, int(use_S.sum()), int(np.count_nonzero(np.bincount(index.state_S[use_S]))))


def _stated(index: Index) -> BoolArray | None:
    """Return the steps that have a state ``[S]``; None if there is none."""
    column = index.batch.columns.get(state_column(index))
    use_S = None if column is None else column.mask(index.batch.n_steps)
    return use_S if use_S is not None and use_S.any() else None


def _shares(index: Index, anchor_S: Ints, use_S: BoolArray) -> tuple[float, float]:
    """Return the shares of steps whose anchor occurs at another step, and in another rollout."""
    anchor, rollout = anchor_S[use_S], index.rollout_S[use_S]
    size = np.bincount(anchor)
    first, last = np.zeros(size.size, np.int64), np.zeros(size.size, np.int64)
    last[anchor] = rollout
    first[anchor[::-1]] = rollout[::-1]
    return float((size[anchor] > 1).mean()), float((first != last)[anchor].mean())


def normaliser_gains(index: Index) -> dict[str, float]:
    """Return, for each state normaliser, the share of steps that it adds to those with a shared state.

    Measured on the first groups, as many as hold 200,000 characters of different states (at least one;
    nothing is measured where that one holds twenty times as many).

    Args:
        index: of the batch; its own key is the base.
    """
    use_S = _stated(index)
    if use_S is None:
        return {}
    column = index.batch.column(state_column(index))
    words = column.words or ()
    use_S = use_S & _first_groups(index, column.values, words)
    if not use_S.any():
        return {}
    at = np.flatnonzero(np.bincount(column.values[use_S]))
    texts = [words[c] for c in at.tolist()]
    place = np.zeros(len(words), np.int64)
    place[at] = np.arange(at.size)
    base = _shares(index, index.anchor_S, use_S)[0]
    found = {}
    for name in NORMALISERS:
        if name != "exact":
            keys = word_keys(texts, name)
            joins = int(keys.max()) + 1 < len(texts)
            found[name] = (
                max(_share_under(index, keys[place[column.values]], use_S) - base, 0.0) if joins else 0.0
            )
    return found


def _share_under(index: Index, state_S: Ints, use_S: BoolArray) -> float:
    anchor_S = np.zeros(state_S.size, np.int64)
    anchor_S[use_S] = first_seen(index.group_S[use_S] * (int(state_S.max()) + 1) + state_S[use_S])
    return _shares(index, anchor_S, use_S)[0]


def _first_groups(index: Index, codes_S: Ints, words: tuple[Scalar, ...]) -> BoolArray:
    """Return the steps of the first groups that hold the character budget of different states."""
    length = np.array([len(w) if isinstance(w, str) else 1 for w in words])
    if int(length.sum()) <= _CHARACTERS:
        return np.ones(codes_S.size, bool)
    first = np.full(len(words), -1)
    first[codes_S[::-1]] = np.arange(codes_S.size)[::-1]
    new_S = np.zeros(codes_S.size, bool)
    new_S[first[first >= 0]] = True
    cost_G = segment_sum(length[codes_S] * new_S, index.group_S, index.n_groups)
    if cost_G[0] > 20 * _CHARACTERS:
        return np.zeros(codes_S.size, bool)
    last = max(int(np.searchsorted(np.cumsum(cost_G), _CHARACTERS)), 1)
    found: BoolArray = index.group_S < last
    return found
