"""Checks of ids, groups and steps: what is compared with what."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accredit.data import Finding
from accredit.findings.beginnings import beginnings, copies
from accredit.findings.codes import CODES
from accredit.findings.scene import Check, Scene, named
from accredit.index import segment_sum
from accredit.typing import BoolArray, Ints, Scalar

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
    own = found.judged_R
    pair = _distinct(scene.index.group_R[own], found.role_R[own], found.code_R[own])
    many_G = _groups_with_several(scene.index.n_groups, pair)
    pattern = position_pattern(_names(scene)) if many_G.any() else ""
    why = f"; the group ids are positions ({pattern})" if pattern else ""
    yield from scene.groups("ACC114", many_G, f"{{n}} with different {found.noun}{why}")
    if many_G.any():
        return
    split_R = _split(scene, found.code_R, own)
    if found.strong:
        yield from scene.rollouts(
            "ACC116", split_R, f"{{n}} with the same {found.noun} as a rollout of another group"
        )
    elif np.unique(found.code_R[own]).size > 1:
        yield from scene.rollouts(
            "ACC117", split_R, f"{{n}} with the same {found.noun} as a rollout of another group"
        )


def _distinct(*columns: Ints) -> Ints:
    return np.unique(np.stack(columns, axis=1), axis=0) if columns[0].size else np.zeros((0, 3), np.int64)


def _groups_with_several(n_groups: int, pair: Ints) -> BoolArray:
    """Return which groups have several codes under one role, of rows (group, role, code)."""
    heads, count = np.unique(pair[:, :2], axis=0, return_counts=True)
    found = np.zeros(n_groups, bool)
    found[heads[count > 1, 0]] = True
    return found


def _split(scene: Scene, code_R: Ints, own: BoolArray) -> BoolArray:
    """Return rollouts whose beginning, at their policy version, occurs in another group too."""
    version = scene.batch.columns.get("policy_version_R")
    version_R = np.zeros(len(scene.batch), np.int64) if version is None else version.values.astype(np.int64)
    key = code_R * (int(version_R.max(initial=0)) + 1) + version_R
    dense = np.unique(key, return_inverse=True)[1]
    pairs = np.unique(np.stack([dense[own], scene.index.group_R[own]], axis=1), axis=0)
    groups = segment_sum(np.ones(len(pairs)), pairs[:, 0], int(dense.max(initial=0)) + 1)
    split: BoolArray = (groups[dense] > 1) & own
    return split


def _versions(scene: Scene) -> Iterator[Finding]:
    column = scene.batch.columns.get("policy_version_R")
    if column is None:
        return
    there = column.mask(len(scene.batch))
    pairs = np.unique(
        np.stack([scene.index.group_R[there], column.values[there].astype(np.int64)], axis=1), axis=0
    )
    versions_G = np.bincount(pairs[:, 0], minlength=scene.index.n_groups)
    yield from scene.groups(
        "ACC118", versions_G > 1, f"{{n}} with up to {versions_G.max(initial=0)} policy versions"
    )


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
