"""Where a waterfall begins and what it must arrive at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from accredit.typing import Floats

if TYPE_CHECKING:
    from accredit.views.sheet import Sheet

__all__ = ["scores_of", "starts_from_value"]


def scores_of(sheet: Sheet) -> Floats:
    """Return outcome plus step rewards of each shown rollout, ``[R]`` in sheet order.

    ``total = reward + sum_t r_t``, the outcome counted once where the step rewards already contain
    it. A truncated rollout also gets the value of its final state where that is recorded: the
    value differences of its turns telescope to ``reward + V(final) - V(s0)``.
    """
    return sheet.remember("scores", lambda: _scores(sheet))


def _scores(sheet: Sheet) -> Floats:
    outcome, outcome_ok = sheet.rollout_column("reward_R")
    step, step_ok = sheet.step_column("reward_S")
    paid = np.bincount(sheet.rollout_S, np.where(step_ok, step, 0), minlength=len(sheet.ids))
    has_steps = np.bincount(sheet.rollout_S, step_ok, minlength=len(sheet.ids)) > 0
    inside = bool(sheet.credits[0].params.get("outcome_in_steps", sheet.batch.outcome_in_steps))
    total = np.where(outcome_ok & ~(inside & has_steps), outcome, 0) + paid
    final, final_ok = sheet.rollout_column("final_value_R")
    status = sheet.texts("status", "R")
    cut = np.array([word == "truncated" for word in status.words] + [False])[status.codes]
    return np.asarray(total + np.where(final_ok & cut, final, 0), float)


def starts_from_value(sheet: Sheet, m: int) -> bool:
    """Whether a method's credit moves a value function that is in the batch: V before -> V after."""
    needs = {name for need in sheet.credits[m].card.needs for name in str(need).split("|")}
    return sheet.batch.has("value_S") and "value" in needs
