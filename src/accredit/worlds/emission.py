"""The Batch of sampled rollouts: the columns that every family gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accredit.data import Batch, Column
from accredit.typing import Array, BoolArray, Floats, Ints, Scalar
from accredit.worlds.flat import Flat
from accredit.worlds.noise import Keys, Noise, drawn
from accredit.worlds.tabular import Task, codes_of

__all__ = ["Ends", "emit", "word_column"]

_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, eq=False)
class Ends:
    """How rollouts ended.

    Args:
        group_R: group number.
        outcome_R: recorded outcome.
        cut_R: whether it was cut before its end.
        end_R: state where it ended.
        length_R: when it ended.
    """

    group_R: Ints
    outcome_R: Floats
    cut_R: BoolArray
    end_R: Ints
    length_R: Ints


def emit(task: Task, keys: Keys, noise: Noise, flat: Flat, ends: Ends, seed: int, label: str) -> Batch:
    """Return the batch without signals.

    Args:
        task: that was played.
        keys: what methods see.
        noise: for the nonces.
        flat: decisions and steps.
        ends: of the rollouts.
        seed: of distractors and nonces.
        label: first part of rollout and group ids.
    """
    members = _members(ends.group_R)
    roles = list(task.payoffs)
    suffix = [f"-{roles[r]}" for r in flat.role_R.tolist()] if roles else [""] * flat.role_R.size
    shown = zip(ends.group_R.tolist(), members.tolist(), flat.row_R.tolist(), suffix, strict=True)
    ids = [f"{label}/{g}/{i}{end}" for g, i, _, end in shown]
    columns: dict[str, Column] = {"reward_R": Column("rollout", ends.outcome_R)}
    columns |= _states(task, keys, noise, flat, ends, seed)
    columns["action_S"] = _actions(task, flat)
    if task.agents:
        columns["agent_S"] = word_column("step", [task.agents[s] for s in flat.node_D[flat.head_S].tolist()])
    if roles:
        columns["agent_R"] = word_column("rollout", [roles[r] for r in flat.role_R.tolist()])
    if not task.deferred and np.any(task.edge_reward_E):
        columns["reward_S"] = Column("step", flat.per_step(flat.paid_D))
    if noise.truncate > 0:
        status = np.where(ends.cut_R, "truncated", "finished").tolist()
        columns["status_R"] = word_column("rollout", status)
    tokens = flat.tokens_S
    columns["token_T"] = Column("token", _token_ids(task, flat))
    group_codes, group_names = codes_of([f"{label}/{g}" for g in ends.group_R.tolist()])
    return Batch(
        ids=tuple(ids),
        group_R=group_codes.astype(np.int32),
        group_names=group_names,
        step_start_R1=flat.step_start_R1.astype(np.int64),
        token_start_S1=np.concatenate([[0], np.cumsum(tokens)]).astype(np.int64),
        columns=columns,
        outcome_in_steps=False,
        provenance={"source": label, "world": {"family": task.family, "seed": task.seed, **task.size}},
    )


def word_column(level: Any, words: Sequence[Scalar], valid: BoolArray | None = None) -> Column:
    """Return an interned column of words in order of first appearance."""
    table: dict[Scalar, int] = {}
    codes = np.array([table.setdefault(w, len(table)) for w in words], np.int32)
    return Column(level, codes, valid, tuple(table))


def _members(group_R: Ints) -> Ints:
    """Return the number of each rollout within its group (groups are contiguous)."""
    first = np.concatenate([[True], group_R[1:] != group_R[:-1]]) if group_R.size else np.zeros(0, bool)
    start = np.maximum.accumulate(np.where(first, np.arange(group_R.size), 0)) if group_R.size else group_R
    return np.arange(group_R.size) - start


def _states(task: Task, keys: Keys, noise: Noise, flat: Flat, ends: Ends, seed: int) -> Mapping[str, Column]:
    """Return the columns of keys, and of the last state of cut rollouts."""
    code = keys.code_HN[flat.time_D, flat.node_D][flat.head_S]
    tails = _tails(task, noise, flat, ends, seed)
    cut = np.flatnonzero(ends.cut_R)
    last = keys.code_HN[np.minimum(ends.length_R, task.horizon - 1), ends.end_R][cut]
    if tails is not None:
        words = [keys.words[c] + tail for c, tail in zip(code.tolist(), tails, strict=True)]
        return {"state_S": word_column("step", words)}
    both = np.concatenate([code, last])
    used, first, dense = np.unique(both, return_index=True, return_inverse=True)
    rank = np.empty(used.size, np.int32)
    rank[np.argsort(first)] = np.arange(used.size)
    table = tuple(keys.words[c] for c in used[np.argsort(first)].tolist())
    codes = rank[dense]
    found = {"state_S": Column("step", codes[: code.size].copy(), None, table)}
    if cut.size:
        final = np.zeros(ends.cut_R.size, np.int32)
        final[cut] = codes[code.size :]
        found["final_state_R"] = Column("rollout", final, ends.cut_R.copy(), table)
    return found


def _tails(task: Task, noise: Noise, flat: Flat, ends: Ends, seed: int) -> list[str] | None:
    """Return what makes keys differ from visit to visit; None where nothing does."""
    rollout, time = flat.rollout_D[flat.head_S], flat.time_D[flat.head_S]
    tails = [""] * rollout.size
    if not (task.history or task.distractors or noise.nonce):
        return None
    if task.history:
        tails = [f"{a} Path {p:012x}." for a, p in zip(tails, _paths(task, flat).tolist(), strict=True)]
    if task.distractors:
        noise_S = _distractors(task, ends, seed)[rollout, time]
        tails = [f"{a} Noise {bits.tobytes().hex()}." for a, bits in zip(tails, noise_S, strict=True)]
    if noise.nonce:
        place = f"{seed}.{task.seed}"
        pairs = zip(tails, rollout.tolist(), time.tolist(), strict=True)
        tails = [f"{a} Ticket {place}.{r}.{t}." for a, r, t in pairs]
    return tails


def _paths(task: Task, flat: Flat) -> Array:
    """Return a 48-bit fingerprint of the actions before each step."""
    seen = np.zeros(flat.action_D.size, np.uint64)
    order = flat.time_D
    last = np.zeros(flat.row_R.size, np.uint64)
    for t in range(task.horizon):
        now = np.flatnonzero(order == t)
        row = flat.rollout_D[now]
        seen[now] = last[row]
        mixed = (
            last[row] ^ (flat.action_D[now].astype(np.uint64) + np.uint64(t * task.n_actions + 1))
        ) * _MIX
        last[row] = mixed ^ (mixed >> np.uint64(29))
    return seen[flat.head_S] & np.uint64((1 << 48) - 1)


def _distractors(task: Task, ends: Ends, seed: int) -> Array:
    """Return random bits, eight a byte ``[R, H, bytes]``."""
    sizes = np.bincount(ends.group_R)
    return np.packbits(drawn(seed, task, "distractors", sizes, task.horizon, task.distractors) < 0.5, axis=2)


def _actions(task: Task, flat: Flat) -> Column:
    if not task.tokens_per_step:
        return word_column("step", [task.actions[a] for a in flat.action_D.tolist()])
    texts: list[list[str]] = [[] for _ in range(flat.head_S.size)]
    for step, action in zip(flat.step_D.tolist(), flat.action_D.tolist(), strict=True):
        texts[step].append(task.actions[action])
    return word_column("step", ["".join(text) for text in texts])


def _token_ids(task: Task, flat: Flat) -> Ints:
    """Return token ids: 10 + action, then 1, 2 ... for the tokens that only spell it out."""
    owner = np.repeat(np.arange(flat.action_D.size), flat.tokens_D)
    start = np.cumsum(flat.tokens_D) - flat.tokens_D
    place = np.arange(owner.size) - start[owner]
    return np.where(place == 0, 10 + flat.action_D[owner], place).astype(np.int64)
