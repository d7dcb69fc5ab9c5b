"""One path below each first message of a tree: drawn by names, or as told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from accredit.data.chance import prf
from accredit.errors import DataError, ParamError
from accredit.methods._trees import Grove
from accredit.typing import BoolArray, Ints

__all__ = ["drawn_paths"]


def drawn_paths(grove: Grove, draw: int, path: Mapping[str, Any] | None) -> BoolArray:
    """Return the messages on one path below each first message ``[N]``.

    Of the children with a scored leaf that one is taken for which a pseudorandom function of the draw,
    the task and the child's name (the first id of its rollouts) is smallest: a uniform draw that
    neither the order of rollouts nor other tasks change.

    Args:
        grove: the trees.
        draw: number of the draw.
        path: number of a first message -> numbers of the children taken below it, all counted from 0
            in order of appearance; what it does not say is 0.  None = drawn.

    Raises:
        ParamError: for a path that is no mapping of numbers to lists of numbers.
        DataError: if it names a child that is not there.
    """
    forks = grove.forks
    messages = grove.inner_N & (grove.leaves_N > 0)
    number = _numbers(forks.parent_N, messages)
    chosen = _smallest(grove, messages, draw) if path is None else _told(grove, messages, number, path)
    found: BoolArray = messages & (forks.depth_N == 1)
    for nodes in forks.levels[2:]:
        found[nodes] = messages[nodes] & chosen[nodes] & found[forks.parent_N[nodes]]
    if path is not None:
        _refuse_absent(grove, messages, found)
    return found


def _numbers(parent: Ints, messages: BoolArray) -> Ints:
    """Return the number of each message among its siblings, in order of appearance ``[N]``."""
    found = np.zeros(parent.size, np.int64)
    nodes = np.flatnonzero(messages)
    order = nodes[np.argsort(parent[nodes], kind="stable")]
    found[order] = np.arange(order.size) - np.searchsorted(parent[order], parent[order], side="left")
    return found


def _smallest(grove: Grove, messages: BoolArray, draw: int) -> BoolArray:
    forks, index = grove.forks, grove.index
    order = sorted(range(len(index.batch)), key=lambda r: index.batch.ids[r])
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    first = np.full(forks.n_nodes, len(order))
    counted = grove.counted_R[index.rollout_S]
    np.minimum.at(first, forks.node_S[counted], rank[index.rollout_S[counted]])
    siblings = np.bincount(forks.parent_N[messages], minlength=forks.n_nodes)[forks.parent_N]
    found: BoolArray = messages & (siblings == 1)
    best: dict[int, tuple[int, int]] = {}
    for n in np.flatnonzero(messages & (forks.depth_N > 1) & (siblings > 1)).tolist():
        r = order[int(first[n])]
        group = str(index.batch.group_names[int(index.batch.group_R[r])])
        drawn = (prf(draw, group, int(forks.depth_N[n]), index.batch.ids[r]), n)
        parent = int(forks.parent_N[n])
        best[parent] = min(best.get(parent, drawn), drawn)
    found[[n for _, n in best.values()]] = True
    return found


def _told(grove: Grove, messages: BoolArray, number: Ints, path: Mapping[str, Any]) -> BoolArray:
    forks = grove.forks
    given = {str(g): _checked(g, turns) for g, turns in path.items()}
    top = number.copy()
    found = np.zeros(forks.n_nodes, bool)
    for depth, nodes in enumerate(forks.levels[2:]):
        top[nodes] = top[forks.parent_N[nodes]]
        turn = {g: turns[depth] for g, turns in given.items() if depth < len(turns)}
        wanted = np.array([turn.get(str(g), 0) for g in top[nodes].tolist()], np.int64)
        found[nodes] = messages[nodes] & (number[nodes] == wanted)
    return found


def _checked(first: Any, turns: Any) -> list[int]:
    whole = isinstance(turns, list | tuple) and all(type(t) is int and t >= 0 for t in turns)
    if not whole or not str(first).isdigit():
        raise ParamError(
            f"path must map numbers of first messages to lists of whole numbers, got {first!r}: {turns!r}"
        )
    return list(turns)


def _refuse_absent(grove: Grove, messages: BoolArray, found: BoolArray) -> None:
    """Raise where a drawn message has children and none of them was taken."""
    parent = grove.forks.parent_N
    asked, taken = np.zeros(messages.size, bool), np.zeros(messages.size, bool)
    inner = messages & (grove.forks.depth_N > 1)
    asked[parent[inner]] = True
    taken[parent[inner & found]] = True
    lost = np.flatnonzero(asked & found & ~taken)
    if lost.size:
        n = int(lost[0])
        size = int((messages & (parent == n)).sum())
        raise DataError(
            f"path takes a child of a message at depth {int(grove.forks.depth_N[n])} that has only {size}",
            hint="Children without a scored leaf do not count",
        )
