"""Tables for terminals: rich on a terminal, aligned plain text with the same columns elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO, TypeAlias
from unicodedata import combining, east_asian_width

from accredit.views.plain import one_line, shorten, visible

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Blocks", "Line", "Table", "estimated", "number", "plain", "share", "show", "signed"]

WIDEST = 60  # characters of a cell that holds somebody's text


@dataclass(frozen=True, slots=True)
class Line:
    """Text of one or more lines. ``style`` is rich's, used on a terminal only."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns.

    Args:
        title: a sentence or a noun; "" = none.
        columns: names; one that begins with ``>`` is right-aligned (the mark is not shown).
        rows: cells as text, made harmless when shown.
        widest: characters of a cell before it is cut.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    widest: int = WIDEST

    def names(self) -> list[str]:
        """Return the column names without marks."""
        return [c.removeprefix(">") for c in self.columns]

    def cells(self) -> list[list[str]]:
        """Return the rows as harmless single-line text."""
        return [[shorten(one_line(cell), self.widest) for cell in row] for row in self.rows]


Blocks: TypeAlias = Iterable[Table | Line]


def signed(value: float) -> str:
    """Return a credit with its sign, four digits.

    Example:
        >>> signed(0.25), signed(-1234567.0), signed(0.0)
        ('+0.25', '-1.235e+06', '0')
    """
    return f"{value:+.4g}" if value else "0"


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with some digits, whole numbers with thousands marks; "-" for None."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.{digits}g}"


def estimated(found: Mapping[str, float | None] | None) -> tuple[str, str]:
    """Return an estimate and its 95 % interval, three digits; "-" where undefined.

    Args:
        found: ``value``, ``low`` and ``high``.

    Example:
        >>> estimated({"value": 0.5, "low": 0.25, "high": 0.75}), estimated(None)
        (('0.500', '0.250 to 0.750'), ('-', '-'))
    """
    if found is None:
        return "-", "-"
    low, high = found["low"], found["high"]
    return f"{found['value']:.3f}", "-" if low is None or high is None else f"{low:.3f} to {high:.3f}"


def share(value: float | None) -> str:
    """Return a share as per cent: never 0 % for something, never 100 % for less than all.

    Example:
        >>> share(0.5), share(0.0004), share(0.9999), share(1.0), share(None)
        ('50 %', '<1 %', '>99 %', '100 %', '-')
    """
    if value is None:
        return "-"
    if 0 < value < 0.005:
        return "<1 %"
    if 0.995 <= value < 1:
        return ">99 %"
    return f"{100 * value:.0f} %"


def plain(blocks: Blocks) -> str:
    """Return blocks as plain text: columns two spaces apart, as wide as their widest cell.

    Example:
        >>> print(plain([Table("", ("id", ">credit"), [("r1", "+0.5"), ("r10", "-1")])]))
        id   credit
        r1     +0.5
        r10      -1
    """
    return "\n".join("\n".join(_plain_block(block)) for block in blocks)


def _plain_block(block: Table | Line) -> list[str]:
    if isinstance(block, Line):
        return [visible(block.text)]
    names, cells = block.names(), block.cells()
    widths = [max(_width(row[c]) for row in (names, *cells)) for c in range(len(names))]
    right = [c.startswith(">") for c in block.columns]
    lines = [visible(block.title)] if block.title else []
    for row in (names, *cells):
        padded = [
            " " * (width - _width(cell)) + cell if r else cell + " " * (width - _width(cell))
            for cell, width, r in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


def _width(text: str) -> int:
    """Columns that a text takes: wide letters two, marks on a letter none."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def show(blocks: Blocks, file: TextIO | None = None) -> None:
    """Write blocks to a stream (standard output): tables on a terminal, plain text elsewhere.

    Colour obeys ``NO_COLOR`` and ``TERM=dumb``; cells are never read as markup.
    """
    out = file or sys.stdout
    if not out.isatty():
        for block in blocks:
            out.write(plain([block]) + "\n")
        return
    from rich.console import Console  # a piped run does without

    console = Console(file=out, highlight=False, markup=False, emoji=False)
    for block in blocks:
        _show_rich(console, block)


def _show_rich(console: Console, block: Table | Line) -> None:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    if isinstance(block, Line):
        console.print(Text(visible(block.text), style=block.style), soft_wrap=True)
        return
    table = RichTable(box=box.SIMPLE_HEAD, title=None, pad_edge=False, show_edge=False)
    for name, mark in zip(block.names(), block.columns, strict=True):
        right = mark.startswith(">")
        table.add_column(Text(name), justify="right" if right else "left", overflow="ellipsis", no_wrap=right)
    for row in block.cells():
        table.add_row(*(Text(cell, style=_sign_style(cell)) for cell in row))
    if block.title:
        console.print(Text(visible(block.title), style="bold"))
    console.print(table)


def _sign_style(cell: str) -> str:
    """Blue for plus and orange for minus, beside the sign that says the same."""
    try:
        float(cell)
    except ValueError:
        return ""
    return {"+": "#4393C3", "-": "#E08214"}.get(cell[:1], "")
