"""Checks of roles: who took which step, and whether roles are compared with each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accredit.data import Finding
from accredit.findings.scene import Check, Scene, distinct_pairs
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
    first_S = role_S[scene.batch.step_start_R1[index.rollout_S]]
    several_R = segment_sum(role_S != first_S, index.rollout_S, n) > 0
    yield from scene.rollouts("ACC603", several_R, "{n} with steps of several roles")
    yield from scene.groups(
        "ACC602", _apart(scene, role_S), "{n} in which rollouts of different roles are compared"
    )


def _apart(scene: Scene, role_S: Ints) -> BoolArray:
    """Return groups in which no role takes part in every rollout ``[G]``; branches do not matter."""
    index = scene.index
    root_S = ~scene.present("parent_R")[index.rollout_S]
    rollout, role = distinct_pairs(index.rollout_S[root_S], role_S[root_S] + 1)
    rollouts_G = np.bincount(index.group_R[np.unique(rollout)], minlength=index.n_groups)
    width = int(role.max(initial=0)) + 1
    taking_part = np.bincount(index.group_R[rollout] * width + role, minlength=index.n_groups * width)
    apart: BoolArray = taking_part.reshape(-1, width).max(axis=1) < rollouts_G
    return apart


CHECKS: tuple[Check, ...] = (_roles,)
