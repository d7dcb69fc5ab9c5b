"""Checks of ids, groups and steps: what is compared with what."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accredit.data import Finding
from accredit.findings.beginnings import Beginnings, beginnings, copies
from accredit.findings.codes import CODES
from accredit.findings.scene import Check, Scene, distinct_pairs, named
from accredit.typing import BoolArray, Scalar

__all__ = ["CHECKS", "position_pattern"]


def _no_rollouts(scene: Scene) -> Iterator[Finding]:
    if not len(scene.batch):
        left_out = len(scene.batch.excluded)
        tail = f": all {left_out} that were read are left out" if left_out else ""
        yield CODES["ACC122"].finding(f"there is no rollout to use{tail}")


def _sizes(scene: Scene) -> Iterator[Finding]:
    size_G = scene.group_size_G
    if not size_G.size:
        return
    alone = size_G == 1
    if alone.all() and size_G.size > 1:
        pattern = position_pattern(_names(scene))
        why = f": the ids are row numbers ({pattern})" if pattern else ""
        yield from scene.groups(
            "ACC111",
            alone,
            f"{{n}} with one rollout{why}; the group column is probably wrong",
        )
        return
    if not alone.all():
        yield from scene.groups("ACC112", alone, f"{{n}} with one rollout: {_singleton_policy(scene)}")
    common = np.bincount(size_G).argmax()
    odd = (size_G != common) & ~alone
    span = f"{size_G.min()} to {size_G.max()}"
    yield from scene.groups("ACC113", odd, f"{{n}} without the usual {common} rollouts (sizes {span})")


def _singleton_policy(scene: Scene) -> str:
    policy = scene.param("singleton")
    if scene.plan is None or policy is None:
        return "nothing to compare with"
    given = {"zero": "0", "raw": "its raw score"}.get(policy, "its own rule")
    return f"{scene.plan.card.id} gives such a rollout {given}"


def position_pattern(names_R: list[Scalar]) -> str:
    """Return the rule by which group ids repeat row positions, or "" if they do not.

    Args:
        names_R: group id of each rollout, in the order read.

    Returns:
        ``"row"``, ``"row // n"`` or ``"row % n"``.

    Example:
        >>> position_pattern([0, 0, 1, 1]), position_pattern(["0", "1", "0", "1"])
        ('row // 2', 'row % 2')
    """
    texts = [str(name) for name in names_R]
    if len(texts) < 2 or not all(text.isdecimal() and len(text) < 16 for text in texts):
        return ""
    codes = np.array([int(text) for text in texts], np.int64)
    row = np.arange(codes.size)
    if codes[0] != 0:
        return ""
    if np.array_equal(codes, row):
        return "row"
    changes = int(np.argmax(codes != 0))
    if changes and np.array_equal(codes, row // changes):
        return f"row // {changes}"
    n = int(codes.max()) + 1
    return f"row % {n}" if n > 1 and np.array_equal(codes, row % n) else ""


def _names(scene: Scene) -> list[Scalar]:
    names = scene.batch.group_names
    return [names[g] for g in scene.batch.group_R.tolist()]


def _types(scene: Scene) -> Iterator[Finding]:
    spelled: dict[str, Scalar] = {}
    for name in scene.batch.group_names:
        other = spelled.setdefault(str(name), name)
        if type(other) is not type(name):
            yield CODES["ACC123"].finding(
                f"group ids {named(other)} and {named(name)} are different groups",
                examples=[f"group {named(name)}"],
            )


def _beginnings(scene: Scene) -> Iterator[Finding]:
    found = beginnings(scene)
    if found is None:
        return
    many_G = _groups_with_several(scene, found)
    pattern = position_pattern(_names(scene)) if many_G.any() else ""
    why = f"; the group ids are positions ({pattern})" if pattern else ""
    yield from scene.groups("ACC114", many_G, f"{{n}} with different {found.noun}{why}")
    if many_G.any():
        return
    code = "ACC116" if found.strong else "ACC117"
    if found.strong or np.unique(found.code_R[found.judged_R]).size > 1:
        text = f"{{n}} with the same {found.noun} as a rollout of another group"
        yield from scene.rollouts(code, _split(scene, found), text)


def _groups_with_several(scene: Scene, found: Beginnings) -> BoolArray:
    """Return the groups whose rollouts of one role begin differently ``[G]``."""
    own = found.judged_R
    width = int(found.role_R.max(initial=0)) + 2
    head, _ = distinct_pairs(scene.index.group_R[own] * width + found.role_R[own] + 1, found.code_R[own])
    heads, count = np.unique(head, return_counts=True)
    several = np.zeros(scene.index.n_groups, bool)
    several[heads[count > 1] // width] = True
    return several


def _split(scene: Scene, found: Beginnings) -> BoolArray:
    """Return rollouts whose beginning, at their policy version, occurs in another group too ``[R]``."""
    version = scene.batch.columns.get("policy_version_R")
    version_R = np.zeros(len(scene.batch), np.int64) if version is None else version.values.astype(np.int64)
    key_R = found.code_R * (int(version_R.max(initial=0)) + 1) + version_R
    dense_R = np.unique(key_R, return_inverse=True)[1]
    task, _ = distinct_pairs(dense_R[found.judged_R], scene.index.group_R[found.judged_R])
    groups = np.bincount(task, minlength=int(dense_R.max(initial=0)) + 1)
    split: BoolArray = (groups[dense_R] > 1) & found.judged_R
    return split


def _versions(scene: Scene) -> Iterator[Finding]:
    column = scene.batch.columns.get("policy_version_R")
    if column is None:
        return
    there = column.mask(len(scene.batch))
    group, _ = distinct_pairs(scene.index.group_R[there], column.values[there])
    versions_G = np.bincount(group, minlength=scene.index.n_groups)
    text = f"{{n}} with up to {versions_G.max(initial=0)} policy versions"
    yield from scene.groups("ACC118", versions_G > 1, text)


def _steps(scene: Scene) -> Iterator[Finding]:
    yield from scene.rollouts("ACC115", scene.index.steps_R == 0, "{n} without steps")
    if not scene.batch.n_steps:
        return
    told = scene.index.tokens_S > 0
    for name, column in scene.batch.columns.items():
        if column.level == "step" and name not in ("agent_S", "row_S", "trainable_S", "context_reset_S"):
            told = told | column.mask(scene.batch.n_steps)
    if scene.batch.context_start_S1 is not None:
        told = told | (np.diff(scene.batch.context_start_S1) > 0)
    yield from scene.steps("ACC121", ~told, "{n} with nothing in them")


def _copies(scene: Scene) -> Iterator[Finding]:
    found = copies(scene)
    yield from scene.rollouts(
        "ACC119", found.tokens_R, "{n} with the tokens of an earlier one of their group"
    )
    yield from scene.rollouts(
        "ACC120", found.actions_R, "{n} with the actions of an earlier one of their group"
    )


CHECKS: tuple[Check, ...] = (_no_rollouts, _sizes, _types, _beginnings, _versions, _steps, _copies)
