"""The group matrix: rows rollouts by reward, columns steps, cell = credit; its numbers and its SVG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from accredit.errors import DataError, suggest
from accredit.typing import BoolArray, Floats
from accredit.views.colour import STEPS, glyph, ink, magnitude, shade
from accredit.views.numbers import number, signed
from accredit.views.plain import one_line, shorten, visible
from accredit.views.sheet import Sheet, sheet_of
from accredit.views.svg import Picture, canvas, element, text

if TYPE_CHECKING:
    from accredit.data import Credit

__all__ = ["GroupMatrix", "Row", "draw_matrix", "matrix_of"]

CELL, ROW, TOP, LEFT, REWARD = 30, 24, 84, 150, 62
MOST_ROWS, MOST_STEPS = 64, 60
INK, MUTED = "#16181D", "#585F6B"


@dataclass(frozen=True, slots=True)
class Row:
    """One rollout of a matrix.

    Args:
        rollout: its id, one harmless line.
        reward: outcome, None if unscored.
        credit: ``[steps]``.
        shared: ``[steps]``, whether another rollout of the group visits the step's state.
    """

    rollout: str
    reward: float | None
    credit: Floats
    shared: BoolArray


@dataclass(frozen=True, slots=True)
class GroupMatrix:
    """A group's credit, best reward first.

    Args:
        group: its name, one harmless line.
        method: label of the method.
        rows: rollouts.
        end: where the colour scale ends (98th percentile of |credit| of the batch).
    """

    group: str
    method: str
    rows: tuple[Row, ...]
    end: float

    @property
    def sentence(self) -> str:
        """The finding: at which step better and worse rollouts part."""
        scored = [r for r in self.rows if r.reward is not None]
        rewards = np.array([r.reward for r in scored], float)
        if len(scored) < 2:
            return f"{self.group}: fewer than two scored rollouts, nothing to compare"
        if np.ptp(rewards) <= 1e-12 * np.abs(rewards).max():
            return f"{self.group}: all {len(scored)} rewards tie at {number(float(rewards[0]))}"
        better = [r for r, x in zip(scored, rewards, strict=True) if x > rewards.mean()]
        worse = [r for r, x in zip(scored, rewards, strict=True) if x <= rewards.mean()]
        return self._parting(better, worse)

    def _parting(self, better: list[Row], worse: list[Row]) -> str:
        def mean(rows: list[Row], t: int) -> tuple[float, int]:
            at = [float(r.credit[t]) for r in rows if t < len(r.credit)]
            return (sum(at) / len(at) if at else 0.0), len(at)

        longest = max((len(r.credit) for r in self.rows), default=0)
        steps = [(t, mean(better, t), mean(worse, t)) for t in range(longest)]
        # Late steps that few still play would win by chance alone.
        both = [s for s in steps if s[1][1] * 4 >= len(better) and s[2][1] * 4 >= len(worse)]
        if not both:
            return f"{self.group}: better and worse rollouts share no step"
        t, (a, n_a), (b, n_b) = max(both, key=lambda s: abs(s[1][0] - s[2][0]))
        if a == b:
            return f"{self.group}: better and worse rollouts get the same credit at every step"
        means = f"mean credit {signed(a)} (n = {n_a}) against {signed(b)} (n = {n_b})"
        return f"{self.group} parts most at step {t}: {means}"


def matrix_of(credit: Credit, group: str) -> GroupMatrix:
    """Return the matrix of one group.

    Raises:
        DataError: if there is no such group, naming the nearest.
    """
    sheet = sheet_of(credit)
    names, asked = list(sheet.names), visible(str(group))
    if asked not in names:
        raise DataError(f"no group {asked!r} among {len(names)}", code="ACC825", hint=suggest(asked, names))
    g = names.index(asked)
    end = sheet.domain_M[0]
    return _matrix(sheet.pick(np.flatnonzero(sheet.group_R == g)), end)


def draw_matrix(matrix: GroupMatrix) -> Picture:
    """Return the picture of a matrix; rows and steps past 64 and 60 are counted, not drawn."""
    rows = matrix.rows[:MOST_ROWS]
    longest = min(max((len(r.credit) for r in rows), default=0), MOST_STEPS)
    width = max(LEFT + REWARD + longest * CELL + 16, 760)
    head = [
        text(
            LEFT + REWARD + (t + 0.5) * CELL, TOP - 8, str(t), text_anchor="middle", font_size=11, fill=MUTED
        )
        for t in range(longest)
    ]
    head.append(text(LEFT + REWARD - 10, TOP - 8, "reward", text_anchor="end", font_size=11, fill=MUTED))
    body = [_row(r, TOP + i * ROW, matrix.end) for i, r in enumerate(rows)]
    note = (
        f"{len(matrix.rows)} rollouts by reward, best first; credit of {matrix.method}; "
        "◥ = same state as in another row"
    )
    y = TOP + len(rows) * ROW
    left_out = len(matrix.rows) - len(rows)
    foot = text(12, y + 18, f"… {left_out} more rollouts", fill=MUTED) if left_out else ""
    titles = text(
        12, 24, shorten(matrix.sentence, int(width / 8.6)), font_weight=650, font_size=16, fill=INK
    ) + text(12, 44, note, fill=MUTED)
    return canvas(
        width, y + 56, matrix.sentence, titles + "".join(head + body) + foot + _legend(y + 30, matrix.end)
    )


def _matrix(sheet: Sheet, end: float) -> GroupMatrix:
    reward, scored = sheet.rollout_column("reward_R")
    state = sheet.texts("state").codes
    shared = _shared(state, sheet)
    order = np.lexsort((np.arange(len(reward)), -np.where(scored, reward, -np.inf)))
    rows = []
    for r in order.tolist():
        steps = slice(int(sheet.start_R1[r]), int(sheet.start_R1[r + 1]))
        rows.append(
            Row(
                one_line(sheet.ids[r]),
                float(reward[r]) if scored[r] else None,
                sheet.credit_MS[0][steps],
                shared[steps],
            )
        )
    return GroupMatrix(one_line(sheet.names[0]), sheet.labels[0], tuple(rows), end)


def _shared(state: np.ndarray[tuple[int], np.dtype[np.int32]], sheet: Sheet) -> BoolArray:
    """Whether another rollout visits each step's state."""
    pairs = np.unique(np.stack([state, sheet.rollout_S], axis=1), axis=0)
    codes, rollouts = np.unique(pairs[:, 0], return_counts=True)
    many = codes[(rollouts > 1) & (codes >= 0)]
    return np.isin(state, many)


def _row(row: Row, y: float, end: float) -> str:
    reward = number(row.reward)
    cells = [
        text(12, y + 16, shorten(row.rollout, 20), fill=INK),
        text(LEFT + REWARD - 10, y + 16, reward, text_anchor="end", fill=INK),
    ]
    for t, value in enumerate(row.credit[:MOST_STEPS]):
        step = magnitude(float(value), end)
        x = LEFT + REWARD + t * CELL
        cells.append(
            element(
                "rect",
                x=x + 1,
                y=y + 1,
                width=CELL - 2,
                height=ROW - 2,
                rx=3,
                fill=shade(step),
                stroke="#DFE3E8",
            )
        )
        cells.append(
            text(
                x + CELL / 2, y + 16, glyph(float(value)), text_anchor="middle", font_size=11, fill=ink(step)
            )
        )
        if row.shared[t]:
            corner = f"M{x + CELL - 8} {y + 1}h7v7z"
            cells.append(element("path", d=corner, fill=ink(step)))
    return "".join(cells)


def _legend(y: float, end: float) -> str:
    boxes = [
        element("rect", x=90 + (k + STEPS) * 20, y=y, width=20, height=12, fill=shade(k), stroke="#DFE3E8")
        for k in range(-STEPS, STEPS + 1)
    ]
    right = 90 + 20 * (2 * STEPS + 1) + 8
    note = f"▲ {number(end)}   credit, clipped at its 98th percentile in the batch"
    return (
        text(82, y + 11, f"▼ {number(-end)}", text_anchor="end", fill=INK, font_size=12)
        + "".join(boxes)
        + text(right, y + 11, note, fill=INK, font_size=12)
    )
