"""Made-up rollouts of any size, as what a user holds before a Batch exists: columns or records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
ACTIONS = ("go", "take", "open", "look", "drop")
WORDS = 4  # in the vocabulary of made-up logits
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


def every_signal(
    steps: int, tokens: int = 13, seed: int = 0, needs: Collection[str] | None = None
) -> Columns:
    """`agent_columns` with every signal of the vocabulary, so that any method can run.

    Args:
        steps: number of steps.
        tokens: policy tokens of a step.
        seed: of the numbers.
        needs: only the signals that meet these needs of a card (the first of alternatives); None = all.
    """
    plain = agent_columns(steps, tokens, seed)
    rng = np.random.default_rng(seed + 1)
    sizes = {"R": len(plain.ids), "S": steps, "T": plain.n_tokens}
    made: dict[str, Column] = {}
    for field in _wanted(needs):
        for name in _columns_of(field):
            made[name] = _signal(rng, field, sizes[name[-1]])
    if "student_logits_T" in made and "token_T" in made:  # logits stand in the order of token ids
        made["token_T"] = Column("token", made["token_T"].values % WORDS)
    if needs is None or "cutpoints" in needs:
        made |= _cutpoints(rng, np.diff(plain.token_start_S1))
    if needs is None or CONTINUED & set(needs):
        made |= _continued(rng, plain)
    if needs is None or "reward_baseline" in needs:
        made["reward_baseline_R"] = Column("rollout", np.full(sizes["R"], 0.5))
    if needs is None:
        made |= {f"rewards.{n}_R": Column("rollout", rng.random(sizes["R"])) for n in ("answer", "format")}
    if needs is None or {"hidden", "answer"} & set(needs):
        made |= _readouts(rng, np.diff(plain.step_start_R1).tolist())
    return replace(plain, columns={**made, **plain.columns})


# Fields that continuations and a reviser fill in.
CONTINUED = frozenset({"continuations", "search", "proposal", "revision"})
# Needs that a card cannot name, since a parameter meets them too.
BEYOND_CARD: Mapping[str, tuple[str, ...]] = {"ibpo": ("action", "revision"), "remax": ("reward_baseline",)}


def _continued(rng: np.random.Generator, plain: Columns) -> dict[str, Column]:
    """Four continuations a step, trials of every action, a segment to verify and a revision a rollout."""
    steps_R, n = np.diff(plain.step_start_R1).tolist(), int(plain.step_start_R1[-1])
    found = [np.empty(size, object) for size in (n, n, len(steps_R), len(steps_R))]
    outcomes = (rng.random((n, 4)) < 0.5).astype(float).tolist()
    means = rng.random((n, len(ACTIONS))).tolist()
    for s in range(n):
        found[0][s] = [{"reward": r, "truncated": False} for r in outcomes[s]]
        found[1][s] = {a: {"n": 4, "mean": m, "p": 0.2} for a, m in zip(ACTIONS, means[s], strict=True)}
    for r, steps in enumerate(steps_R):
        pre, post = (rng.random((2, 8)) < 0.5).astype(float).tolist()
        found[2][r] = {"start": 0, "end": steps // 2, "pre": pre, "post": post}
        found[3][r] = {"reward": 1.0, "actions": [ACTIONS[a] for a in rng.integers(0, len(ACTIONS), steps)]}
    names = ("continuations_S", "search_S", "proposal_R", "revision_R")
    return {
        name: Column("step" if name.endswith("S") else "rollout", values)
        for name, values in zip(names, found, strict=True)
    }


def _cutpoints(rng: np.random.Generator, tokens_S: Ints) -> dict[str, Column]:
    """A value before the first token of each step, and one in its middle."""
    points, values = np.empty(tokens_S.size, object), np.empty(tokens_S.size, object)
    for s, n in enumerate(tokens_S.tolist()):
        points[s] = [-1, n // 2]
        values[s] = rng.random(2).tolist()
    return {"cutpoints_S": Column("step", points), "cutpoint_values_S": Column("step", values)}


def _readouts(rng: np.random.Generator, steps_R: Sequence[int]) -> dict[str, Column]:
    """Final answers of rollouts in three clusters, and log-probs of answers at every boundary."""
    n = len(steps_R)
    cluster = rng.integers(0, 3, n)
    scores, candidates = np.empty(n, object), np.empty(n, object)
    for r, steps in enumerate(steps_R):
        candidates[r] = (-rng.random((steps + 1, 2))).tolist()
        refs = [[[1.0, first]] for first, _ in candidates[r]]
        scores[r] = {"baseline": refs[0], "after_step": refs[1:]}
    return {
        "answer_R": Column("rollout", cluster.astype(np.int32), words=("a", "b", "c")),
        "answer_cluster_R": Column("rollout", cluster.astype(np.float64)),
        "ref_logprobs_R": Column("rollout", scores),
        "candidate_logprobs_R": Column("rollout", candidates),
    }


def _wanted(needs: Collection[str] | None) -> list[Field]:
    both = (*ROLLOUT_FIELDS.values(), *STEP_FIELDS.values())
    usable = [f for f in both if f.kind not in ("flag", "json") and f.name not in ORDINARY]
    if needs is None:
        return usable
    by_name = {f.name: f for f in usable}
    first = [next((n for n in need.split("|") if n in by_name), "") for need in sorted(needs)]
    return [by_name[name] for name in first if name]


def _columns_of(field: Field) -> list[str]:
    """The field's column; of a field of named signals, one column a name."""
    if field.kind != "signals":
        return [field.column]
    return [f"{field.name}.{name}_T" for name in ("first", "second")]


# Fields that describe unusual rollouts (branches, trees, truncation, masks) rather than carry a signal.
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
        "node",
        "tree",
    }
)


def _signal(rng: np.random.Generator, field: Field, size: int) -> Column:
    level = level_of(field.column)
    if field.kind == "word":
        return Column(level, rng.integers(0, len(ACTIONS), size, np.int32), words=ACTIONS)
    if field.kind == "tokens":
        return Column(level, rng.integers(0, 50_000, size))
    if field.kind == "vectors":
        width = 7 if field.name == "fisher_moments" else WORDS
        return Column(level, rng.normal(size=(size, width)).astype(np.float32))
    if field.kind == "vector":
        return Column(level, rng.normal(size=(size, 2)))
    drawn = -rng.random(size) if "logprob" in field.name else rng.random(size)
    return Column(level, drawn.astype(np.float32) if field.kind in ("signal", "signals") else drawn)


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
