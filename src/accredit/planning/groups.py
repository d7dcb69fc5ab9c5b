"""The scored rollouts of a batch by group: sizes, different rewards, ties."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.errors import DataError
from accredit.findings.ties import Ties, zero_spread
from accredit.index import Index
from accredit.index.groups import FLAT
from accredit.odds import Span, posterior_rate, share_span
from accredit.planning.records import TaskRate, Waste
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["ScoredGroups"]


@dataclass(frozen=True)
class ScoredGroups:
    """The scored rollouts of a batch by group.

    Args:
        index: of the batch.
        levels: of each group, its scored rollouts at each different reward that it has.
        passed_G: rollouts at the batch's highest reward ``[G]``.
        size_G: scored rollouts ``[G]``.
        n_levels: different rewards of the batch.
        ties: which groups tie, and how.
    """

    index: Index
    levels: list[Ints]
    passed_G: Ints
    size_G: Ints
    n_levels: int
    ties: Ties

    @classmethod
    def of(cls, index: Index) -> ScoredGroups:
        """Return the groups of an index.

        Raises:
            DataError: if no rollout is scored.
        """
        scored = index.scored_R
        if not scored.any():
            raise DataError(
                "none of the rollouts is scored",
                code="ACC201",
                hint="Give each rollout its reward, or plan by success_rate",
            )
        group, score = index.group_R[scored], index.score_R[scored]
        level, n_levels = _levels(score)
        counts = np.bincount(group * n_levels + level, minlength=index.n_groups * n_levels)
        table = counts.reshape(index.n_groups, n_levels)
        passed = table[:, -1] if n_levels > 1 or score[0] > 0 else 0 * table[:, -1]
        ties = zero_spread(index.score_R, index.group_R, index.n_groups, scored)
        return cls(index, [row[row > 0] for row in table], passed, table.sum(axis=1), n_levels, ties)

    @property
    def usual(self) -> int:
        """The commonest number of scored rollouts."""
        return int(np.bincount(self.size_G[self.size_G > 0]).argmax())

    @property
    def flat_G(self) -> BoolArray:
        """Groups of two or more whose rewards tie ``[G]``."""
        return self.ties.all_pass | self.ties.all_fail | self.ties.tie

    def waste(self) -> Waste:
        """Return the rollouts whose group has no signal."""
        kinds, flat = self.ties.counts(), self.flat_G
        several = int((self.size_G > 1).sum())
        share = share_span(float(flat.sum()) / several, several) if several else Span(0.0, 0.0, 1.0)
        return Waste(
            int(self.size_G[flat].sum()),
            int(self.size_G.sum()),
            int(flat.sum()),
            several,
            share,
            kinds["all_pass"],
            kinds["all_fail"],
            kinds["tie"],
            kinds["single"],
        )

    def tasks(self, beta: tuple[float, float] | None) -> tuple[TaskRate, ...]:
        """Return the success rate of each group; none for graded rewards.

        Args:
            beta: law of the rates over groups; None: Jeffreys' prior.
        """
        if self.n_levels > 2:
            return ()
        names = {}
        for code, dense in zip(self.index.batch.group_R.tolist(), self.index.group_R.tolist(), strict=True):
            names[dense] = self.index.batch.group_names[code]
        counts = zip(self.passed_G.tolist(), self.size_G.tolist(), strict=True)
        return tuple(
            TaskRate(names[g], k, n, posterior_rate(k, n, beta)) for g, (k, n) in enumerate(counts) if n
        )


def _levels(score: Floats) -> tuple[Ints, int]:
    """Code of each score among the different ones; what ties by the groups' own test is one."""
    values, code = np.unique(score, return_inverse=True)
    new = np.diff(values) > FLAT * np.maximum(1.0, np.abs(values[1:]))
    level = np.concatenate([[0], np.cumsum(new)])
    return level[code], int(level[-1]) + 1
