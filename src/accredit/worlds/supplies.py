"""Signals that a world can supply exactly, or with a known error: log-probs, values, judges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Batch
from accredit.errors import ParamError
from accredit.typing import Floats, Ints
from accredit.worlds.dynamic import Tables, success_values
from accredit.worlds.emission import Ends
from accredit.worlds.flat import Flat
from accredit.worlds.noise import Noise, drawn, drawn_normal
from accredit.worlds.policies import Policy
from accredit.worlds.protocol import Cost
from accredit.worlds.tabular import Task
from accredit.worlds.truth import StepTruth

__all__ = ["Signals", "supply"]

_FLOOR = 1e-6


@dataclass(frozen=True, slots=True)
class Signals:
    """Which columns to supply beside the rollouts.

    Args:
        logprobs: exact ``logprob_T``; tokens that only spell an action out have 0.
        entropies: exact ``entropy_T``, nats.
        value: standard deviation of a critic's error: ``value_S`` = V + N(0, value); where an action
            is a token also ``token_value_T``. Cut rollouts get ``final_value_R``.
        hindsight: exact ``logprobs_hindsight_T`` = log P(action | state, step, recorded outcome).
            Families with a success rate only.
        annotator: error rate e of ``critical_S``: 1 where spread > 0.1, flipped with chance e.
        prm: standard deviation of the error of ``prm_prob_S`` = P(success | state, action), kept in
            [0, 1]. Families with a success rate only.
        hidden: width of ``hidden_S``: V in a random direction, and nuisance of variance 1.
        predicates: error rate of ``predicates_S``, what an annotator says holds: features that are 0 or
            1, each flipped with that chance; where the family has such.
        features: ``features_S``, where the family has them.

    Raises:
        ParamError: if an error is negative, or a rate above 1.
    """

    logprobs: bool = True
    entropies: bool = True
    value: float | None = None
    hindsight: bool = False
    annotator: float | None = None
    prm: float | None = None
    hidden: int = 0
    predicates: float | None = None
    features: bool = False

    def __post_init__(self) -> None:
        rates = (self.annotator or 0, self.predicates or 0)
        if min(self.value or 0, self.prm or 0, self.hidden, *rates) < 0 or max(rates) > 1:
            raise ParamError("signals: errors are 0 or more, rates at most 1")


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """All that is known about sampled rollouts when signals are made."""

    task: Task
    policy: Policy
    tables: list[Tables]
    flat: Flat
    ends: Ends
    truth: StepTruth
    noise: Noise
    seed: int

    def uniform(self, name: str, *shape: int) -> Floats:
        """Return uniforms for every rollout and step of time ``[R, H, *shape]``."""
        sizes = np.bincount(self.ends.group_R)
        return drawn(self.seed, self.task, name, sizes, self.task.horizon, *shape)

    def normal(self, name: str, *shape: int) -> Floats:
        """Return standard normals, as `uniform`."""
        sizes = np.bincount(self.ends.group_R)
        return drawn_normal(self.seed, self.task, name, sizes, self.task.horizon, *shape)

    def at_steps(self, drawn_RH: Floats) -> Floats:
        """Return what was drawn for each step ``[S, ...]``."""
        head = self.flat.head_S
        found: Floats = drawn_RH[self.flat.rollout_D[head], self.flat.time_D[head]]
        return found


def supply(batch: Batch, scene: Scene, signals: Signals, cost: Cost) -> Batch:
    """Return the batch with the signals as columns; what a probe would have cost is counted."""
    batch = _of_policy(batch, scene, signals)
    if signals.value is not None:
        batch = _with_values(batch, scene, signals.value)
        cost.annotator_calls += batch.n_steps
    if signals.hindsight and scene.task.success_N is not None:
        batch = _with_hindsight(batch, scene)
        cost.scored_tokens += batch.n_tokens
    if signals.annotator is not None:
        wrong = scene.at_steps(scene.uniform("annotator")) < signals.annotator
        made = {"by": "exact criticality", "error_rate": signals.annotator}
        batch = batch.with_column("critical_S", (scene.truth.critical ^ wrong).astype(np.float64), made)
        cost.judge_calls += len(batch)
    if signals.prm is not None and scene.task.success_N is not None:
        batch = _with_prm(batch, scene, signals.prm)
        cost.judge_calls += batch.n_steps
    if signals.hidden:
        batch = batch.with_column("hidden_S", _hidden(scene, signals.hidden), {"by": "V and nuisance"})
    if signals.predicates is not None and scene.task.features_Nd is not None:
        batch = _with_predicates(batch, scene, signals.predicates)
        cost.annotator_calls += batch.n_steps
    if signals.features and scene.task.features_Nd is not None:
        node = scene.flat.node_D[scene.flat.head_S]
        batch = batch.with_column("features_S", scene.task.features_Nd[node])
    return batch


def _of_policy(batch: Batch, scene: Scene, signals: Signals) -> Batch:
    flat, probs = scene.flat, scene.policy.probs_NA
    if signals.logprobs:
        chosen = np.log(probs[flat.node_D, flat.action_D])
        batch = batch.with_column("logprob_T", _first_token(flat, chosen).astype(np.float32))
    if signals.entropies:
        nats = -(probs * np.log(np.maximum(probs, 1e-300))).sum(1)
        batch = batch.with_column("entropy_T", _first_token(flat, nats[flat.node_D]).astype(np.float32))
    return batch


def _first_token(flat: Flat, values_D: Floats) -> Floats:
    """Return the values at the token that decides, 0 at those that only spell it out ``[T]``."""
    found = np.zeros(int(flat.tokens_D.sum()))
    found[np.cumsum(flat.tokens_D) - flat.tokens_D] = values_D
    return found


def _with_values(batch: Batch, scene: Scene, sigma: float) -> Batch:
    made = {"by": "exact value", "sigma": sigma}
    error = scene.normal("value")
    batch = batch.with_column("value_S", scene.truth.value + sigma * scene.at_steps(error), made)
    if scene.task.tokens_per_step:
        per_token = error[scene.flat.rollout_D, scene.flat.time_D]
        shown = (scene.truth.token_value + sigma * per_token).astype(np.float32)
        batch = batch.with_column("token_value_T", shown, made)
    cut = scene.ends.cut_R
    if cut.any():
        when = np.minimum(scene.ends.length_R, scene.task.horizon)
        roles = np.stack([table.V[when, scene.ends.end_R] for table in scene.tables])
        final = roles[scene.flat.role_R, np.arange(cut.size)]
        batch = batch.with_column("final_value_R", np.where(cut, final, 0.0), made, valid=cut.copy())
    return batch


def _with_hindsight(batch: Batch, scene: Scene) -> Batch:
    """``h(a|s,z) = pi(a|s) P(z|s,a) / P(z|s)``, z the success as recorded."""
    task, flat = scene.task, scene.flat
    table = success_values(task, scene.policy.probs_NA)
    t, s, a = flat.time_D, flat.node_D, flat.action_D
    recorded = _recorded_success(scene)[flat.rollout_D]
    after, before = (_seen(x, recorded, scene.noise.flip) for x in (table.Q[t, s, a], table.V[t, s]))
    lift = np.where(scene.ends.cut_R[flat.rollout_D], 1.0, after / np.maximum(before, _FLOOR))
    chance = np.clip(scene.policy.probs_NA[s, a] * lift, _FLOOR, 1.0)
    shown = _first_token(flat, np.log(chance)).astype(np.float32)
    return batch.with_column("logprobs_hindsight_T", shown, {"by": "exact hindsight"})


def _seen(chance: Floats, success: Ints, flip: float) -> Floats:
    """Return the chance of the recorded result, which is wrong with chance flip."""
    shown = chance * (1 - flip) + (1 - chance) * flip
    return np.where(success > 0, shown, 1 - shown)


def _recorded_success(scene: Scene) -> Ints:
    """Return whether each recorded outcome is nearer to those of successes ``[R]``."""
    task = scene.task
    assert task.success_N is not None
    ended = ~task.live_N | (task.outcome_N != 0)
    good = task.outcome_N[task.success_N & ended]
    bad = task.outcome_N[~task.success_N & ended]
    middle = (good.mean() if good.size else 1.0) / 2 + (bad.mean() if bad.size else 0.0) / 2
    return (scene.ends.outcome_R > middle).astype(np.int64)


def _with_prm(batch: Batch, scene: Scene, sigma: float) -> Batch:
    table = success_values(scene.task, scene.policy.probs_NA)
    last = np.append(scene.flat.head_S[1:], scene.flat.step_D.size) - 1
    flat = scene.flat
    after = table.Q[flat.time_D[last], flat.node_D[last], flat.action_D[last]]
    noisy = np.clip(after + sigma * scene.at_steps(scene.normal("prm")), 0.0, 1.0)
    return batch.with_column("prm_prob_S", noisy, {"by": "exact chance of success", "sigma": sigma})


def _with_predicates(batch: Batch, scene: Scene, rate: float) -> Batch:
    assert scene.task.features_Nd is not None
    holds = scene.task.features_Nd[scene.flat.node_D[scene.flat.head_S]] > 0
    wrong = scene.at_steps(scene.uniform("predicates", holds.shape[1])) < rate
    made = {"by": "exact predicates", "error_rate": rate}
    return batch.with_column("predicates_S", (holds ^ wrong).astype(np.float64), made)


def _hidden(scene: Scene, width: int) -> Floats:
    """Return V times a fixed unit direction plus standard normal nuisance orthogonal to it ``[S, d]``."""
    rng = np.random.default_rng(np.random.SeedSequence([scene.task.seed, 0xD1]))
    direction = rng.standard_normal(width)
    direction /= np.linalg.norm(direction)
    nuisance = scene.at_steps(scene.normal("hidden", width))
    nuisance -= (nuisance @ direction)[:, None] * direction
    return scene.truth.value[:, None] * direction + nuisance
