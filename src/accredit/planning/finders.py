"""Which methods still give credit where all outcomes of a group tie."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from accredit.data import Batch, MethodCard
from accredit.engine import assign, missing_needs
from accredit.errors import AccreditError
from accredit.index import Key
from accredit.index.groups import FLAT
from accredit.methods import catalog, get_method
from accredit.planning.groups import ScoredGroups
from accredit.planning.records import Finder
from accredit.typing import BoolArray

__all__ = ["find_signal"]


def find_signal(
    groups: ScoredGroups,
    methods: Sequence[str] | None,
    key: Key | None,
    progress: Callable[[int, int, str], None] | None,
) -> tuple[tuple[Finder, ...], tuple[tuple[str, str], ...]]:
    """Return what methods find in the groups that tie, the most first, and which could not run.

    Args:
        groups: of the batch; methods run on all of it.
        methods: ids to try; None: all that can run.
        key: state key.
        progress: called with what is done, what there is in all, and what comes now.

    Raises:
        ParamError: for an unknown method or parameter.
    """
    batch = groups.index.batch
    names = _candidates(batch, key) if methods is None else list(methods)
    cards = [_card(name) for name in names]
    inside_S = groups.flat_G[groups.index.group_S]
    found, unable = [], []
    for done, (name, card) in enumerate(zip(names, cards, strict=True)):
        if not inside_S.any():
            break
        if progress is not None:
            progress(done, len(names), name)
        try:
            found.append(_finder(batch, name, card, groups, inside_S, key))
        except AccreditError as error:
            unable.append((name, error.message))
    found.sort(key=lambda f: (-f.steps, f.method))
    return tuple(found), tuple(unable)


def _card(name: str) -> MethodCard:
    """The card of a method that was asked for: a slip in its name or parameters is told before any work."""
    chosen, implied = get_method(name)
    chosen.make_params(implied)
    return chosen.card


def _candidates(batch: Batch, key: Key | None) -> list[str]:
    cards = (card for card in catalog() if card.yields != "table")
    return [card.id for card in cards if not missing_needs(batch, card, key)]


def _finder(
    batch: Batch, name: str, card: MethodCard, groups: ScoredGroups, inside_S: BoolArray, key: Key | None
) -> Finder:
    size = np.abs(assign(batch, name, key=key, seed=0 if "stochastic" in card.tags else None).steps)
    credited = inside_S & (size > FLAT * size.max(initial=0.0))
    group_S = groups.index.group_S
    return Finder(
        name,
        int(credited.sum()),
        int(inside_S.sum()),
        np.unique(group_S[credited]).size,
        np.unique(group_S[inside_S]).size,
        "cross_group" in card.tags,
    )
