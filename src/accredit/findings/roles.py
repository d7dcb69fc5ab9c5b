"""Checks of roles: who took which step, and whether roles are compared with each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accredit.data import Finding
from accredit.findings.scene import Check, Scene
from accredit.index import segment_sum
from accredit.typing import BoolArray, Ints

__all__ = ["CHECKS", "role_codes"]


def role_codes(scene: Scene) -> Ints | None:
    """Return the role of each step ``[S]``: its own, else its rollout's default, else -1; None if none.

    Args:
        scene: the batch.
    """
    batch, index = scene.batch, scene.index
    names = [n for n in ("agent_R", "agent_S") if batch.has(n)]
    if not names:
        return None
    words: dict[object, int] = {}
    found = np.full(batch.n_steps, -1, np.int64)
    for name in names:
        column = batch.column(name)
        recode = np.array([words.setdefault(w, len(words)) for w in column.words or ("",)], np.int64)
        there, codes = scene.present(name), recode[column.values]
        if name.endswith("_R"):
            there, codes = there[index.rollout_S], codes[index.rollout_S]
        found[there] = codes[there]
    return found


def _roles(scene: Scene) -> Iterator[Finding]:
    role_S = role_codes(scene)
    if role_S is None or not role_S.size:
        return
    index, n = scene.index, len(scene.batch)
    missing = role_S < 0
    if not missing.all():
        yield from scene.steps("ACC601", missing, "{n} without a role")
    start = np.minimum(scene.batch.step_start_R1[:-1], role_S.size - 1)
    several_R = segment_sum(role_S != role_S[start][index.rollout_S], index.rollout_S, n) > 0
    yield from scene.rollouts("ACC603", several_R, "{n} with steps of several roles")
    yield from scene.groups(
        "ACC602", _apart(scene, role_S), "{n} in which rollouts of different roles are compared"
    )


def _apart(scene: Scene, role_S: Ints) -> BoolArray:
    """Return groups with two rollouts that have no role in common with the group's first."""
    index = scene.index
    rows = index.steps_R > 0
    first_G = np.full(index.n_groups, -2, np.int64)
    lead_R = role_S[np.minimum(scene.batch.step_start_R1[:-1], role_S.size - 1)]
    order = np.flatnonzero(rows)[::-1]
    first_G[index.group_R[order]] = lead_R[order]
    shared_R = segment_sum(role_S == first_G[index.group_S], index.rollout_S, len(scene.batch)) > 0
    apart = np.zeros(index.n_groups, bool)
    apart[index.group_R[rows & ~shared_R & ~scene.present("parent_R")]] = True
    return apart


CHECKS: tuple[Check, ...] = (_roles,)
