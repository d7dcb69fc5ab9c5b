"""TD errors and their discounted sums over steps or policy tokens, shared by td, gae and their kin.

What is decided here once: the value after the end, values that are absent, rollouts without reward.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from accredit.data import Explanation, Finding, Member, Term
from accredit.errors import DataError, MissingSignal
from accredit.index import Index, discounted_sum, last_of_row, shifted
from accredit.methods._params import choice
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["Chain", "Scan", "Setting", "ValueParams", "step_chain"]


@dataclass(frozen=True, slots=True)
class ValueParams:
    """What every method on value estimates decides about gaps and ends."""

    missing: str = choice(
        "error",
        "carry-back",
        "interpolate",
        doc="absent value: refuse; r + gamma V'; linear between neighbours",
    )
    truncation: str = choice(
        "terminal",
        "drop",
        doc="cut off and no final_value: V = 0 after it, or no surprise in its last decision",
    )
    outcome: str = choice(
        "include", "ignore", doc="ignore: credit the step rewards alone, unscored rollouts too"
    )


@dataclass(frozen=True)
class Setting:
    """Which rollouts get credit, and what follows their ends.

    Args:
        index: of the batch.
        params: gaps and ends.
    """

    index: Index
    params: ValueParams

    @cached_property
    def credited_R(self) -> BoolArray:
        """Rollouts that get credit ``[R]``: scored ones, or all but rejected ones.

        Raises:
            MissingSignal: if the outcome is asked for and no rollout can have one.
        """
        if self.params.outcome == "ignore":
            return ~self.index.has_status("rejected")
        if not self.index.batch.has("reward_R"):
            raise MissingSignal(
                "these rollouts have no `reward`",
                code="ACC401",
                hint="Give `reward`, or say outcome='ignore' to credit step rewards alone",
            )
        return self.index.scored_R

    @cached_property
    def cut_off_R(self) -> BoolArray:
        """Rollouts that were cut off ``[R]``: truncated, or said not to have terminated."""
        column = self.index.batch.columns.get("terminated_R")
        if column is None:
            return self.index.has_status("truncated")
        there, flags = column.mask(len(self.index.batch)), column.decoded().astype(bool)
        found: BoolArray = (self.index.has_status("truncated") & ~(there & flags)) | (there & ~flags)
        return found

    @cached_property
    def unknown_end_R(self) -> BoolArray:
        """Credited rollouts with steps that were cut off, without a value of their end ``[R]``."""
        column = self.index.batch.columns.get("final_value_R")
        unknown = self.cut_off_R & self.credited_R & (self.index.steps_R > 0)
        return unknown if column is None else unknown & ~column.mask(len(self.index.batch))

    @cached_property
    def end_R(self) -> Floats:
        """Value after the last step ``[R]``: ``final_value`` where cut off, else 0."""
        column = self.index.batch.columns.get("final_value_R")
        if column is None:
            return np.zeros(len(self.index.batch))
        return np.where(self.cut_off_R & column.mask(len(self.index.batch)), column.values, 0.0)

    @cached_property
    def reward_S(self) -> Floats:
        """Step rewards ``[S]``, with the outcome by the reward convention unless it is ignored."""
        return self.index.paid_S if self.params.outcome == "ignore" else self.index.reward_S

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What the user should know about the ends."""
        n = int(self.unknown_end_R.sum())
        if not n:
            return ()
        done = (
            "V = 0 after them" if self.params.truncation == "terminal" else "no surprise in their last step"
        )
        first = self.index.batch.ids[int(np.flatnonzero(self.unknown_end_R)[0])]
        return (
            Finding(
                "ACC421",
                "warning",
                f"{n} truncated rollouts have no final_value: {done}",
                f"rollout {first!r}",
                "Give final_value, the value of the state after the last step",
                n,
            ),
        )


@dataclass(frozen=True)
class Chain:
    """Units in order (steps or policy tokens of all rollouts), and what TD needs of them.

    Args:
        setting: which rollouts get credit, and their ends.
        start_R1: offsets of each rollout's units.
        reward: ``[U]``.
        value: ``[U]``, V before each unit; 0 where absent.
        there: units that have a value ``[U]``.
        unit: what a unit is called.
    """

    setting: Setting
    start_R1: Ints
    reward: Floats
    value: Floats
    there: BoolArray
    unit: str = "step"

    @cached_property
    def rollout(self) -> Ints:
        """Rollout of each unit ``[U]``."""
        return np.repeat(np.arange(self.start_R1.size - 1), np.diff(self.start_R1))

    @cached_property
    def credited(self) -> BoolArray:
        """Units of rollouts that get credit ``[U]``."""
        return self.setting.credited_R[self.rollout]

    @cached_property
    def absent(self) -> Ints:
        """Credited units without a value."""
        return np.flatnonzero(self.credited & ~self.there)

    def filled(self, gamma: float | Floats) -> Floats:
        """Return the values with gaps filled as ``missing`` says ``[U]``.

        Args:
            gamma: discount, one or a unit.

        Raises:
            DataError: naming the first credited unit without a value, where ``missing`` is error.
        """
        if not self.absent.size:
            return self.value
        how = self.setting.params.missing
        if how == "carry-back":
            return self.carried_back(gamma)
        if how == "interpolate":
            return self._interpolated()
        u = int(self.absent[0])
        r = int(self.rollout[u])
        raise DataError(
            f"{self.absent.size} {self.unit}s have no value (absent or not finite)",
            code="ACC420",
            where=f"rollout {self.setting.index.batch.ids[r]!r} {self.unit} {u - int(self.start_R1[r])}",
            hint="Give `value` (or `token_values`), or say missing='carry-back' or 'interpolate'",
        )

    def carried_back(self, gamma: float | Floats) -> Floats:
        """Return the values, an absent one being ``r_t + gamma V_{t+1}``: no surprise there ``[U]``."""
        factor = np.broadcast_to(np.asarray(gamma, np.float64), self.value.shape)
        rows, last = last_of_row(self.start_R1)
        after = np.zeros_like(self.value)
        after[last] = self.setting.end_R[rows]
        known = np.where(self.there, self.value, self.reward + factor * after)
        return discounted_sum(known, self.start_R1, np.where(self.there, 0.0, factor))

    def _interpolated(self) -> Floats:
        """Values linear between known neighbours, the end counting as known; flat before the first."""
        # One axis for all rollouts: each has its units, then its end.
        at = np.arange(self.value.size) + self.rollout
        heads = self.start_R1[:-1] + np.arange(self.start_R1.size - 1)
        ends = self.start_R1[1:] + np.arange(self.start_R1.size - 1)
        knots = np.concatenate([at[self.there], ends])
        heights = np.concatenate([self.value[self.there], self.setting.end_R])
        order = np.argsort(knots)
        knots, heights = knots[order], heights[order]
        first = np.searchsorted(knots, heads)
        bare = knots[first] > heads
        knots = np.insert(knots, first[bare], heads[bare])
        heights = np.insert(heights, first[bare], heights[first[bare]])
        found: Floats = np.where(self.there, self.value, np.interp(at, knots, heights))
        return found


@dataclass(frozen=True)
class Scan:
    """``A_t = delta_t + carry_t A_{t+1}`` with ``delta_t = r_t + gamma_t V_{t+1} - V_t``.

    Args:
        chain: the units.
        gamma: discount of the value that follows, one or a unit ``[U]``.
        carry: share of the later credit, one or a unit ``[U]``.
        value: V in use ``[U]``, gaps filled.
    """

    chain: Chain
    gamma: float | Floats
    carry: float | Floats
    value: Floats

    @classmethod
    def of(cls, chain: Chain, gamma: float | Floats, carry: float | Floats) -> Scan:
        """Return the scan of a chain, its gaps filled."""
        return cls(chain, gamma, carry, chain.filled(gamma))

    @cached_property
    def following(self) -> Floats:
        """V of each unit's successor ``[U]``; after the last one the value of the end."""
        return shifted(self.value, self.chain.start_R1, self.chain.setting.end_R)

    @cached_property
    def surprise(self) -> Floats:
        """TD errors ``[U]``, reward units; 0 in rollouts without credit."""
        found = self.chain.reward + self.gamma * self.following - self.value
        setting = self.chain.setting
        if setting.params.truncation == "drop":
            rows, last = last_of_row(self.chain.start_R1)
            found[last[setting.unknown_end_R[rows]]] = 0.0
        return np.where(self.chain.credited, found, 0.0)

    @cached_property
    def advantage(self) -> Floats:
        """A ``[U]``."""
        if not np.any(self.carry):
            return self.surprise
        return discounted_sum(self.surprise, self.chain.start_R1, self.carry)

    @cached_property
    def later(self) -> Floats:
        """What each unit gets of the credit after it ``[U]``: ``carry_t A_{t+1}``."""
        return self.carry * shifted(
            self.advantage, self.chain.start_R1, np.zeros(self.chain.start_R1.size - 1)
        )

    @cached_property
    def returns(self) -> Floats:
        """``A_t + V_t`` ``[U]``: the critic's TD(lambda) target; 0 in rollouts without credit."""
        return np.where(self.chain.credited, self.advantage + self.value, 0.0)

    @property
    def fallbacks(self) -> dict[str, int]:
        """How many values were filled in, and how many ends had none."""
        return {
            "missing_value": int(self.chain.absent.size),
            "unknown_end": int(self.chain.setting.unknown_end_R.sum()),
        }

    def explain(self, method: str, s: int, more: tuple[Term, ...] = ()) -> Explanation:
        """Return the arithmetic of step s; the scan must be over steps."""
        index = self.chain.setting.index
        r = int(self.chain.rollout[s])
        terms = (*self._terms(s, r), *more)
        notes = () if self.chain.there[s] else ("its value is filled in",)
        if not self.chain.credited[s]:
            notes = ("unscored or rejected: no credit",)
        value = sum(term.value for term in terms)
        return Explanation(method, *index.place_of(s), value, terms, notes)

    def _terms(self, s: int, r: int) -> tuple[Term, ...]:
        gamma, carry = _at(self.gamma, s), _at(self.carry, s)
        inputs = {
            "r": self.chain.reward[s],
            "gamma": gamma,
            "next": self.following[s],
            "value": self.value[s],
        }
        shown = {name: float(number) for name, number in inputs.items()}
        text = "reward {r:.6g} + gamma {gamma:.6g} x next value {next:.6g} - value {value:.6g}".format(
            **shown
        )
        if self.surprise[s] == 0:
            text += " [no surprise]"
        first = Term("surprise", float(self.surprise[s]), text, shown)
        end = int(self.chain.start_R1[r + 1])
        if not carry or s + 1 == end:
            return (first,)
        nearby = slice(int(self.chain.start_R1[r]), end)
        members = tuple(
            Member(
                self.chain.setting.index.batch.ids[r], float(self.surprise[u]), u - nearby.start, "surprise"
            )
            for u in range(s + 1, end)
        )
        after = float(self.advantage[s + 1])
        text = f"carry {carry:.6g} x credit of the next step {after:.6g}"
        return first, Term(
            "later", float(self.later[s]), text, {"carry": carry, "next_credit": after}, members
        )


def _at(value: float | Floats, s: int) -> float:
    return float(value[s]) if isinstance(value, np.ndarray) else value


def step_chain(setting: Setting) -> Chain:
    """Return the chain of steps: V from ``value``, else from the step's first policy token."""
    index = setting.index
    batch = index.batch
    if batch.has("value_S"):
        column = batch.column("value_S")
        value, there = np.asarray(column.values, np.float64), column.mask(batch.n_steps)
    else:
        value, there = first_token_value(index)
    return Chain(setting, batch.step_start_R1, setting.reward_S, value, there)


def first_token_value(index: Index) -> tuple[Floats, BoolArray]:
    """Return V of each step's first policy token ``[S]``, and which steps have one."""
    column = index.batch.column("token_value_T")
    there = column.mask(index.batch.n_steps) & (index.tokens_S > 0)
    value = np.zeros(index.batch.n_steps)
    value[there] = column.values[index.batch.token_start_S1[:-1][there]]
    return value, there
