"""Terminal views with rich: the waterfall in eighth-blocks, the matrix as shaded cells.

Rollout text is stripped of control characters and never read as markup. At most one screen; then
``… 12 more``. Colour only on a terminal, never under ``NO_COLOR`` (rich sees to both).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.cells import set_cell_size
from rich.text import Text

from accredit.views.colour import glyph, ink, magnitude, shade
from accredit.views.matrix import GroupMatrix, matrix_of
from accredit.views.plain import shorten, visible
from accredit.views.turns import Turn, Waterfall, waterfall_of

if TYPE_CHECKING:
    from rich.console import Console

    from accredit.data import Credit, Explanation

__all__ = ["show_explanation", "show_matrix", "show_waterfall"]

_EIGHTHS = " ▏▎▍▌▋▊▉█"
# Middle steps of the house scale: they read on black and on white.
_UP, _DOWN = "#4393C3", "#E08214"
_FOOT = 6


def show_waterfall(console: Console, credit: Credit, rollout: str, *, every: bool = False) -> None:
    """Print how a rollout's credit comes about, turn by turn.

    Args:
        console: where to.
        credit: the result.
        rollout: its id.
        every: print all turns, not only a screen of them.

    Raises:
        DataError: if there is no such rollout.
    """
    fall = waterfall_of(credit, rollout)
    console.print(Text(fall.sentence, style="bold"))
    console.print(Text(fall.check, style="dim"))
    shown = fall.turns if every else fall.turns[: _room(console)]
    for line in _waterfall_lines(fall, shown, console.width):
        console.print(line, no_wrap=True, overflow="crop")
    _more(console, len(fall.turns) - len(shown), "turns, pipe the output to see all")


def show_matrix(console: Console, credit: Credit, group: str) -> None:
    """Print a group: rows rollouts by reward, columns steps, cells shaded by credit with ▲ ▼.

    Args:
        console: where to.
        credit: the result.
        group: its name.

    Raises:
        DataError: if there is no such group.
    """
    matrix = matrix_of(credit, group)
    console.print(Text(matrix.sentence, style="bold"))
    console.print(
        Text(
            f"credit of {matrix.method}; colour ends at ±{matrix.end:.3g}; ' = same state as in another row",
            style="dim",
        )
    )
    rows = matrix.rows[: _room(console)]
    for line in _matrix_lines(matrix, len(rows), console.width):
        console.print(line, no_wrap=True, overflow="crop")
    _more(console, len(matrix.rows) - len(rows), "rollouts, use --rollout")


def show_explanation(console: Console, explanation: Explanation, max_members: int = 12) -> None:
    """Print the comparison set and the arithmetic behind one credit.

    Args:
        console: where to.
        explanation: of one step.
        max_members: members of each comparison set to list.
    """
    first, *rest = visible(explanation.text(max_members)).split("\n")
    console.print(Text(first, style="bold"))
    for line in rest:
        console.print(Text(line), soft_wrap=True)


def _waterfall_lines(fall: Waterfall, turns: Sequence[Turn], width: int) -> Iterable[Text]:
    label = max(12, min(34, width // 3))
    room = max(width - label - 5 - 12, 10)
    low, high = fall.span()
    for turn in turns:
        line = Text(f"{turn.step:>4} ")
        line.append(_cells(turn.action, label))
        line.append_text(_bar(turn.before, turn.after, low, high, room))
        line.append(f" {glyph(turn.credit)} {turn.credit:+.3g}")
        yield line
    if fall.residual:
        line = Text("     ") + Text(_cells("residual", label))
        line.append_text(_bar(fall.end, fall.end + fall.residual, low, high, room, hatched=True))
        yield line + Text(f"   {fall.residual:+.3g}")
    name = "sum of credit" if fall.goal is None else "R, what it was paid"
    at = fall.end if fall.goal is None else fall.goal
    line = Text("     ") + Text(_cells(name, label))
    line.append_text(_mark(at, low, high, room))
    yield line + Text(f"   {at:+.3g}" if fall.goal is None else f"   {at:.3g}")


def _bar(a: float, b: float, low: float, high: float, room: int, *, hatched: bool = False) -> Text:
    """A bar from a to b in eighths of a cell; the zero column is drawn where the bar leaves it free."""
    unit = 8 * room / (high - low)
    left, right = sorted((round((a - low) * unit), round((b - low) * unit)))
    right = max(right, min(left + 1, 8 * room))
    left = min(left, right - 1)
    zero = min(int((0 - low) * unit) // 8, room - 1)
    colour = _UP if b > a else _DOWN
    line = Text()
    for cell in range(room):
        start, stop = max(left - 8 * cell, 0), min(right - 8 * cell, 8)
        if stop <= 0 or start >= 8:
            line.append("│" if cell == zero else " ", style="dim")
        elif hatched:
            line.append("░")
        elif start == 0:
            line.append(_EIGHTHS[stop], style=colour)
        else:
            line.append(_begin(start, stop), style=colour)
    return line


def _begin(start: int, stop: int) -> str:
    """Where a bar begins inside a cell: blocks grow from the left, so the nearest of █ ▐ or a sliver."""
    if stop < 8:
        return _EIGHTHS[stop - start]
    return "█" if start < 3 else "▐" if start < 7 else "▕"


def _mark(at: float, low: float, high: float, room: int) -> Text:
    place = min(int((at - low) / (high - low) * room), room - 1)
    zero = min(int((0 - low) / (high - low) * room), room - 1)
    return Text("".join("┃" if c == place else "│" if c == zero else " " for c in range(room)))


def _matrix_lines(matrix: GroupMatrix, n_rows: int, width: int) -> Iterable[Text]:
    label = 20
    columns = max((width - label - 8) // 3, 1)
    longest = max((len(r.credit) for r in matrix.rows), default=0)
    head = Text(" " * (label + 8), style="dim")
    head.append("".join(f"{t:>2} " if t % 5 == 0 else "   " for t in range(min(longest, columns))))
    yield head
    for row in matrix.rows[:n_rows]:
        reward = "none" if row.reward is None else f"{row.reward:.3g}"
        line = Text(f"{_cells(row.rollout, label)}{reward:>6}  ")
        for value, shared in zip(row.credit[:columns], row.shared, strict=False):
            k = magnitude(float(value), matrix.end)
            line.append(f"{glyph(float(value))}{chr(39) if shared else ' '}", style=f"{ink(k)} on {shade(k)}")
            line.append(" ")
        if len(row.credit) > columns:
            line.append(f"+{len(row.credit) - columns}")
        yield line


def _cells(words: str, width: int) -> str:
    """Words cut and padded to a number of terminal cells: a CJK letter takes two."""
    return set_cell_size(shorten(words, width - 1), width - 1) + " "


def _room(console: Console) -> int:
    """Rows that fit on one screen; everything where the output is a file or a pipe."""
    return max(console.height - _FOOT, 8) if console.is_terminal else 10**9


def _more(console: Console, left_out: int, what: str) -> None:
    if left_out > 0:
        console.print(Text(f"… {left_out} more {what}", style="dim"))
