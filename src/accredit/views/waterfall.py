"""The turn waterfall as SVG: how did V(s0) become R?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from accredit.views.colour import LIGHT, STEPS, glyph
from accredit.views.numbers import number, signed
from accredit.views.plain import shorten
from accredit.views.svg import Picture, canvas, element, text
from accredit.views.turns import Turn, Waterfall

__all__ = ["draw_waterfall"]

ROW, BAR, TOP = 26, 15, 78
ACTION, LEFT, PLOT, RIGHT = 40, 250, 420, 74
MOST = 60
INK, MUTED, LINE = "#16181D", "#585F6B", "#6B7280"
UP, DOWN = LIGHT[STEPS + 4], LIGHT[STEPS - 4]

_X = Callable[[float], float]


def draw_waterfall(fall: Waterfall, most: int = MOST) -> Picture:
    """Return the picture of a waterfall.

    Args:
        fall: its numbers.
        most: turns to draw; the rest is counted in a line.
    """
    turns = fall.turns[:most]
    low, high = fall.span()
    pad = (high - low) * 0.03

    def x(value: float) -> float:
        return LEFT + PLOT * (value - low + pad) / (high - low + 2 * pad)

    y_end = TOP + ROW * len(turns)
    body = [_axis(x, low, high, y_end), *(_row(t, TOP + ROW * i, x) for i, t in enumerate(turns))]
    left_out = len(fall.turns) - len(turns)
    y, foot = y_end, []
    if left_out:
        foot.append(text(ACTION, y + 17, f"… {left_out} more turns", fill=MUTED))
        y += ROW
    if fall.residual and not left_out:
        foot.append(_residual(fall, y, x))
        y += ROW
    foot.append(_end(fall, y, x))
    titles = [
        text(12, 24, shorten(fall.sentence, 84), font_weight=650, font_size=16, fill=INK),
        text(12, 44, shorten(fall.check, 110), fill=MUTED),
    ]
    return canvas(LEFT + PLOT + RIGHT, y + ROW + 10, fall.sentence, "".join([*titles, *body, *foot]))


def _axis(x: _X, low: float, high: float, bottom: float) -> str:
    ticks = _ticks(low, high)
    marks = [
        element("line", x1=x(v), x2=x(v), y1=TOP - 6, y2=TOP - 1, stroke=LINE)
        + text(x(v), TOP - 10, number(v, 4), text_anchor="middle", font_size=11, fill=MUTED)
        for v in ticks
    ]
    zero = element("line", x1=x(0), x2=x(0), y1=TOP - 6, y2=bottom + ROW, stroke=LINE, stroke_width=1.2)
    return "".join(marks) + zero


def _ticks(low: float, high: float) -> list[float]:
    raw = (high - low) / 5
    power = 10.0 ** np.floor(np.log10(raw))
    width = float(power * next(m for m in (1, 2, 5, 10) if m * power >= raw))
    first, last = int(np.ceil(low / width)), int(np.floor(high / width))
    return [k * width for k in range(first, last + 1)]


def _row(turn: Turn, y: float, x: _X) -> str:
    a, b = sorted((x(turn.before), x(turn.after)))
    fill = UP if turn.credit > 0 else DOWN if turn.credit < 0 else MUTED
    top = y + (ROW - BAR) / 2
    parts = [
        text(ACTION - 8, y + 17, str(turn.step), text_anchor="end", fill=MUTED, font_size=12),
        text(ACTION, y + 17, shorten(turn.action, 30), fill=INK),
        element("rect", x=a, y=top, width=max(b - a, 1.2), height=BAR, fill=fill, rx=2),
        element("line", x1=x(turn.after), x2=x(turn.after), y1=y + ROW / 2, y2=y + ROW * 1.5, stroke=LINE),
        text(
            LEFT + PLOT + RIGHT - 10,
            y + 17,
            f"{glyph(turn.credit)} {signed(turn.credit)}",
            text_anchor="end",
            fill=INK,
        ),
    ]
    if turn.value is not None:
        parts.append(
            element(
                "circle", cx=x(turn.value), cy=y + ROW / 2, r=3, fill="#FFFFFF", stroke=INK, stroke_width=1.6
            )
        )
    return "".join(parts)


def _residual(fall: Waterfall, y: float, x: _X) -> str:
    a, b = sorted((x(fall.end), x(fall.end + fall.residual)))
    stripes = element("line", x1=0, x2=0, y1=0, y2=6, stroke=INK, stroke_width=2)
    hatch = element(
        "defs",
        element(
            "pattern",
            stripes,
            id="hatch",
            width=6,
            height=6,
            patternUnits="userSpaceOnUse",
            patternTransform="rotate(45)",
        ),
    )
    return hatch + "".join(
        [
            text(ACTION, y + 17, "residual", fill=INK),
            element("rect", x=a, y=y + 6, width=max(b - a, 1.2), height=BAR, fill="url(#hatch)", stroke=INK),
            text(LEFT + PLOT + RIGHT - 10, y + 17, signed(fall.residual), text_anchor="end", fill=INK),
        ]
    )


def _end(fall: Waterfall, y: float, x: _X) -> str:
    at = fall.end if fall.goal is None else fall.goal
    name = "sum of credit" if fall.goal is None else "R, what it was paid"
    amount = signed(at) if fall.goal is None else number(at)
    return "".join(
        [
            text(ACTION, y + 19, name, fill=INK, font_weight=650),
            element("line", x1=x(at), x2=x(at), y1=y + 4, y2=y + ROW, stroke=INK, stroke_width=3),
            text(LEFT + PLOT + RIGHT - 10, y + 19, amount, text_anchor="end", fill=INK, font_weight=650),
        ]
    )
