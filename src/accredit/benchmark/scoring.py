"""One credit of one sample against its exact truth: every measure, and the policy gradient."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from accredit.data import Batch, Credit
from accredit.index import Index
from accredit.metrics import Facts, gradient_quality, measure, softmax_gradient
from accredit.typing import BoolArray, Floats, Ints
from accredit.worlds import Sample, occupancy

__all__ = ["Scorer"]


@dataclass(frozen=True)
class Scorer:
    """Scores credits of one sample.

    Where an action of the task is a token, tokens are what is scored, else steps: the unit is a
    decision either way.

    Args:
        sample: with its truth.
        batch: its rollouts, with the signals that methods were given.
    """

    sample: Sample
    batch: Batch

    @cached_property
    def by_token(self) -> bool:
        """Whether decisions are tokens."""
        return self.sample.task.tokens_per_step > 0

    @cached_property
    def truth_D(self) -> Floats:
        """True advantage of each decision."""
        truth = self.sample.truth
        return truth.token_advantage if self.by_token else truth.advantage

    @cached_property
    def facts(self) -> Facts:
        """What is true of each decision, as the measures take it."""
        flat, task, index = self.sample.flat, self.sample.task, Index(self.batch)
        value = self.sample.truth.value
        first = np.minimum(flat.step_start_R1[:-1], max(0, value.size - 1))
        won = self._success_R(index)
        return Facts(
            self.truth_D,
            flat.rollout_D,
            index.group_R[flat.rollout_D],
            None if won is None else won[flat.rollout_D],
            self._spread_D(),
            flat.time_D * task.n_states + flat.node_D,
            flat.action_D,
            index.score_R,
            np.where(np.diff(flat.step_start_R1) > 0, value[first], 0.0),
        )

    def _success_R(self, index: Index) -> BoolArray | None:
        """Successes as recorded; None where the family has none."""
        if self.sample.task.success_N is None or not index.outcome_R.size:
            return None
        middle = (float(index.outcome_R.max()) + float(index.outcome_R.min())) / 2
        found: BoolArray = index.outcome_R > middle
        return found

    def _spread_D(self) -> Floats:
        flat, task = self.sample.flat, self.sample.task
        role = flat.role_R[flat.rollout_D]
        spreads = np.stack([table.spread(task) for table in self.sample.tables])
        found: Floats = spreads[role, flat.time_D, flat.node_D]
        return found

    def credit_D(self, credit: Credit) -> Floats:
        """Return the credit of each decision."""
        return credit.tokens if self.by_token else credit.steps

    def score(self, credit_D: Floats) -> dict[str, float]:
        """Return every measure that is defined, by name.

        Args:
            credit_D: credit of each decision.
        """
        found = measure(credit_D, self.facts)
        quality = gradient_quality(self.gradient(credit_D)[None], self.exact_gradient)
        return found if quality is None else {**found, "gradient": quality.mean_cosine}

    def gradient(self, credit_D: Floats) -> Floats:
        """Return the policy-gradient estimate a rollout, over the logits of every (state, action)."""
        cell = self.cell_D
        total = softmax_gradient(credit_D, cell, self._state_of_cell, self.sample.policy.probs_NA.ravel())
        played = int(self.sample.flat.row_R.max(initial=0)) + 1
        found: Floats = total / played
        return found

    @cached_property
    def cell_D(self) -> Ints:
        """(state, action) of each decision."""
        flat = self.sample.flat
        return flat.node_D * self.sample.task.n_actions + flat.action_D

    @cached_property
    def _state_of_cell(self) -> Ints:
        task = self.sample.task
        return np.repeat(np.arange(task.n_states), task.n_actions)

    @cached_property
    def exact_gradient(self) -> Floats:
        """``g[s, a] = sum_t d_t(s) pi(a|s) A_t(s, a)``, of the role that decides in s."""
        task, probs = self.sample.task, self.sample.policy.probs_NA
        d = occupancy(task, probs)
        roles = list(task.payoffs)
        found = np.zeros_like(probs)
        for r, table in enumerate(self.sample.tables):
            mine = np.array([a == roles[r] for a in task.agents]) if roles else np.ones(task.n_states, bool)
            found += np.where(mine[:, None], np.einsum("tn,na,tna->na", d, probs, table.A), 0.0)
        flat: Floats = found.ravel()
        return flat
