"""What token methods are given on `toklm`: signals made exactly from its tables, and their controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from accredit.data import Batch
from accredit.typing import Array, Floats, Ints
from accredit.worlds import Sample, evaluate
from accredit.worlds.dynamic import success_values
from accredit.worlds.policies import softmax

__all__ = ["CONTROLS", "Known", "controlled", "supplied", "unmoved"]

FLOOR = 1e-6  # least probability that a signal shows
PLANTED = 1 / 3  # share of the states in which irrelevant wording moves the policy
TILT = 1.0  # deviation of what it adds to logits, nats
SKILL = 0.5  # likewise, of a teacher that knows a fixed skill and nothing of the outcome
WIDTH = 16  # of hidden states
NUISANCE = 0.3  # deviation of the noise in each of their coordinates
CUT_ERROR = 0.1  # of the values at cut points, in chances of success
CUT_BELOW = 0.9  # a token that the policy gave less than this begins a segment


@dataclass(frozen=True, eq=False)
class Known:
    """What the tables of a `toklm` task say about its policy, by state and token.

    Args:
        sample: rollouts of the task.
    """

    sample: Sample

    @cached_property
    def states(self) -> list[tuple[int, int, int]]:
        """(place, memory, last token) of each state ``[N]``."""
        return list(self.sample.task.facts["states"])

    @cached_property
    def place_N(self) -> Ints:
        """Tokens written before each state."""
        return np.array([place for place, _, _ in self.states], np.int64)

    @cached_property
    def value_N(self) -> Floats:
        """Chance of success from each state."""
        table = success_values(self.sample.task, self.sample.policy.probs_NA)
        return np.clip(table.V[self.place_N, np.arange(self.place_N.size)], 0.0, 1.0)

    @cached_property
    def after_NA(self) -> Ints:
        """State after each token; that of the state itself where the string is complete."""
        task = self.sample.task
        found = np.repeat(np.arange(task.n_states), task.n_actions)
        found[task.row_E] = task.edge_to_E
        return found.reshape(task.n_states, task.n_actions)

    @cached_property
    def q_NA(self) -> Floats:
        """Chance of success after each token."""
        return self.value_N[self.after_NA]

    def given(self, *, success: bool) -> Floats:
        """Return the policy given how the string will end, ``pi(a|s) P(end|s,a) / P(end|s)`` ``[N, A]``.

        Where that end is impossible it is the policy itself.

        Args:
            success: the end that is known.
        """
        q, v = (self.q_NA, self.value_N) if success else (1.0 - self.q_NA, 1.0 - self.value_N)
        possible = (v > 1e-12)[:, None]
        lift = np.divide(q, v[:, None], out=np.ones_like(q), where=possible)
        found: Floats = self.sample.policy.probs_NA * lift
        return found

    def of(self, table_NA: Floats) -> Floats:
        """Return the entry of each token that was written ``[T]``.

        Args:
            table_NA: by state and token.
        """
        flat = self.sample.flat
        found: Floats = table_NA[flat.node_D, flat.action_D]
        return found

    @cached_property
    def ends_R(self) -> Ints:
        """State of the complete string of each rollout."""
        flat = self.sample.flat
        last = np.append(np.flatnonzero(np.diff(flat.rollout_D)), flat.rollout_D.size - 1)
        return np.asarray(self.after_NA[flat.node_D[last], flat.action_D[last]])

    def boundaries(self, r: int) -> Ints:
        """Return the states at the beginning of each step of a rollout, and at its end.

        Args:
            r: rollout.
        """
        flat = self.sample.flat
        heads = flat.head_S[flat.step_start_R1[r] : flat.step_start_R1[r + 1]]
        return np.append(flat.node_D[heads], self.ends_R[r])

    def rng(self, purpose: int) -> np.random.Generator:
        """Return the chance of one purpose.

        Args:
            purpose: any number; different ones are independent.
        """
        return np.random.default_rng(np.random.SeedSequence([self.sample.task.seed, 0x70B, purpose]))


def unmoved(probs_NA: Floats, q_NA: Floats, tilt_NA: Floats) -> Floats:
    """Return a policy that other wording moved, with every state's chance of success left as it was.

    ``pi'(a|s) ~ pi(a|s) exp(tilt - lam_s Q(s,a))``, lam_s such that ``sum_a pi' Q = sum_a pi Q``: what
    the next token adds to success is the same in the mean in every state, hence so is V.

    Args:
        probs_NA: the policy.
        q_NA: chance of success after each token, under it.
        tilt_NA: what the wording adds to logits.
    """
    allowed = probs_NA > 0
    spread = np.ptp(q_NA, axis=1)
    target = (probs_NA * q_NA).sum(1)
    logits = np.log(np.maximum(probs_NA, 1e-300)) + tilt_NA
    limit = np.divide(1e4, spread, out=np.zeros_like(spread), where=spread > 1e-12)
    low, high = np.arcsinh(-limit), np.arcsinh(limit)
    found = probs_NA
    for _ in range(100):  # bisection on a scale that is fine near 0
        middle = (low + high) / 2
        found = softmax(logits - np.sinh(middle)[:, None] * q_NA, allowed)
        much = (found * q_NA).sum(1) > target
        low, high = np.where(much, middle, low), np.where(much, high, middle)
    return found


def supplied(known: Known) -> Batch:
    """Return the rollouts with every signal that a token method reads.

    Token ids are the tokens' numbers in the task, so that logits stand in their order.

    Args:
        known: what the tables say.
    """
    sample = known.sample
    columns: dict[str, Any] = {
        "token_T": sample.flat.action_D,
        **_teacher(known, known.given(success=True)),
        "perturbed_logprobs.wording_T": _log(known.of(_planted(known))),
        "hidden_T": _hidden(known),
        **_logits(known, known.given(success=True), known.given(success=False)),
        **_answers(known),
        **_cuts(known),
        "candidate_logprobs_R": _odds(known),
    }
    return _with(sample.batch, columns)


def _with(batch: Batch, columns: Mapping[str, Any]) -> Batch:
    for name, values in columns.items():
        batch = batch.with_column(name, values, {"by": "exact tables"})
    return batch


def _log(chance: Floats) -> Floats:
    found: Floats = np.log(np.maximum(chance, FLOOR))
    return found


def _teacher(known: Known, probs_NA: Floats) -> dict[str, Array]:
    logits = _log(probs_NA)[known.sample.flat.node_D]
    return {"logprobs_teacher_T": _log(known.of(probs_NA)), "teacher_logits_T": logits}


def _logits(known: Known, pos_NA: Floats, neg_NA: Floats) -> dict[str, Array]:
    node, own = known.sample.flat.node_D, _log(known.sample.policy.probs_NA)
    return {
        "student_logits_T": own[node],
        "teacher_none_logits_T": own[node],
        "teacher_pos_logits_T": _log(pos_NA)[node],
        "teacher_neg_logits_T": _log(neg_NA)[node],
    }


def _planted(known: Known, *, harmless: bool = False) -> Floats:
    """Return the policy under altered wording: moved in a third of the states, nowhere in its success.

    ``harmless`` plants it where the choice matters least, else anywhere.
    """
    probs, rng = known.sample.policy.probs_NA, known.rng(1)
    tilt = TILT * rng.standard_normal(probs.shape)
    chance: Floats = rng.random((probs.shape[0],))
    first: Floats = np.ptp(known.q_NA, axis=1) if harmless else chance
    moved = np.zeros(chance.size, bool)
    for place in np.unique(known.place_N).tolist():
        here = np.flatnonzero(known.place_N == place)
        order = np.lexsort((chance[here], first[here]))
        moved[here[order[: round(PLANTED * here.size)]]] = True
    return np.where(moved[:, None], unmoved(probs, known.q_NA, tilt), probs)


def _hidden(known: Known) -> Floats:
    """Return an embedding of the state after each token, and noise ``[T, d]``."""
    rng = known.rng(2)
    parts = np.zeros((len(known.states), WIDTH))
    for axis in range(3):
        codes = np.unique([state[axis] for state in known.states], return_inverse=True)[1]
        parts += rng.standard_normal((int(codes.max()) + 1, WIDTH))[codes] / np.sqrt(3.0)
    flat = known.sample.flat
    found: Floats = parts[known.after_NA[flat.node_D, flat.action_D]]
    return found + NUISANCE * known.rng(3).standard_normal(found.shape)


def _odds(known: Known) -> Array:
    """Return log-chances of success and failure at each boundary of a rollout's steps ``[R]``."""
    found = np.empty(len(known.sample.batch), object)
    for r in range(found.size):
        v = known.value_N[known.boundaries(r)]
        found[r] = np.stack([_log(v), _log(1.0 - v)], 1).tolist()
    return found


def _answers(known: Known) -> dict[str, Array]:
    """Return what each string came to (the rule's memory at its end), and its support along the way."""
    task, probs = known.sample.task, known.sample.policy.probs_NA
    memory = np.array([m for _, m, _ in known.states])
    ended = known.place_N == task.horizon
    chance = {}
    for m in np.unique(memory[ended]).tolist():
        table = evaluate(task, probs, (ended & (memory == m)).astype(np.float64))
        chance[m] = np.clip(table.V[known.place_N, np.arange(memory.size)], 0.0, 1.0)
    scores = np.empty(len(known.sample.batch), object)
    answer = memory[known.ends_R]
    for r, m in enumerate(answer.tolist()):
        support = [[[1.0, x]] for x in _log(chance[m][known.boundaries(r)]).tolist()]
        scores[r] = {"baseline": support[0], "after_step": support[1:]}
    words = np.array([f"comes to {m}" for m in answer.tolist()])
    return {"answer_R": words, "answer_cluster_R": answer.astype(np.float64), "ref_logprobs_R": scores}


def _cuts(known: Known) -> dict[str, Array]:
    """Return cut points before tokens that the policy was unsure of, and noisy values there ``[S]``."""
    flat = known.sample.flat
    unsure = known.of(known.sample.policy.probs_NA) < CUT_BELOW
    shown = known.value_N[flat.node_D] + CUT_ERROR * known.rng(4).standard_normal(flat.node_D.size)
    points, values = (np.empty(flat.head_S.size, object) for _ in range(2))
    ends = np.append(flat.head_S[1:], flat.node_D.size)
    for s, (a, b) in enumerate(zip(flat.head_S.tolist(), ends.tolist(), strict=True)):
        first = flat.time_D[a] == 0
        at = [t for t in range(a, b) if unsure[t] or (first and t == a)]
        points[s], values[s] = [t - a - 1 for t in at], shown[at].tolist()
    return {"cutpoints_S": points, "cutpoint_values_S": values}


def _shuffled(known: Known, signal_T: Floats) -> Floats:
    """Return log-probs whose distance from the policy's was dealt out anew inside each rollout."""
    own = _log(known.of(known.sample.policy.probs_NA))
    rollout = known.sample.flat.rollout_D
    order = np.lexsort((known.rng(5).random(own.size), rollout))  # rollouts lie one after the other
    found: Floats = own + (signal_T - own)[order]
    return found


def _skills(known: Known) -> tuple[Floats, Floats]:
    """Return two teachers that know a fixed skill and nothing of the outcome."""
    policy, rng = known.sample.policy, known.rng(6)
    allowed = known.sample.task.allowed_NA
    first, second = (
        softmax(policy.logits_NA + SKILL * rng.standard_normal(allowed.shape), allowed) for _ in range(2)
    )
    return first, second


def _wording(known: Known, probs_NA: Floats) -> dict[str, Array]:
    return {"perturbed_logprobs.wording_T": _log(known.of(probs_NA))}


def _skilled(known: Known) -> dict[str, Array]:
    first, second = _skills(known)
    return {**_teacher(known, first), **_logits(known, first, second)}


def _teacher_shuffled(known: Known) -> dict[str, Array]:
    return {"logprobs_teacher_T": _shuffled(known, _log(known.of(known.given(success=True))))}


def _drift_shuffled(known: Known) -> dict[str, Array]:
    return {"perturbed_logprobs.wording_T": _shuffled(known, _log(known.of(_planted(known))))}


def _surprisal(known: Known) -> dict[str, Array]:
    return {"entropy_T": -_log(known.of(known.sample.policy.probs_NA))}


# What each control puts in the place of a signal.
CONTROLS: Mapping[str, Any] = MappingProxyType(
    {
        "surprisal": _surprisal,
        "skill": _skilled,
        "shuffled teacher": _teacher_shuffled,
        "shuffled drift": _drift_shuffled,
        "counterfactual": lambda known: _wording(known, known.given(success=False)),
        "harmless": lambda known: _wording(known, _planted(known, harmless=True)),
    }
)


def controlled(batch: Batch, known: Known, control: str) -> Batch:
    """Return the rollouts with one signal replaced; ``""`` replaces none.

    Args:
        batch: from `supplied`.
        known: what the tables say.
        control: one of `CONTROLS`.
    """
    return _with(batch, CONTROLS[control](known)) if control else batch
