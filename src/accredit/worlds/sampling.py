"""Rollouts of a task under a policy of a set success rate, with their truth and their cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from accredit.data import Batch
from accredit.errors import ParamError
from accredit.typing import Array, BoolArray, Floats, Ints
from accredit.worlds.dynamic import Tables
from accredit.worlds.emission import Ends, emit
from accredit.worlds.flat import Flat, flatten, tokens_of
from accredit.worlds.noise import Keys, Noise, drawn, keys_of, stream
from accredit.worlds.play import Trace, go_on, play
from accredit.worlds.policies import Policy, make_policy
from accredit.worlds.protocol import Cost
from accredit.worlds.supplies import Scene, Signals, supply
from accredit.worlds.tabular import Task
from accredit.worlds.truth import StepTruth, role_tables, step_truth, truth_file

__all__ = ["Sample", "sample"]


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Rollouts of one task.

    Args:
        task: that was played; its seed is the unit over which results are resampled.
        policy: that played.
        batch: the rollouts; all groups are of the same task, under different group ids.
        truth: of every step and token of the batch.
        tables: exact values by role (one role: one).
        keys: what methods saw of each (step, state).
        cost: what was spent, continuations included.
        flat: state, time and action behind each step.
        seed: of the sampling.
    """

    task: Task
    policy: Policy
    batch: Batch
    truth: StepTruth
    tables: list[Tables]
    keys: Keys
    cost: Cost
    flat: Flat
    seed: int

    @property
    def node_S(self) -> Ints:
        """Full state before each step."""
        return self.flat.node_D[self.flat.head_S]

    @property
    def time_S(self) -> Ints:
        """Steps taken before each step."""
        return self.flat.time_D[self.flat.head_S]

    @property
    def action_S(self) -> Ints:
        """Action of each step, as an index (its first token's, where actions are tokens)."""
        return self.flat.action_D[self.flat.head_S]

    def alternatives(self, step: int) -> list[str]:
        """Return the actions that are allowed where a step was taken."""
        allowed = self.task.allowed_NA[self.node_S[step]]
        return [self.task.actions[a] for a in np.flatnonzero(allowed).tolist()]

    def q_of(self, step: int) -> dict[str, float]:
        """Return the exact Q of every allowed action where a step was taken."""
        role = int(self.flat.role_R[self.flat.rollout_D[self.flat.head_S[step]]])
        q = self.tables[role].Q[self.time_S[step], self.node_S[step]] + self._earned(np.array([step]))[0]
        return {name: float(q[self.task.actions.index(name)]) for name in self.alternatives(step)}

    def continuations(self, step: int | Sequence[int] | Ints, action: Any, m: int, seed: int) -> Floats:
        """Return the returns of m rollouts that go on from a step with a given first action.

        The mean of many is Q.  The same seed gives the same chance to every alternative at a step.

        Args:
            step: step of the batch, or several ``[n]``.
            action: name or index of the first action of each.
            m: continuations of each.
            seed: of the chance.

        Returns:
            ``[m]``, or ``[n, m]`` for several steps; environment steps, continuations, restores
            and tokens are added to ``cost``.

        Raises:
            ParamError: if the action is not allowed there.
        """
        steps = np.atleast_1d(np.asarray(step, np.int64))
        given = [action] if isinstance(action, str) or np.ndim(action) == 0 else list(action)
        names = self.task.actions
        acts = np.array([names.index(a) if isinstance(a, str) else int(a) for a in given], np.int64)
        if not self.task.allowed_NA[self.node_S[steps], acts].all():
            raise ParamError(
                "an action is not allowed where its step was taken", hint="See alternatives(step)"
            )
        found = self._continued(steps, acts, m, seed)
        return found[0] if np.ndim(step) == 0 else found

    def _continued(self, steps: Ints, acts: Ints, m: int, seed: int) -> Floats:
        task = self.task
        node, time = np.repeat(self.node_S[steps], m), np.repeat(self.time_S[steps], m)
        u = np.zeros((node.size, task.horizon, 2))
        for i, s in enumerate(steps.tolist()):
            rng = np.random.default_rng(np.random.SeedSequence([seed, task.seed, s]))
            left = task.horizon - int(self.time_S[s])
            u[i * m : (i + 1) * m, :left] = rng.random((m, left, 2))
        trace = go_on(task, self.policy, node, time, u, np.repeat(acts, m))
        role = self.flat.role_R[self.flat.rollout_D[self.flat.head_S[steps]]]
        pays = np.array([task.payoffs[r] for r in task.payoffs] or [task.outcome_N])
        end = pays[np.repeat(role, m), trace.end_R]
        discount = task.gamma ** np.arange(task.horizon)
        total = trace.reward_RH @ discount + task.gamma**trace.length_R * end
        self._charge(trace)
        return np.asarray(total.reshape(steps.size, m) + self._earned(steps)[:, None])

    def _earned(self, steps: Ints) -> Floats:
        earned = self.flat.earned_D[self.flat.head_S[steps]]
        return earned if self.task.deferred else np.zeros(earned.size)

    def _charge(self, trace: Trace) -> None:
        taken = trace.alive_RH
        self.cost.environment_steps += int(taken.sum())
        self.cost.continuations += taken.shape[0]
        self.cost.restores += taken.shape[0]
        self.cost.tokens += int(tokens_of(self.task)[trace.action_RH[taken]].sum())

    def truth_file(self, path: str | Path) -> Path:
        """Write the truth of the batch's steps (schema ``accredit.truth/1``)."""
        return truth_file(self.batch, self.truth, path, {"world": self.batch.provenance["world"]})


def sample(
    task: Task,
    *,
    groups: int = 64,
    group_size: int = 8,
    success_rate: float | None = 0.5,
    noise: Noise | None = None,
    seed: int = 0,
    signals: Signals | None = None,
    policy: Policy | None = None,
) -> Sample:
    """Return rollouts of a task, with truth.

    All groups are of this one task, each under its own group id (``family/task seed/group``): what a
    trainer would get by asking the same question in several groups.  For several tasks, sample each
    and concatenate the batches; resample over tasks.  The rollouts of a group depend on the seeds and
    the group's number only, neither on other groups nor on which signals are supplied.

    Args:
        task: from a family's ``make``.
        groups: number of groups.
        group_size: rollouts a group (the most, where sizes are ragged).
        success_rate: exact rate that the policy is bisected to; None = as the logits fall.
        noise: what spoils the rollouts; default nothing.
        seed: of the sampling.
        signals: columns to supply; default log-probs and entropies.
        policy: that plays; default the one of the success rate.

    Example:
        >>> from accredit.worlds import families
        >>> drawn = sample(families.make("rooms", seed=1), groups=2, group_size=4, success_rate=0.5)
        >>> len(drawn.batch), round(drawn.policy.success_rate, 6), drawn.cost.environment_steps > 0
        (8, 0.5, True)
    """
    spoilt, wanted = noise or Noise(), signals or Signals()
    policy = policy or make_policy(task, success_rate)
    sizes = _sizes(task, groups, group_size, spoilt, seed)
    full = play(
        task,
        policy,
        drawn(seed, task, "start", sizes),
        drawn(seed, task, "play", sizes, task.horizon, 2),
    )
    full = _copied(task, full, sizes, spoilt.duplicate, seed)
    trace = _cut(task, full, sizes, spoilt.truncate, seed)
    flat, keys, tables = flatten(task, trace), keys_of(task, spoilt), role_tables(task, policy)
    truth = step_truth(task, policy, tables, keys, flat)
    ends = _ends(task, trace, full, flat, sizes, tables, spoilt, seed)
    label = f"{task.family}/{task.seed}"
    batch = emit(task, keys, spoilt, flat, ends, seed, label)
    cost = Cost(environment_steps=int(trace.alive_RH.sum()), tokens=batch.n_tokens)
    scene = Scene(task, policy, tables, flat, ends, truth, spoilt, seed)
    batch = supply(batch, scene, wanted, cost)
    return Sample(task, policy, batch, truth, tables, keys, cost, flat, seed)


def _sizes(task: Task, groups: int, most: int, noise: Noise, seed: int) -> Ints:
    if groups < 1 or most < 1:
        raise ParamError(f"groups={groups}, group_size={most}: both at least 1")
    if not noise.ragged:
        return np.full(groups, most, np.int64)
    return np.array(
        [int(stream(seed, task, g, "size").integers(1, most + 1)) for g in range(groups)], np.int64
    )


def _copied(task: Task, trace: Trace, sizes: Ints, chance: float, seed: int) -> Trace:
    """Return the trace with some rollouts replaced by copies of earlier ones of their group."""
    if chance == 0:
        return trace
    source = np.arange(trace.end_R.size)
    u, start = drawn(seed, task, "duplicate", sizes, 2), 0
    for n in sizes.tolist():
        for i in range(1, n):
            if u[start + i, 0] < chance:
                source[start + i] = source[start + int(u[start + i, 1] * i)]
        start += n
    return _rows(trace, source)


def _rows(trace: Trace, rows: Ints) -> Trace:
    names = ("node_RH", "action_RH", "reward_RH", "alive_RH", "end_R")
    return Trace(*(getattr(trace, name)[rows] for name in names))


def _cut(task: Task, trace: Trace, sizes: Ints, chance: float, seed: int) -> Trace:
    """Return the trace with some rollouts cut after 1 to length - 1 steps."""
    if chance == 0:
        return trace
    u, length = drawn(seed, task, "truncate", sizes, 2), trace.length_R
    cut = (u[:, 0] < chance) & (length > 1)
    keep = np.where(cut, 1 + (u[:, 1] * (length - 1)).astype(np.int64), length)
    alive = trace.alive_RH & (np.arange(task.horizon) < keep[:, None])
    end = np.where(cut, trace.node_RH[np.arange(cut.size), np.minimum(keep, task.horizon - 1)], trace.end_R)
    return Trace(trace.node_RH, trace.action_RH, trace.reward_RH * alive, alive, end)


def _ends(
    task: Task,
    trace: Trace,
    full: Trace,
    flat: Flat,
    sizes: Ints,
    tables: list[Tables],
    noise: Noise,
    seed: int,
) -> Ends:
    row = flat.row_R
    cut = trace.length_R < full.length_R
    pays = np.array([task.payoffs[r] for r in task.payoffs] or [task.outcome_N])
    outcome = np.where(cut[row], 0.0, pays[flat.role_R, trace.end_R[row]])
    if task.deferred:
        outcome = outcome + trace.reward_RH.sum(1)[row]
    wrong = (drawn(seed, task, "flip", sizes) < noise.flip) & ~cut
    mirrored = _mirrors(task, tables, pays)[flat.role_R] - outcome
    group = np.repeat(np.arange(sizes.size), sizes)[row]
    return Ends(
        group, np.where(wrong[row], mirrored, outcome), cut[row], trace.end_R[row], trace.length_R[row]
    )


def _mirrors(task: Task, tables: list[Tables], pays: Array) -> Floats:
    """Return lowest + highest outcome by role (twice the value of the start, where rewards are deferred)."""
    if task.deferred:
        return np.array([2 * float(task.start_N @ table.V[0]) for table in tables])
    ended: BoolArray = ~task.live_N if (~task.live_N).any() else task.live_N
    shown = pays[:, ended] if ended.any() else pays
    low, high = np.minimum(shown.min(1), pays.min(1)), np.maximum(shown.max(1), pays.max(1))
    found: Floats = low + high
    return found
