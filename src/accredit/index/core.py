"""The Index: what recurs in a batch, computed once and shared by all methods."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from accredit.data import Batch
from accredit.errors import ParamError
from accredit.index.segments import discounted_sum, last_of_row, row_of, segment_sum
from accredit.index.states import Key, check_key, state_codes
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["Index", "OutcomeInSteps"]

OutcomeInSteps: TypeAlias = Literal["auto", "yes", "no"]


class Index:
    """Groups, steps, rewards and states of a batch as the methods see them.

    Args:
        batch: the rollouts.
        key: state key (see `accredit.index.states.word_keys`); None = exact.
        outcome_in_steps: whether the step rewards already contain the outcome: ``auto`` (the
            batch's own decision), ``yes`` or ``no``.

    Example:
        >>> batch = Batch.from_records([
        ...     {"id": "a", "group": "g", "reward": 1, "steps": [{"state": "s"}, {"state": "t"}]}])
        >>> Index(batch).return_S(0.5).tolist()
        [0.5, 1.0]
    """

    def __init__(
        self, batch: Batch, key: Key | None = None, outcome_in_steps: OutcomeInSteps = "auto"
    ) -> None:
        if outcome_in_steps not in ("auto", "yes", "no"):
            raise ParamError(f"outcome_in_steps must be one of auto, yes, no; got {outcome_in_steps!r}")
        check_key(key)
        self.batch = batch
        self.key = key
        if outcome_in_steps == "auto":
            self.outcome_in_steps = batch.outcome_in_steps
        else:
            self.outcome_in_steps = outcome_in_steps == "yes"

    # -- groups and rollouts ------------------------------------------------------------------

    @cached_property
    def group_R(self) -> Ints:
        """Dense group code of each rollout, 0 .. n_groups-1 in order of first appearance."""
        return first_seen(self.batch.group_R)

    @cached_property
    def n_groups(self) -> int:
        """Number of groups G."""
        return int(self.group_R.max(initial=-1)) + 1

    @cached_property
    def scored_R(self) -> BoolArray:
        """Rollouts that have a reward and are not rejected ``[R]``."""
        if not self.batch.has("reward_R"):
            return np.zeros(len(self.batch), bool)
        return self.batch.column("reward_R").mask(len(self.batch)) & ~self.has_status("rejected")

    def has_status(self, status: str) -> BoolArray:
        """Return which rollouts have this status ``[R]``."""
        column = self.batch.columns.get("status_R")
        if column is None or status not in (column.words or ()):
            return np.zeros(len(self.batch), bool)
        code = (column.words or ()).index(status)
        same: BoolArray = column.values == code
        return same & column.mask(len(self.batch))

    def counted_R(
        self, truncated: str = "keep", incomplete: str = "keep", scored: BoolArray | None = None
    ) -> BoolArray:
        """Return which rollouts join the statistics ``[R]``: scored, not rejected, and …

        Args:
            truncated: ``keep`` = with their reward as recorded; ``drop`` = left out, credit 0.
            incomplete: ``keep`` = groups smaller than the commonest size count as they are;
                ``drop`` = they are left out, credit 0.
            scored: rollouts that have a score ``[R]`` where it is not ``reward`` (several rewards).
        """
        counted = self.scored_R if scored is None else scored
        if truncated == "drop":
            counted = counted & ~self.has_status("truncated")
        if incomplete == "drop":
            size = np.bincount(self.group_R, minlength=self.n_groups)
            counted = counted & (size == np.bincount(size).argmax())[self.group_R]
        return counted

    # -- steps and tokens -----------------------------------------------------------------------

    @cached_property
    def rollout_S(self) -> Ints:
        """Rollout of each step ``[S]``."""
        return row_of(self.batch.step_start_R1)

    @cached_property
    def position_S(self) -> Ints:
        """0-based position t of each step in its rollout ``[S]``."""
        return np.arange(self.batch.n_steps) - self.batch.step_start_R1[self.rollout_S]

    @cached_property
    def steps_R(self) -> Ints:
        """Number of steps of each rollout ``[R]``."""
        return np.diff(self.batch.step_start_R1)

    @cached_property
    def group_S(self) -> Ints:
        """Dense group code of each step ``[S]``."""
        return self.group_R[self.rollout_S]

    @cached_property
    def tokens_S(self) -> Ints:
        """Number of policy tokens of each step ``[S]``."""
        return np.diff(self.batch.token_start_S1)

    @cached_property
    def tokens_R(self) -> Ints:
        """Number of policy tokens of each rollout ``[R]``."""
        return np.diff(self.token_start_R1)

    @cached_property
    def token_start_R1(self) -> Ints:
        """Offsets of each rollout's policy tokens."""
        return self.batch.token_start_S1[self.batch.step_start_R1]

    @cached_property
    def step_T(self) -> Ints:
        """Step of each policy token ``[T]``."""
        return row_of(self.batch.token_start_S1)

    def place_of(self, s: int) -> tuple[str, int]:
        """Return the rollout id and the 0-based position of step s."""
        return self.batch.ids[int(self.rollout_S[s])], int(self.position_S[s])

    def where(self, s: int) -> str:
        """Return the place of step s as messages name it: ``rollout 'r17' step 3``."""
        rollout, position = self.place_of(s)
        return f"rollout {rollout!r} step {position}"

    @cached_property
    def trainable_S(self) -> BoolArray:
        """Steps whose tokens are trained: neither they nor their rollout say otherwise ``[S]``."""
        keep = np.ones(self.batch.n_steps, bool)
        for name, at in (("trainable_R", self.rollout_S), ("trainable_S", slice(None))):
            column = self.batch.columns.get(name)
            if column is not None:
                size = len(self.batch) if name.endswith("R") else self.batch.n_steps
                told = column.decoded().astype(bool) | ~column.mask(size)
                keep &= told[at]
        return keep & ~self.has_status("rejected")[self.rollout_S]

    # -- rewards ----------------------------------------------------------------------------------

    @cached_property
    def outcome_R(self) -> Floats:
        """Outcome ``reward`` alone ``[R]``; 0 where unscored."""
        if not self.batch.has("reward_R"):
            return np.zeros(len(self.batch))
        return np.where(self.scored_R, self.batch.reward_R, 0.0)

    @cached_property
    def paid_S(self) -> Floats:
        """Recorded step rewards ``[S]``; 0 where absent."""
        if not self.batch.has("reward_S"):
            return np.zeros(self.batch.n_steps)
        return np.asarray(self.batch.reward_S, np.float64)

    @cached_property
    def _owed_R(self) -> BoolArray:
        """Rollouts whose outcome is not in their step rewards ``[R]``.

        All, unless step rewards contain the outcome; then those that have no step reward at all.
        """
        if not self.outcome_in_steps or not self.batch.has("reward_S"):
            return np.ones(len(self.batch), bool)
        given = self.batch.column("reward_S").mask(self.batch.n_steps)
        none: BoolArray = segment_sum(given, self.rollout_S, len(self.batch)) == 0
        return none

    @cached_property
    def reward_S(self) -> Floats:
        """Step rewards r_t ``[S]`` by the reward convention: the outcome is in the last step."""
        found = self.paid_S.copy()
        rows, last = last_of_row(self.batch.step_start_R1)
        found[last] += np.where(self._owed_R, self.outcome_R, 0.0)[rows]
        return found

    @cached_property
    def score_R(self) -> Floats:
        """Total return S_i = sum of r_t ``[R]``; a rollout without steps has its outcome."""
        if not self.batch.has("reward_S"):
            return self.outcome_R
        paid = segment_sum(self.paid_S, self.rollout_S, len(self.batch))
        return paid + np.where(self._owed_R, self.outcome_R, 0.0)

    def return_S(self, gamma: float) -> Floats:
        """Return the discounted return-to-go of each step ``[S]``: sum_k gamma^(k-t) r_k."""
        return discounted_sum(self.reward_S, self.batch.step_start_R1, gamma)

    # -- states -----------------------------------------------------------------------------------

    @cached_property
    def state_S(self) -> Ints:
        """State code of each step ``[S]`` under the key; a missing state is a code of its own."""
        return state_codes(self.batch, self.key)[0]

    @cached_property
    def anchor_S(self) -> Ints:
        """Dense code of (group, state) of each step ``[S]``, in order of first appearance."""
        return first_seen(self.group_S * (int(self.state_S.max(initial=0)) + 1) + self.state_S)

    @cached_property
    def n_anchors(self) -> int:
        """Number of states of all groups, each group's own."""
        return int(self.anchor_S.max(initial=-1)) + 1


_TABLE = 8  # codes spread up to 8 places a value are counted in a table, wider ones are sorted


def first_seen(codes: Ints) -> Ints:
    """Return codes renumbered 0, 1, … in order of first appearance.

    Example:
        >>> first_seen(np.array([7, 3, 7, 9])).tolist()
        [0, 1, 0, 2]
    """
    found: Ints
    if not codes.size:
        return np.zeros(0, np.int64)
    highest = np.maximum.accumulate(codes)
    if codes[0] == 0 and codes.min() == 0 and np.all(highest[1:] - highest[:-1] <= 1):
        return codes.astype(np.int64)  # each new code is the next one: they are numbered already
    low, high = int(codes.min()), int(highest[-1])
    if high - low > _TABLE * codes.size:
        _, first, dense = np.unique(codes, return_index=True, return_inverse=True)
        rank = np.empty(first.size, np.int64)
        rank[np.argsort(first, kind="stable")] = np.arange(first.size)
        found = rank[dense]
        return found
    place = np.arange(codes.size)
    first_at = np.zeros(high - low + 1, np.int64)
    first_at[codes[::-1] - low] = place[::-1]  # of equal codes the last write stays: the first place
    first = first_at[codes - low]
    found = (np.cumsum(first == place) - 1)[first]
    return found
