"""VinePPO: the change of Monte-Carlo value that a step brought.

Source: arXiv 2410.01679; McGill-NLP/VinePPO @ efe7228 ``src/treetune/episode_generators/
math_episode_generator_with_mc_advantages.py``.  Differences: docs/methods/vineppo.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from accredit.data import Explanation, Member, Parts, Term
from accredit.errors import DataError
from accredit.index import Forks, Index, discounted_sum, last_of_row, segment_sum, shifted
from accredit.index.samples import estimates_of, outcomes_of
from accredit.methods._params import bounded, choice, flag
from accredit.methods._registry import method
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["vineppo"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `vineppo`."""

    unfinished_reward: float = bounded(
        0.0, doc="outcome of a truncated rollout or continuation that has no reward of its own"
    )
    max_step: int | None = bounded(
        None, at_least=0, whole=True, doc="values of steps 0 .. max_step alone are used; None = all"
    )
    pool: bool = flag(default=True, doc="rollouts that began alike share their continuations")
    include_main: bool = flag(default=False, doc="what the rollouts themselves got counts in the value, too")
    missing: str = choice("error", "fill", doc="a state without an estimate: refuse; or V = r + V'")
    on_empty: str = choice(
        "missing",
        "zero",
        doc="an empty list of continuations: no estimate; or V = 0, as in the authors' code",
    )


@method(
    "vineppo",
    title="Change of the mean outcome of continuations from before the step to after it",
    family="forks",
    params=Params,
    needs={"reward", "continuations"},
    yields="step",
    tags={"telescopes"},
    cites="arXiv:2410.01679",
    compat={"code": {"on_empty": "zero", "missing": "fill"}},
)
def vineppo(index: Index, params: Params) -> Parts:
    """Step advantage from Monte-Carlo values.

    ``A_t = r_t + V_{t+1} - V_t``, t = 0 .. T-1, with V_t the mean reward of the K continuations from
    the state before step t, V_T = 0 and the outcome in ``r_{T-1}``.  A state without an estimate
    (beyond ``max_step``, or with ``missing="fill"``) has ``V_t = r_t + V_{t+1}``, so that its step gets
    exactly 0.  Rollouts that began alike (same states and actions so far; always the first state of a
    task) share one value, the mean over all their different lists.  As K grows it is `td` with exact
    values; ``max_step=0`` gives the first step the outcome minus V_0, the others 0.

    Args:
        index: of the batch; ``continuations`` hold what was paid from their state on.
        params: see `Params`.

    Returns:
        Step credit ``[S]``, reward units; sums to the rollout's return minus V_0; 0 in unscored
        rollouts, unless they were truncated.  Extras ``[S]``: ``value`` V in use, ``k`` outcomes
        behind it (0 = filled), ``se`` standard error of the credit.

    Raises:
        DataError: if a state has no estimate and ``missing`` is error, or a list is none of outcomes.

    Source: arXiv 2410.01679 Eq. 5; ``_compute_mc_value``, ``_compute_step_advantages``.

    Example:
        >>> import accredit as ac
        >>> lists = [[1, 0, 0, 1], [1, 1, 0, 1], [0, 0, 0, 1]]
        >>> steps = [{"continuations": [{"reward": r} for r in own]} for own in lists]
        >>> ac.assign([{"id": "a", "group": "g", "reward": 1, "steps": steps}], "vineppo").steps.tolist()
        [0.25, -0.5, 0.75]
    """
    vine = _Vine(index, params)
    credit, reward = vine.credit, vine.reward_S

    def explain(s: int) -> Explanation:
        r = int(index.rollout_S[s])
        place = index.place_of(s)
        if not vine.credited_R[r]:
            return Explanation("vineppo", *place, 0.0, (), ("unscored or rejected: no credit",))
        inputs = {"r": reward[s], "next": vine.after_S[s], "value": vine.value_S[s]}
        shown = {name: float(number) for name, number in inputs.items()} | {"k": float(vine.k_S[s])}
        text = "reward {r:.6g} + next value {next:.6g} - value {value:.6g} of {k:.0f} outcomes".format(
            **shown
        )
        members = tuple(Member(place[0], x, place[1], "continuation") for x in vine.used[s])
        notes = (
            ()
            if vine.k_S[s]
            else (f"no outcome came back: V {'= 0' if vine.there_S[s] else 'is filled in'}",)
        )
        term = Term("surprise", float(credit[s]), text, shown, members)
        return Explanation("vineppo", *place, float(credit[s]), (term,), notes)

    return Parts(
        credit,
        parts={"surprise": credit},
        informed_S=vine.there_S & vine.credited_S,
        fallbacks={"filled": int((~vine.there_S & vine.credited_S).sum()), "empty": vine.empty},
        extras={"value": np.where(vine.credited_S, vine.value_S, 0.0), "k": vine.k_S, "se": vine.se_S},
        explain=explain,
    )


class _Vine:
    """Values of the states of a batch, and the credit that follows.

    Args:
        index: of the batch.
        params: see `Params`.
    """

    def __init__(self, index: Index, params: Params) -> None:
        self.index, self.params = index, params
        self.used: list[tuple[float, ...]] = self._used()
        self.k_S, self._mean, self._error = estimates_of(self.used)

    @cached_property
    def unfinished_R(self) -> BoolArray:
        """Truncated rollouts without a reward of their own ``[R]``."""
        return self.index.has_status("truncated") & ~self.index.scored_R

    @cached_property
    def credited_R(self) -> BoolArray:
        """Rollouts that get credit ``[R]``."""
        return self.index.scored_R | self.unfinished_R

    @cached_property
    def credited_S(self) -> BoolArray:
        """Their steps ``[S]``."""
        return self.credited_R[self.index.rollout_S]

    @cached_property
    def reward_S(self) -> Floats:
        """Step rewards with the outcome ``[S]``, that of unfinished rollouts included."""
        index = self.index
        found = index.reward_S.copy()
        owed = self.unfinished_R
        if index.outcome_in_steps and index.batch.has("reward_S"):
            given = index.batch.column("reward_S").mask(index.batch.n_steps)
            owed = owed & (segment_sum(given, index.rollout_S, len(index.batch)) == 0)
        rows, last = last_of_row(index.batch.step_start_R1)
        found[last] += np.where(owed, self.params.unfinished_reward, 0.0)[rows]
        return found

    @cached_property
    def there_S(self) -> BoolArray:
        """Steps whose state has an estimate ``[S]``."""
        found: BoolArray = self.k_S > 0
        if self.params.on_empty == "zero":
            found = found | self._listed_S
        return found & self._asked_S

    @cached_property
    def value_S(self) -> Floats:
        """V in use ``[S]``, gaps filled.

        Raises:
            DataError: naming the first state without an estimate, where ``missing`` is error.
        """
        gaps = self.credited_S & self._asked_S & ~self.there_S
        if gaps.any() and self.params.missing == "error":
            s = int(np.flatnonzero(gaps)[0])
            raise DataError(
                f"{int(gaps.sum())} states have no outcome of a continuation",
                code="ACC420",
                where=self.index.where(s),
                hint="Give `continuations`, or say missing='fill'",
            )
        there = self.there_S
        known = np.where(there, self._mean, self.reward_S)
        return discounted_sum(known, self.index.batch.step_start_R1, np.where(there, 0.0, 1.0))

    @cached_property
    def after_S(self) -> Floats:
        """V after each step ``[S]``; 0 after the last."""
        return self._shifted(self.value_S)

    @cached_property
    def credit(self) -> Floats:
        """A ``[S]``."""
        found = self.reward_S + self.after_S - self.value_S
        return np.where(self.credited_S & self.there_S, found, 0.0)

    @cached_property
    def se_S(self) -> Floats:
        """Standard error of the credit ``[S]``; 0 where it is exact or there is none."""
        there = self.there_S
        own = np.where(there, self._error, 0.0)
        carried = discounted_sum(own, self.index.batch.step_start_R1, np.where(there, 0.0, 1.0))
        return np.where(self.credited_S & there, np.sqrt(own + self._shifted(carried)), 0.0)

    @cached_property
    def empty(self) -> int:
        """Number of credited states whose list is empty."""
        return int((self._listed_S & self._asked_S & self.credited_S & (self.k_S == 0)).sum())

    def _shifted(self, values_S: Floats) -> Floats:
        start = self.index.batch.step_start_R1
        return shifted(values_S, start, np.zeros(start.size - 1))

    @cached_property
    def _asked_S(self) -> BoolArray:
        if self.params.max_step is None:
            return np.ones(self.index.batch.n_steps, bool)
        found: BoolArray = self.index.position_S <= self.params.max_step
        return found

    @cached_property
    def _listed_S(self) -> BoolArray:
        return self.index.batch.column("continuations_S").mask(self.index.batch.n_steps)

    def _used(self) -> list[tuple[float, ...]]:
        """Return the outcomes behind the value of each step's state."""
        index = self.index
        own = self._own()
        if not (self.params.pool or self.params.include_main):
            return own
        place_S = _places(index) if self.params.pool else np.arange(index.batch.n_steps)
        lists: dict[int, dict[tuple[float, ...], None]] = {}
        for s in np.flatnonzero(self.credited_S).tolist():
            lists.setdefault(int(place_S[s]), {})[own[s]] = None
        pooled = {n: [x for one in kinds for x in one] for n, kinds in lists.items()}
        if self.params.include_main:
            self._add_main(place_S, pooled)
        used = {n: tuple(outcomes) for n, outcomes in pooled.items()}
        return [used.get(n, ()) for n in place_S.tolist()]

    def _add_main(self, place_S: Ints, pooled: dict[int, list[float]]) -> None:
        """Add what each rollout got from a state on, where continuations were sampled too."""
        start = self.index.batch.step_start_R1
        paid = discounted_sum(self.reward_S, start, 1.0)
        sampled = {n for n, outcomes in pooled.items() if outcomes}
        for s in np.flatnonzero(self.credited_S).tolist():
            if int(place_S[s]) in sampled:
                pooled[int(place_S[s])].append(float(paid[s]))

    def _own(self) -> list[tuple[float, ...]]:
        lists: Sequence[object] = self.index.batch.column("continuations_S").decoded().tolist()
        found: list[tuple[float, ...]] = [()] * len(lists)
        for s in np.flatnonzero(self._listed_S & self._asked_S).tolist():
            found[s] = outcomes_of(lists[s], self.params.unfinished_reward, self.index.where(s))
        return found


def _places(index: Index) -> Ints:
    """Return the place before each step ``[S]``: equal where all states and actions so far are.

    What follows an action that is not known is a place of its own.
    """
    n = index.batch.n_steps
    here = np.zeros(n, np.int64)
    if index.key is not None or index.batch.has("state_S"):
        here = index.state_S.astype(np.int64)
    before = np.roll(Forks(index, "equal").node_S, 1)
    first = index.position_S == 0
    before[first] = index.group_S[first]
    found: Ints = np.unique(before * (int(here.max(initial=0)) + 1) + here, return_inverse=True)[1]
    action = index.batch.columns.get("action_S")
    unknown = np.ones(n, bool) if action is None else ~action.mask(n)
    so_far = np.cumsum(unknown) - unknown
    lost = so_far > so_far[index.batch.step_start_R1[:-1][index.rollout_S]]
    return np.where(lost, n + np.arange(n), found)
