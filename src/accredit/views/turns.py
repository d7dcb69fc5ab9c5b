"""The numbers of a waterfall: what each turn moved, and whether the turns add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from accredit.views.numbers import number, signed
from accredit.views.plain import one_line
from accredit.views.scores import scores_of, starts_from_value
from accredit.views.sheet import Sheet, sheet_of

if TYPE_CHECKING:
    from accredit.data import Credit

__all__ = ["Turn", "Waterfall", "waterfall_of"]

_CLOSE = 1e-6


@dataclass(frozen=True, slots=True)
class Turn:
    """One step of a waterfall.

    Args:
        step: 0-based.
        action: what was done, one harmless line.
        before: running total before it.
        credit: what it moved.
        value: the V recorded before it, None where there is none.
    """

    step: int
    action: str
    before: float
    credit: float
    value: float | None

    @property
    def after(self) -> float:
        """Running total after the step."""
        return self.before + self.credit


@dataclass(frozen=True, slots=True)
class Waterfall:
    """A rollout's credit as a running total.

    Args:
        rollout: its id, one harmless line.
        method: label of the method.
        turns: in order.
        start: V(s0) for value methods, else 0.
        goal: what was paid, for value methods; None: the bars need not arrive anywhere.
        reward: the recorded outcome, None if unscored.
    """

    rollout: str
    method: str
    turns: tuple[Turn, ...]
    start: float
    goal: float | None
    reward: float | None

    @property
    def end(self) -> float:
        """Running total after the last turn."""
        return self.turns[-1].after if self.turns else self.start

    @property
    def residual(self) -> float:
        """What the bars do not explain: ``goal - end``; 0 without a goal, and within rounding."""
        if self.goal is None:
            return 0.0
        gap = self.goal - self.end
        return 0.0 if abs(gap) <= _CLOSE * max(abs(self.goal), abs(self.end), 1.0) else gap

    @property
    def sentence(self) -> str:
        """The finding: which turn decided most."""
        if not self.turns:
            return f"{self.rollout} has no step"
        top = max(self.turns, key=lambda t: abs(t.credit))
        if top.credit == 0:
            return f"{self.rollout}: no step got any credit"
        if len(self.turns) > 1 and len({t.credit for t in self.turns}) == 1:
            return f"{self.rollout}: every step got the same credit, {signed(top.credit)}"
        action = f" ({top.action[:48]})" if top.action else ""
        return f"Step {top.step}{action} decided {self.rollout} most: {signed(top.credit)}"

    @property
    def check(self) -> str:
        """The sum check as a sentence."""
        n = f"{len(self.turns)} turn{'' if len(self.turns) == 1 else 's'}"
        paid = "unscored" if self.reward is None else f"reward {number(self.reward)}"
        total = self.end - self.start
        if self.goal is None:
            return f"{n}, {paid}; credit of {self.method} sums to {signed(total)}"
        goal = f"R − V(s0) = {number(self.goal)} − {number(self.start)} = {signed(self.goal - self.start)}"
        if self.residual == 0:
            return f"{n}, {paid}; the bars add to {goal}"
        return f"{n}, {paid}; the bars add to {signed(total)}, but {goal}: residual {signed(self.residual)}"

    def span(self) -> tuple[float, float]:
        """Return the lowest and highest number that the picture must hold; zero is among them."""
        points = [0.0, self.start, self.end, *(t.before for t in self.turns)]
        points += [t.value for t in self.turns if t.value is not None]
        points += [self.goal] if self.goal is not None else []
        low, high = min(points), max(points)
        return (low, high) if high > low else (low - 1, high + 1)


def waterfall_of(credit: Credit, rollout: str) -> Waterfall:
    """Return the waterfall of one rollout.

    Raises:
        DataError: if there is no such rollout.
    """
    place = credit.batch.position(rollout)
    sheet = sheet_of(credit).pick_ids([place])
    return _waterfall(sheet, starts_from_value(sheet, 0))


def _waterfall(sheet: Sheet, value_method: bool) -> Waterfall:
    values, known = sheet.step_column("value_S")
    value_method = value_method and bool(known.size and known[0])
    reward, scored = sheet.rollout_column("reward_R")
    start = float(values[0]) if value_method else 0.0
    return Waterfall(
        one_line(sheet.ids[0]),
        sheet.labels[0],
        tuple(
            _turns(
                sheet,
                start,
                [float(v) if k and value_method else None for v, k in zip(values, known, strict=True)],
            )
        ),
        start,
        float(scores_of(sheet)[0]) if value_method else None,
        float(reward[0]) if scored[0] else None,
    )


def _turns(sheet: Sheet, start: float, values: Sequence[float | None]) -> list[Turn]:
    credit = sheet.credit_MS[0]
    before = start + np.concatenate([[0.0], np.cumsum(credit)])
    actions = sheet.texts("action")
    said = [one_line(actions.words[c])[:200] if c >= 0 else "" for c in actions.codes]
    return [Turn(t, said[t], float(before[t]), float(credit[t]), values[t]) for t in range(len(credit))]
