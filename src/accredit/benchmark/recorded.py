"""Methods on recorded rollouts against their truth: one number a game, intervals over games."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from accredit.against import Judge, TruthLike, advantages, told_of, truth_of
from accredit.agreement import Estimate
from accredit.benchmark.files import put_section
from accredit.data import Batch
from accredit.engine import assign, missing_needs
from accredit.errors import AccreditError
from accredit.index import Key
from accredit.methods import catalog, get_method

__all__ = ["REFERENCE", "Recorded", "RecordedRow", "recorded"]

REFERENCE = "truth"


@dataclass(frozen=True, slots=True)
class RecordedRow:
    """One method on recorded rollouts, each number a mean over games with its 95 % interval.

    Args:
        method: as `assign` is told.
        rank: Spearman's correlation of credit with A over the steps of a game; 0 where credit ties.
        sign: share of steps with |A| > 0.05 whose credit has the sign of A.
        cosine: of the policy gradient by credit with that by A, one logit a (state, action); None
            where the rollouts do not say how likely each action was.
        bias: mean of credit - A after the best scale >= 0, in reward units.
        unable: why it could not run; "" if it did.
        bought: continuations that it was given, in words; "" = none.
        continuations: their number, over all games.
        environment_steps: steps taken by them.
    """

    method: str
    rank: Estimate | None = None
    sign: Estimate | None = None
    cosine: Estimate | None = None
    bias: Estimate | None = None
    unable: str = ""
    bought: str = ""
    continuations: int = 0
    environment_steps: int = 0


@dataclass(frozen=True, slots=True)
class Recorded:
    """Methods on recorded rollouts.

    Args:
        rows: by rank, those that could not run last.
        games: groups with a known truth, the unit of the intervals.
        rollouts: of them.
        steps: of them with a known truth.
        about: what was measured: name of the rollouts, key, and what the truth says of itself.
    """

    rows: tuple[RecordedRow, ...]
    games: int
    rollouts: int
    steps: int
    about: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, JSON-ready."""
        return asdict(self)

    def save_page(self, path: str | Path) -> Path:
        """Put the section into the page of results, which is made where it is missing.

        Args:
            path: ends in ``.md``.

        Raises:
            StoreError: if it cannot be written.
        """
        from accredit.views.bench_recorded import recorded_section  # pictures come last

        return put_section(path, recorded_section(self.to_dict()))


def recorded(
    batch: Batch,
    truth: TruthLike,
    methods: Sequence[str] | str = "all",
    *,
    key: Key | None = None,
    name: str = "",
    progress: Callable[[int, int, str], None] | None = None,
) -> Recorded:
    """Return how near each method comes to the truth of recorded rollouts.

    Args:
        batch: the rollouts.
        truth: of their steps, rows or a file of schema ``accredit.truth/1``.
        methods: ids (``"id:name=value"`` too); ``all`` = every method, those that lack a signal with
            the reason.
        key: which states count as the same.
        name: of the rollouts, for the page.
        progress: called with done, total and what comes now.

    Raises:
        DataError: if the truth knows none of these steps.
    """
    rows = truth_of(batch, truth)
    true_S, known_S = advantages(batch, rows)
    names = [c.id for c in catalog() if c.yields != "table"] if methods == "all" else list(methods)
    judge = Judge(batch, true_S, known_S)
    found = [RecordedRow(REFERENCE, *judge.near(true_S))]
    for i, method in enumerate(names):
        if progress is not None:
            progress(i, len(names), method)
        found.append(_measured(judge, batch, method, key))
    order = sorted(found, key=lambda row: (row.unable != "", -(row.rank.value if row.rank else 0.0)))
    rollouts = int(np.unique(judge.index.rollout_S[known_S]).size)
    about = {"rollouts": name, "key": key if isinstance(key, str) else None, **told_of(rows)}
    return Recorded(tuple(order), judge.n_groups, rollouts, int(known_S.sum()), about)


def _measured(judge: Judge, batch: Batch, method: str, key: Key | None) -> RecordedRow:
    lacking = missing_needs(batch, get_method(method)[0].card, key)
    if lacking:
        return RecordedRow(method, unable=f"needs {', '.join(lacking)}")
    try:
        return RecordedRow(method, *judge.near(assign(batch, method, key=key, seed=0).steps))
    except AccreditError as error:
        return RecordedRow(method, unable=str(error).partition("\n")[0])
