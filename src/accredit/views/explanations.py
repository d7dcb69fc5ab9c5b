"""Explanations computed ahead for the report: which steps, and in what form they travel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from accredit.errors import AccreditError
from accredit.typing import Floats, Ints
from accredit.views.plain import shorten, visible

if TYPE_CHECKING:
    from accredit.data import Explanation
    from accredit.views.sheet import Sheet

__all__ = ["explained_steps", "explanations"]

# Measured: 0.5 ms and 50 packed bytes an explanation (gigpo, groups of 16).
ALL_UP_TO = 8_000
DECISIVE = 4_000
MEMBERS = 40


def explained_steps(sheet: Sheet, also: set[int]) -> list[set[int]]:
    """Return the steps to explain of each method: all while that is cheap, else the decisive ones.

    Args:
        sheet: the results.
        also: steps that some picture links to; they are always explained.
    """
    everything = set(range(len(sheet.order_S)))
    if len(everything) * len(sheet.credits) <= ALL_UP_TO:
        return [everything for _ in sheet.credits]
    share = DECISIVE // len(sheet.credits)
    return [_decisive(row, sheet.rollout_S, share) | also for row in sheet.credit_MS]


def _decisive(credit: Floats, rollout_S: Ints, keep: int) -> set[int]:
    """Return steps of large |credit|: the largest of every rollout first, then the second …"""
    size = np.abs(credit)
    order = np.lexsort((-size, rollout_S))
    first = np.searchsorted(rollout_S, rollout_S)
    rank = np.empty(len(credit), int)
    rank[order] = np.arange(len(credit))
    rank -= first
    return {int(s) for s in np.lexsort((-size, rank))[:keep]}


def explanations(sheet: Sheet, m: int, steps: slice, wanted: set[int]) -> dict[str, Any]:
    """Return the explanations of one group by step of the group (text keys, as JSON has)."""
    out: dict[str, Any] = {}
    for step in sorted(wanted & set(range(steps.start, steps.stop))):
        rollout = int(sheet.rollout_S[step])
        try:
            told = sheet.credits[m].explain(sheet.ids[rollout], step - int(sheet.start_R1[rollout]))
        except AccreditError:
            continue  # A method without an explanation of this step: the page says "none".
        out[str(step - steps.start)] = _shipped(sheet, told)
    return out


def _shipped(sheet: Sheet, told: Explanation) -> dict[str, Any]:
    terms = [
        {
            "name": visible(t.name),
            "value": _number(t.value),
            "formula": visible(t.formula),
            "inputs": {visible(k): _number(v) for k, v in t.inputs.items()},
            "members": [_member(sheet, m) for m in t.members[:MEMBERS]],
            "more": max(len(t.members) - MEMBERS, 0),
        }
        for t in told.terms
    ]
    return {"value": _number(told.value), "terms": terms, "notes": [visible(n) for n in told.notes]}


def _member(sheet: Sheet, member: Any) -> list[Any]:
    """[sheet rollout or its name, step or None, value, note]."""
    place = sheet.place_of.get(member.rollout)
    name = shorten(visible(member.rollout), 80) if place is None else place
    return [name, member.step, _number(member.value), visible(member.note)]


def _number(value: float) -> float | str:
    """Seven digits; what is not finite goes as text, for JSON has no word for it."""
    value = float(value)
    return float(f"{value:.7g}") if np.isfinite(value) else str(value)
