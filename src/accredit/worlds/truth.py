"""The truth beside sampled rollouts: what each step's credit should be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from accredit.data import Batch
from accredit.store import Truth, save_truth
from accredit.typing import BoolArray, Floats
from accredit.worlds.dynamic import Tables, evaluate, key_advantage, occupancy
from accredit.worlds.flat import Flat
from accredit.worlds.noise import Keys
from accredit.worlds.policies import Policy
from accredit.worlds.tabular import Task

__all__ = ["CRITICAL", "StepTruth", "role_tables", "step_truth", "truth_file", "truth_rows"]

CRITICAL = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class StepTruth:
    """Exact numbers of each step of a batch, in reward units.

    Args:
        value: V of the full state before the step, what was earned before the end included where
            rewards are paid with the outcome ``[S]``.
        q: V plus the advantage ``[S]``.
        advantage: A_full, of a critic that sees everything, step count included ``[S]``.
        advantage_key: A_key, the best that a method which sees keys can do ``[S]``.
        spread: criticality, max_a Q - min_a Q ``[S]``.
        critical: spread > 0.1 ``[S]``.
        token_advantage: A of each policy token ``[T]``; tokens that only spell the action get 0.
        token_value: V of the prefix before each token ``[T]``.
    """

    value: Floats
    q: Floats
    advantage: Floats
    advantage_key: Floats
    spread: Floats
    critical: BoolArray
    token_advantage: Floats
    token_value: Floats


def role_tables(task: Task, policy: Policy) -> list[Tables]:
    """Return the values of each role, or of the one role there is."""
    outcomes = [task.payoffs[role] for role in task.payoffs] or [task.outcome_N]
    return [evaluate(task, policy.probs_NA, outcome) for outcome in outcomes]


def step_truth(task: Task, policy: Policy, tables: list[Tables], keys: Keys, flat: Flat) -> StepTruth:
    """Return the truth of every step and token of flat rollouts."""
    t, s, a = flat.time_D, flat.node_D, flat.action_D
    role = flat.role_R[flat.rollout_D]
    value, adv, by_key, spread = (np.zeros(t.size) for _ in range(4))
    weight = occupancy(task, policy.probs_NA)[:, :, None] * policy.probs_NA
    for r, table in enumerate(tables):
        mine = role == r
        value[mine] = table.V[t[mine], s[mine]]
        adv[mine] = table.A[t[mine], s[mine], a[mine]]
        spread[mine] = table.spread(task)[t[mine], s[mine]]
        if not keys.unique:
            known = key_advantage(table.A, weight, keys.code_HN)
            by_key[mine] = known[keys.code_HN[t[mine], s[mine]], a[mine]]
    earned = flat.earned_D if task.deferred else np.zeros(t.size)
    worst = np.zeros(flat.head_S.size)
    np.maximum.at(worst, flat.step_D, spread)
    token_adv, token_value = _tokens(flat, adv, value + earned)
    step_value, step_adv = (value + earned)[flat.head_S], flat.per_step(adv)
    return StepTruth(
        value=step_value,
        q=step_value + step_adv,
        advantage=step_adv,
        advantage_key=flat.per_step(adv if keys.unique else by_key),
        spread=worst,
        critical=worst > CRITICAL,
        token_advantage=token_adv,
        token_value=token_value,
    )


def _tokens(flat: Flat, adv_D: Floats, value_D: Floats) -> tuple[Floats, Floats]:
    """Return advantage and value of each token: the first of a decision decides."""
    owner = np.repeat(np.arange(adv_D.size), flat.tokens_D)
    first = np.zeros(owner.size, bool)
    first[np.cumsum(flat.tokens_D) - flat.tokens_D] = True
    return np.where(first, adv_D[owner], 0.0), value_D[owner] + np.where(first, 0.0, adv_D[owner])


def truth_file(
    batch: Batch, truth: StepTruth, path: str | Path, header: dict[str, Any] | None = None
) -> Path:
    """Write the truth of a batch's steps (schema ``accredit.truth/1``).

    Args:
        batch: the rollouts.
        truth: of its steps.
        path: ends in ``.parquet``, ``.jsonl``, ``.jsonl.gz`` or ``.jsonl.zst``.
        header: what else the file should say.
    """
    return save_truth(truth_rows(batch, truth, header or {}), path)


def truth_rows(batch: Batch, truth: StepTruth, header: Mapping[str, Any]) -> Truth:
    """Return exact truth as rows, one a step.

    Args:
        batch: the rollouts.
        truth: of its steps.
        header: what else the file should say.
    """
    counts = np.diff(batch.step_start_R1)
    owner = np.repeat(np.arange(len(batch)), counts).tolist()
    place = np.arange(batch.n_steps) - np.repeat(batch.step_start_R1[:-1], counts)
    all_known, none_known = np.ones(batch.n_steps, bool), np.zeros(batch.n_steps, bool)
    numbers = {"value": truth.value, "q": truth.q, "advantage": truth.advantage}
    return Truth(
        tuple(batch.ids[r] for r in owner),
        tuple(place.tolist()),
        {**numbers, "se": np.zeros(batch.n_steps)},
        {**dict.fromkeys(numbers, all_known), "se": none_known},
        (0,) * batch.n_steps,
        ("exact",) * batch.n_steps,
        header,
    )
