"""Terms of an explanation that many methods share: one value against its group."""

from __future__ import annotations

import numpy as np

from accredit.data import Member, Term
from accredit.index.core import Index
from accredit.index.groups import GroupStats
from accredit.typing import Floats, Ints

__all__ = ["group_members", "rollout_term", "visit_term"]


def rollout_term(
    index: Index,
    name: str,
    stats: GroupStats,
    r: int,
    *,
    weight: float = 1.0,
    eps: float | None = None,
    scale_G: Floats | None = None,
) -> Term:
    """Return the term of rollout r's score against its group.

    Args:
        index: of the batch.
        name: the addend's name.
        stats: over rollouts ``[R]`` by group.
        r: the rollout.
        weight: factor of the whole term.
        eps: None = no division; else the scale is ``scale_G + eps``.
        scale_G: deviation of each group ``[G]``.
    """
    return _term(name, stats, r, "score", group_members(index, stats, r), weight, eps, scale_G)


def group_members(index: Index, stats: GroupStats, r: int) -> tuple[Member, ...]:
    """Return the rollouts of rollout r's group with their values, and which of them count.

    Args:
        index: of the batch.
        stats: over rollouts ``[R]``.
        r: the rollout.
    """
    same = np.flatnonzero(index.group_R == index.group_R[r]).tolist()
    return tuple(Member(index.batch.ids[i], float(stats.values[i]), note=_note(stats, i, r)) for i in same)


def visit_term(
    index: Index,
    name: str,
    stats: GroupStats,
    s: int,
    *,
    weight: float = 1.0,
    eps: float | None = None,
    scale_G: Floats | None = None,
    noun: str = "return",
    steps: Ints | None = None,
) -> Term:
    """Return the term of step s's value against the other visits of its set.

    Args:
        index: of the batch.
        name: the addend's name.
        stats: over steps ``[S]`` by state group.
        s: the step.
        weight: factor of the whole term.
        eps: None = no division; else the scale is ``scale_G + eps``.
        scale_G: deviation of each state group.
        noun: what the values are.
        steps: the step of each value, where the statistics are over some steps only; then ``s`` is
            a position in it.
    """
    same = np.flatnonzero(stats.ids == stats.ids[s])
    at = same if steps is None else steps[same]
    rollouts: Ints = index.rollout_S[at]
    members = tuple(
        Member(
            index.batch.ids[r],
            float(stats.values[i]),
            int(index.position_S[step]),
            _note(stats, i, s),
        )
        for i, step, r in zip(same.tolist(), at.tolist(), rollouts.tolist(), strict=True)
    )
    return _term(name, stats, s, noun, members, weight, eps, scale_G)


def _note(stats: GroupStats, i: int, own: int) -> str:
    if stats.counted is not None and not stats.counted[i]:
        return "not counted"
    return "this one" if i == own else ""


def _term(
    name: str,
    stats: GroupStats,
    i: int,
    noun: str,
    members: tuple[Member, ...],
    weight: float,
    eps: float | None,
    scale_G: Floats | None,
) -> Term:
    group = int(stats.ids[i])
    own, mean, size = float(stats.values[i]), float(stats.mean[group]), int(stats.size[group])
    inputs = {noun: own, "mean": mean, "n": float(size), "weight": weight}
    text = f"({noun} {own:.6g} - mean {mean:.6g} of {size})"
    value = float(stats.centred[i])
    if eps is not None and scale_G is not None:
        scale = float(scale_G[group])
        inputs |= {"std": scale, "eps": eps}
        text += f" / (std {scale:.6g} + {eps:g})"
        value = value / (scale + eps) if scale > 0 else 0.0
    if weight != 1.0:
        text = f"{weight:g} x {text}"
    if stats.counted is not None and not stats.counted[i]:
        text += " [not counted: exactly 0]"
    elif stats.flat[group] and size > 1:
        text += " [all equal: exactly 0]"
    return Term(name, weight * value, text, inputs, members)
