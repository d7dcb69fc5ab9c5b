"""How rollouts begin, and which of them are copies: evidence on what belongs to one group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from accredit.data import Column
from accredit.findings.scene import Scene
from accredit.index import row_of, segment_sum
from accredit.typing import Array, BoolArray, Ints

__all__ = ["Beginnings", "Copies", "beginnings", "copies"]

# Rollout fields by which data sets name the task itself.
_TASK_FIELDS = ("objective_R", "task_R", "prompt_R", "question_R", "problem_R", "goal_R", "instruction_R")
# A first state of at least this many characters describes a task; a shorter one may recur by chance.
_LONG_STATE = 32
# Fewer equal tokens happen by chance: games with few commands repeat short rollouts.
_COPY_TOKENS = 128
_MIX = np.uint64(0x9E3779B97F4A7C15)
_MIX2 = np.uint64(0xBF58476D1CE4E5B9)


class Beginnings(NamedTuple):
    """What each rollout begins with.

    Args:
        code_R: equal where the beginnings are equal ``[R]``.
        role_R: code of the role that begins ``[R]``.
        judged_R: rollouts whose beginning is known and their own (branches are not) ``[R]``.
        noun: what is compared, for messages.
        strong: whether equal beginnings mean one task.
    """

    code_R: Ints
    role_R: Ints
    judged_R: BoolArray
    noun: str
    strong: bool


def beginnings(scene: Scene) -> Beginnings | None:
    """Return how rollouts begin: by their task field, first state or first prompt ids; None if unknown.

    The first of these in which at least half of the rollouts begin like another one is taken: what
    differs in nearly every rollout (a clock in the state, a shuffled prompt) does not tell the task.

    Args:
        scene: the batch.
    """
    if not scene.batch.n_steps:
        return None
    role_R = _first_roles(scene)
    for code_R, known_R, noun, strong in _evidence(scene):
        judged_R = known_R & ~scene.present("parent_R") & (scene.index.steps_R > 0)
        _, dense, count = np.unique(code_R[judged_R], return_inverse=True, return_counts=True)
        if 2 * np.count_nonzero(count[dense] > 1) >= max(dense.size, 1):
            return Beginnings(code_R, role_R, judged_R, noun, strong)
    return None


def _first_steps(scene: Scene) -> Ints:
    return np.minimum(scene.batch.step_start_R1[:-1], scene.batch.n_steps - 1)


def _first_roles(scene: Scene) -> Ints:
    column = scene.batch.columns.get("agent_S") or scene.batch.columns.get("agent_R")
    if column is None:
        return np.zeros(len(scene.batch), np.int64)
    codes = np.where(column.mask(column.values.size), column.values, -1).astype(np.int64)
    return codes[_first_steps(scene)] if column.level == "step" else codes


def _evidence(scene: Scene) -> Iterator[tuple[Ints, BoolArray, str, bool]]:
    """Yield code and presence ``[R]`` of each kind of beginning, its name, and whether it tells the task."""
    batch, first_R = scene.batch, _first_steps(scene)
    for name in _TASK_FIELDS:
        column = batch.columns.get(name)
        if column is not None and column.words is not None:
            yield column.values.astype(np.int64), scene.present(name), f"{name[:-2]} fields", True
    if batch.has("state_S"):
        known = scene.present("state_S")[first_R]
        strong = _are_long(batch.column("state_S"), first_R[known])
        yield scene.index.state_S[first_R], known, "first states", strong
    if batch.context_start_S1 is not None:
        start = batch.context_start_S1
        begins_S = np.zeros(batch.n_steps, bool)
        begins_S[first_R] = True
        hash_S = _hash_some(batch.context_token_C, start, begins_S)
        code_R = np.unique(hash_S[first_R], return_inverse=True)[1]
        yield code_R, start[first_R + 1] > start[first_R], "first prompts", True


def _are_long(column: Column, steps: Ints) -> bool:
    words = column.words or ()
    return all(
        isinstance(words[c], str) and len(str(words[c])) >= _LONG_STATE
        for c in np.unique(column.values[steps]).tolist()
    )


class Copies(NamedTuple):
    """Rollouts that repeat an earlier one of their group: with equal token ids, or equal actions."""

    tokens_R: BoolArray
    actions_R: BoolArray


def copies(scene: Scene) -> Copies:
    """Return which rollouts repeat an earlier one of their group, by 64-bit hashes of the whole.

    Args:
        scene: the batch.
    """
    batch, index = scene.batch, scene.index
    none = np.zeros(len(batch), bool)
    shape = (index.group_R, index.steps_R, index.tokens_R)
    told_R = segment_sum(scene.present("action_S"), index.rollout_S, len(batch)) == index.steps_R
    actions_R = _column_hash(scene, "action_S")
    key = (*shape, *([] if actions_R is None else [actions_R]))
    copied = none
    if "token_T" in batch.columns:
        judged = _repeats(key, index.tokens_R >= _COPY_TOKENS, first_too=True)
        copied = _repeats((*key, _hash_some(batch.token_T, index.token_start_R1, judged)), judged)
    same = none if actions_R is None else _repeats(key[:2] + key[3:], told_R & (index.steps_R > 0))
    return Copies(copied, same & ~copied)


def _repeats(keys: tuple[Array, ...], judged: BoolArray, *, first_too: bool = False) -> BoolArray:
    """Return the rows whose keys occurred before (or occur elsewhere at all) among those judged."""
    found = np.zeros(judged.size, bool)
    rows = np.flatnonzero(judged)
    if not rows.size:
        return found
    mixed = np.zeros(rows.size, np.uint64)
    for key in keys:
        mixed = _mix(mixed * _MIX2 + key[rows].astype(np.uint64))
    _, first, dense, count = np.unique(mixed, return_index=True, return_inverse=True, return_counts=True)
    again = count[dense] > 1
    if not first_too:
        again[first] = False
    found[rows] = again
    return found


def _column_hash(scene: Scene, name: str) -> Array | None:
    column = scene.batch.columns.get(name)
    if column is None or column.words is None:
        return None
    return _hash_rows(column.values.astype(np.uint64), scene.batch.step_start_R1)


def _hash_some(values: Array, start_N1: Ints, rows: BoolArray) -> Array:
    """Return a 64-bit hash of each row in a mask, 0 elsewhere; costs what those rows hold."""
    counts = np.diff(start_N1)
    keep = np.repeat(rows, counts)
    found = np.zeros(counts.size, np.uint64)
    start = np.concatenate([[0], np.cumsum(counts[rows])])
    found[rows] = _hash_rows(values[keep].astype(np.uint64), start)
    return found


def _hash_rows(values: Array, start_N1: Ints) -> Array:
    """Return a 64-bit hash of each ragged row: the wrapping sum of mixed (value, position)."""
    position = np.arange(values.size, dtype=np.uint64) - start_N1[row_of(start_N1)].astype(np.uint64)
    mixed = _mix(values * _MIX2 + _mix(position + np.uint64(1)))
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    found: Array = total[start_N1[1:]] - total[start_N1[:-1]]
    return found


def _mix(values: Array) -> Array:
    """Return 64-bit words scrambled one to one (splitmix64's finaliser, shortened)."""
    values = (values ^ (values >> np.uint64(30))) * _MIX2
    found: Array = (values ^ (values >> np.uint64(27))) * _MIX
    return found
