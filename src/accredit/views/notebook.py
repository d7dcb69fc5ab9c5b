"""The static view of a result in a notebook: a table and a waterfall, no script, under 100 KB."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import numpy as np

from accredit.views.colour import domain, glyph, ink, magnitude, shade
from accredit.views.decisive import decisions, decisive
from accredit.views.numbers import signed
from accredit.views.plain import one_line, shorten
from accredit.views.turns import waterfall_of
from accredit.views.waterfall import draw_waterfall

if TYPE_CHECKING:
    from accredit.data import Credit

__all__ = ["notebook_html"]

TOP = 8
TURNS = 24
_TD = "padding:2px 10px 2px 0;text-align:left"


def notebook_html(credit: Credit) -> str:
    """Return a table of the most decisive steps and the waterfall of the first one's rollout.

    Args:
        credit: the result.

    Returns:
        HTML of at most 100 KB, all rollout text escaped.
    """
    batch = credit.batch
    defaults = {p.name: p.default for p in credit.card.params}
    params = ", ".join(f"{k}={v}" for k, v in credit.params.items() if k in defaults and v != defaults[k])
    size = f"{len(batch):,} rollouts, {batch.n_steps:,} steps, {batch.n_tokens:,} policy tokens"
    head = (
        f"<p><b>{_safe(credit.card.title, 120)}</b> ({_safe(credit.card.id, 60)})<br>{size}"
        f"<br><small>{_safe(params or 'default parameters', 300)}</small></p>"
    )
    if len(credit.steps) != batch.n_steps:
        return f"<div>{head}<p>This method gives a table, not a credit of each step: see .table</p></div>"
    top = _decisive(credit)
    if not top:
        return f"<div>{head}<p>All credit is zero.</p></div>"
    rollout = batch.ids[_rollout_of(credit, top[0])]
    picture = draw_waterfall(waterfall_of(credit, rollout), TURNS)
    return f"<div>{head}{_table(credit, top)}{picture}</div>"


def _decisive(credit: Credit) -> list[int]:
    batch = credit.batch
    rollout_S = np.repeat(np.arange(len(batch)), np.diff(batch.step_start_R1))
    same_S = decisions(batch, credit.steps)
    return [f.step for f in decisive(credit.steps, rollout_S, same_S, TOP)]


def _rollout_of(credit: Credit, step: int) -> int:
    return int(np.searchsorted(credit.batch.step_start_R1, step, side="right")) - 1


def _table(credit: Credit, steps: list[int]) -> str:
    end = domain(credit.steps)
    rows = "".join(_row(credit, s, end) for s in steps)
    heads = "".join(f'<th style="{_TD}">{h}</th>' for h in ("credit", "rollout", "step", "action"))
    caption = f"The {len(steps)} most decisive steps of {credit.batch.n_steps:,}"
    return f"<table><caption style='text-align:left'>{caption}</caption><tr>{heads}</tr>{rows}</table>"


def _row(credit: Credit, step: int, end: float) -> str:
    batch = credit.batch
    r = _rollout_of(credit, step)
    value = float(credit.steps[step])
    k = magnitude(value, end)
    colour = f"{_TD};padding-left:6px;background:{shade(k)};color:{ink(k)}"
    cells = [
        f'<td style="{colour}">{glyph(value)} {signed(value)}</td>',
        f'<td style="{_TD}">{_safe(batch.ids[r], 60)}</td>',
        f'<td style="{_TD}">{step - int(batch.step_start_R1[r])}</td>',
        f'<td style="{_TD}">{_safe(_action(credit, step), 90)}</td>',
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _action(credit: Credit, step: int) -> str:
    if not credit.batch.has("action_S"):
        return ""
    column = credit.batch.column("action_S")
    absent = column.valid is not None and not column.valid[step]
    return "" if absent else str(column.item(step))


def _safe(words: str, width: int) -> str:
    return html.escape(shorten(one_line(str(words)), width))
