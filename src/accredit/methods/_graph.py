"""What the joint forms of the state-graph family share: GRPO's part, success, findings."""

from __future__ import annotations

import numpy as np

from accredit.data import Finding, Term
from accredit.index import GroupStats, Index, rollout_term
from accredit.typing import BoolArray, Floats

__all__ = ["grpo_part", "grpo_term", "kept_term", "outcome_findings", "snapped"]

_EPS = 1e-6


def grpo_part(index: Index) -> tuple[Floats, GroupStats]:
    """Return GRPO's advantage at every step ``[S]`` (its defaults) and the statistics behind it."""
    stats = GroupStats(index.score_R, index.group_R, index.n_groups, index.scored_R)
    return stats.standardised(_EPS)[index.rollout_S], stats


def grpo_term(index: Index, stats: GroupStats, s: int, weight: float = 1.0) -> Term:
    """Return the explanation of GRPO's part at step s."""
    r = int(index.rollout_S[s])
    return rollout_term(index, "episode", stats, r, weight=weight, eps=_EPS, scale_G=stats.std())


def kept_term(plain: Term, value: float, who: str, before: str = "") -> Term:
    """Return the explanation of a term of which somebody keeps only what is positive.

    Args:
        plain: the term before that.
        value: the term as it was kept.
        who: keeps it so.
        before: of the formula.
    """
    cut = f"; {who} keeps only what is positive" if value != plain.value else ""
    return Term(plain.name, value, f"{before}{plain.formula}{cut}", plain.inputs, plain.members)


def snapped(values: Floats) -> Floats:
    """Return differences of values, exactly 0 where they are rounding (at most 1e-12)."""
    return np.where(np.abs(values) <= 1e-12, 0.0, values)


def outcome_findings(index: Index, counted: BoolArray) -> tuple[Finding, ...]:
    """Return a finding where more than two outcome values are read as success or failure."""
    kinds = np.unique(index.outcome_R[counted])
    if kinds.size <= 2:
        return ()
    return (
        Finding(
            "ACC410",
            "warning",
            f"{kinds.size} different outcomes are read as success (> success_above) or failure",
            hint="Use boundary='reward' where the method has it, or set success_above",
        ),
    )
