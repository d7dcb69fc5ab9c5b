"""Made-up rollouts of any size, as what a user holds before a Batch exists: columns or records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from accredit import Batch
from accredit.data import Column
from accredit.data.column import level_of
from accredit.data.vocabulary import ROLLOUT_FIELDS, STEP_FIELDS, Field
from accredit.typing import Array, Ints

__all__ = ["Columns", "agent_columns", "agent_records", "every_signal", "outcome_columns"]

GROUP = 8  # rollouts of one task
STEPS = 12  # steps of a rollout
STATES = 40  # distinct states of a task: an 8 x 12 group meets each 2.4 times


@dataclass(frozen=True)
class Columns:
    """Arrays and interned words; no Batch, so nothing that a Batch or an Index would remember."""

    ids: tuple[str, ...]
    group_R: Array
    group_names: tuple[str, ...]
    step_start_R1: Ints
    token_start_S1: Ints
    columns: Mapping[str, Column]

    def batch(self) -> Batch:
        """A fresh Batch over these arrays."""
        return Batch(
            self.ids, self.group_R, self.group_names, self.step_start_R1, self.token_start_S1, self.columns
        )

    @property
    def n_tokens(self) -> int:
        return int(self.token_start_S1[-1])


def outcome_columns(rows: int, tokens: int = 128, seed: int = 0) -> Columns:
    """`rows` rollouts of one step of `tokens` tokens, groups of 8, 0/1 rewards."""
    rng = np.random.default_rng(seed)
    reward = (rng.random(rows) < 0.5).astype(np.float64)
    columns = {"reward_R": Column("rollout", reward)}
    return _columns(rows, np.arange(rows + 1), np.arange(rows + 1) * tokens, columns)


def agent_columns(steps: int, tokens: int = 130, seed: int = 0) -> Columns:
    """`steps` steps in rollouts of 12, groups of 8, 40 states a task, about `tokens` tokens a step.

    Rewards: a 0/1 outcome, and 0.1 at one step of ten.
    """
    rng = np.random.default_rng(seed)
    rollouts = -(-steps // STEPS)
    start = np.minimum(np.arange(rollouts + 1) * STEPS, steps)
    task_S = np.repeat(np.arange(rollouts) // GROUP, np.diff(start))
    codes = (task_S * STATES + rng.integers(0, STATES, steps)).astype(np.int32)
    words = tuple(f"task {c // STATES} room {c % STATES}" for c in range((int(task_S[-1]) + 1) * STATES))
    columns = {
        "reward_R": Column("rollout", (rng.random(rollouts) < 0.5).astype(np.float64)),
        "reward_S": Column("step", 0.1 * (rng.random(steps) < 0.1)),
        "state_S": Column("step", codes, words=words),
    }
    counts = rng.integers(tokens - tokens // 4, tokens + tokens // 4 + 1, steps)
    return _columns(rollouts, start, np.concatenate([[0], np.cumsum(counts)]), columns)


def _columns(rollouts: int, step_start: Ints, token_start: Ints, columns: Mapping[str, Column]) -> Columns:
    group_R = (np.arange(rollouts) // GROUP).astype(np.int32)
    names = tuple(f"task {g}" for g in range(int(group_R[-1]) + 1))
    ids = tuple(f"r{r}" for r in range(rollouts))
    return Columns(ids, group_R, names, step_start, token_start, columns)


def every_signal(steps: int, tokens: int = 13, seed: int = 0) -> Columns:
    """`agent_columns` with every signal of the vocabulary, so that any method can run."""
    plain = agent_columns(steps, tokens, seed)
    rng = np.random.default_rng(seed + 1)
    rollouts = len(plain.ids)
    made = {
        field.column: _signal(rng, field, {"R": rollouts, "S": steps, "T": plain.n_tokens}[field.column[-1]])
        for field in (*ROLLOUT_FIELDS.values(), *STEP_FIELDS.values())
        if field.kind not in ("flag", "json") and field.name not in ORDINARY
    }
    made["reward_baseline_R"] = Column("rollout", np.full(rollouts, 0.5))
    for name in ("answer", "format"):
        made[f"rewards.{name}_R"] = Column("rollout", rng.random(rollouts))
    return replace(plain, columns={**made, **plain.columns})


# Fields that describe unusual rollouts (branches, truncation, masks) rather than carry a signal.
ORDINARY = frozenset(
    {
        "status",
        "policy_version",
        "parent",
        "fork_step",
        "branch_kind",
        "final_state",
        "final_value",
        "n_tokens",
    }
)


def _signal(rng: np.random.Generator, field: Field, size: int) -> Column:
    level = level_of(field.column)
    if field.kind == "word":
        words = ("go", "take", "open", "look", "drop")
        return Column(level, rng.integers(0, len(words), size, np.int32), words=words)
    if field.kind == "tokens":
        return Column(level, rng.integers(0, 50_000, size))
    if field.kind == "vector":
        return Column(level, rng.normal(size=(size, 2)))
    drawn = -rng.random(size) if field.name.startswith("logprob") else rng.random(size)
    return Column(level, drawn.astype(np.float32) if field.kind == "signal" else drawn)


def agent_records(source: Columns, tokens: str) -> list[dict[str, Any]]:
    """The rollouts of `agent_columns` as native records.

    Args:
        source: from `agent_columns`.
        tokens: ``counts`` = `n_tokens`; ``arrays`` = numpy arrays of ids; ``arrays+logprobs`` = and
            numpy arrays of log-probabilities; ``lists`` = Python lists of ids.
    """
    rng = np.random.default_rng(2)
    state, paid = source.columns["state_S"], source.columns["reward_S"].values.tolist()
    counts = np.diff(source.token_start_S1).tolist()
    reward = source.columns["reward_R"].values.tolist()
    start = source.step_start_R1.tolist()
    made = []
    for r, name in enumerate(source.ids):
        steps = [
            {"state": str(state.item(s)), "reward": paid[s], **_tokens(rng, counts[s], tokens)}
            for s in range(start[r], start[r + 1])
        ]
        task = source.group_names[int(source.group_R[r])]
        made.append({"id": name, "group": task, "reward": reward[r], "steps": steps})
    return made


def _tokens(rng: np.random.Generator, count: int, kind: str) -> dict[str, Any]:
    if kind == "counts":
        return {"n_tokens": count}
    ids = rng.integers(0, 50_000, count)
    if kind == "lists":
        return {"tokens": ids.tolist()}
    if kind == "arrays":
        return {"tokens": ids}
    return {"tokens": ids, "logprobs": -rng.random(count).astype(np.float32)}
