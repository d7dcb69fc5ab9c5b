"""Pictures of a benchmark: a leaderboard as dots with intervals, calibration of one method to the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from accredit.views.svg import Picture, canvas, element, text

__all__ = ["calibration_picture", "leaderboard_picture"]

_ROW, _LEFT, _PLOT, _RIGHT, _TOP = 20, 120, 420, 150, 46
_INK, _GREY = "#222222", "#888888"
_COLOUR = {"better": "#2166AC", "worse": "#B35806"}
_GLYPH = {"better": "▲", "worse": "▼"}


def leaderboard_picture(board: Mapping[str, Any]) -> Picture:
    """Return one row a method: NMSE as a dot with its interval, the group of its ties, the verdict.

    Args:
        board: a board of ``Bench.to_dict()``.
    """
    rows = [row for row in board["rows"] if "nmse" in row["metrics"]]
    height = _TOP + _ROW * len(rows) + 40
    best = next((row["method"] for row in rows if row["tie"] == 1), "none")
    title = f"{board['family']}, {board['setting']}: {best} is nearest to the truth"
    body = text(10, 20, title, font_weight="bold") + _axis(height)
    for i, row in enumerate(rows):
        body += _leader(row, _TOP + _ROW * (i + 0.5))
    return canvas(_LEFT + _PLOT + _RIGHT, height, title, body)


def _axis(height: float) -> str:
    found = ""
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = _x(tick)
        found += element("line", x1=x, x2=x, y1=_TOP, y2=height - 36, stroke="#DDDDDD")
        found += text(x, height - 20, f"{tick:g}", text_anchor="middle", fill=_GREY, font_size=11)
    label = "NMSE: 0 = the truth, 1 = no credit; bars: 95 % over task seeds"
    return found + text(_LEFT, height - 5, label, fill=_GREY, font_size=11)


def _x(value: float) -> float:
    return _LEFT + _PLOT * min(1.05, max(0.0, value))


def _leader(row: Mapping[str, Any], y: float) -> str:
    found = row["metrics"]["nmse"]
    colour = _GREY if row["reference"] else _COLOUR.get(row["verdict"], _INK)
    body = text(_LEFT - 8, y + 4, row["method"], text_anchor="end", fill=colour)
    if found["low"] is not None:
        low, high = _x(found["low"]), _x(found["high"])
        body += element("line", x1=low, x2=high, y1=y, y2=y, stroke=colour, stroke_width=2)
    body += element("circle", cx=_x(found["value"]), cy=y, r=4, fill=colour)
    tie = "" if row["tie"] is None else f"  tie {row['tie']}"
    words = f"{found['value']:.2f} {_GLYPH.get(row['verdict'], '')}{tie}"
    return body + text(_LEFT + _PLOT + 28, y + 4, words, fill=colour, font_size=12)


_SIDE, _MARGIN, _SPAN = 240, 44, 2.5


def calibration_picture(row: Mapping[str, Any]) -> Picture | None:
    """Return binned credit against the mean truth of the same steps, with the line where they are equal.

    Args:
        row: of a board; its ``bins``.

    Returns:
        None where calibration was not looked at.
    """
    bins = row["bins"]
    if not bins:
        return None
    total = sum(b["n"] for b in bins)
    bias = sum(b["n"] * (b["said"] - b["true"]["value"]) for b in bins) / total
    title = f"{row['method']}: slope {_slope(bins):.2f}, bias {bias:+.2f}, n = {total:,}"
    body = text(6, 16, title, font_weight="bold", font_size=11)
    ends = [_at(-_SPAN), _at(_SPAN), _up(-_SPAN), _up(_SPAN)]
    body += element(
        "line", x1=ends[0], x2=ends[1], y1=ends[2], y2=ends[3], stroke="#BBBBBB", stroke_dasharray="4 3"
    )
    for axis in (_at, _up):
        body += _zero(axis)
    for b in bins:
        body += _point(b, total)
    label = "credit said (x), true (y), in rms of the truth"
    body += text(6, _SIDE + 2 * _MARGIN - 52, label, fill=_GREY, font_size=10)
    return canvas(_SIDE + _MARGIN, _SIDE + _MARGIN, title, body)


def _slope(bins: list[Mapping[str, Any]]) -> float:
    """Slope of truth on credit, bins weighed by their steps."""
    top = sum(b["n"] * b["said"] * b["true"]["value"] for b in bins)
    square = sum(b["n"] * b["said"] ** 2 for b in bins)
    return top / square if square else 0.0


def _at(value: float) -> float:
    return _MARGIN / 2 + _SIDE * (min(_SPAN, max(-_SPAN, value)) + _SPAN) / (2 * _SPAN)


def _up(value: float) -> float:
    return 24 + (_SIDE - 24) * (1 - (min(_SPAN, max(-_SPAN, value)) + _SPAN) / (2 * _SPAN))


def _zero(axis: Callable[[float], float]) -> str:
    if axis is _at:
        return element("line", x1=_at(0), x2=_at(0), y1=_up(-_SPAN), y2=_up(_SPAN), stroke="#DDDDDD")
    return element("line", x1=_at(-_SPAN), x2=_at(_SPAN), y1=_up(0), y2=_up(0), stroke="#DDDDDD")


def _point(b: Mapping[str, Any], total: int) -> str:
    x, true = _at(b["said"]), b["true"]
    body = ""
    if true["low"] is not None:
        body += element("line", x1=x, x2=x, y1=_up(true["low"]), y2=_up(true["high"]), stroke="#2166AC")
    body += element("circle", cx=x, cy=_up(true["value"]), r=3, fill="#2166AC")
    # The histogram below: how many steps say so.
    tall = 30 * b["n"] / total
    return body + element("rect", x=x - 4, y=_SIDE + 26 - tall, width=8, height=tall, fill="#92C5DE")
