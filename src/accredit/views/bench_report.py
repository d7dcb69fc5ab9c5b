"""The report of a benchmark: one static HTML file, no script, no request."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from accredit.views.bench_pictures import calibration_picture, leaderboard_picture
from accredit.views.plain import one_line

__all__ = ["report_html"]

_STYLE = (
    "body{font:15px system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;font-size:12px}"
    "td,th{padding:2px 6px;text-align:right;border:1px solid #ddd}"
    "th{font-weight:600}.grid{display:flex;flex-wrap:wrap;gap:8px}svg{max-width:100%;height:auto}"
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def report_html(document: Mapping[str, Any]) -> str:
    """Return leaderboards, method against method, and calibration to the truth as one page.

    Args:
        document: ``Bench.to_dict()``.
    """
    scale = document["plan"]["scale"]
    head = (
        f"{scale['seeds']} task seeds a family, {scale['groups']} groups a task, "
        f"{document['cells']:,} measurements; version {document['plan']['version']}"
    )
    body = [
        "<h1>Credit against exact truth</h1>",
        f"<p>{_safe(head)}</p>",
        *(_section(board) for board in document["boards"] if any(_scored(r) for r in board["rows"])),
        _duels(document["duels"]),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Credit benchmark</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _scored(row: Mapping[str, Any]) -> bool:
    return "nmse" in row["metrics"]


def _section(board: Mapping[str, Any]) -> str:
    name = f"{board['family']}, {board['setting']}"
    pictures = [p for row in board["rows"] if (p := calibration_picture(row)) is not None]
    calibrated = f"<h3>Calibration to the truth</h3><div class=grid>{''.join(pictures)}</div>"
    return f"<h2>{_safe(name)}</h2>{leaderboard_picture(board)}{_numbers(board)}" + (
        f"<details><summary>Calibration</summary>{calibrated}</details>" if pictures else ""
    )


def _numbers(board: Mapping[str, Any]) -> str:
    """The numbers behind the picture."""
    names = [n for n in ("nmse", "tau", "sign", "useful", "auroc", "gradient") if _any(board, n)]
    head = "".join(f"<th>{_safe(n)}</th>" for n in ("method", *names))
    rows = ""
    for row in board["rows"]:
        found = [row["metrics"].get(name) for name in names]
        cells = "".join(f"<td>{'-' if f is None else format(f['value'], '.3f')}</td>" for f in found)
        rows += f"<tr><th>{_safe(row['method'])}</th>{cells}</tr>"
    return f"<details><summary>Numbers</summary><table><tr>{head}</tr>{rows}</table></details>"


def _any(board: Mapping[str, Any], name: str) -> bool:
    return any(name in row["metrics"] for row in board["rows"])


def _duels(duels: Mapping[str, Mapping[str, int]]) -> str:
    if not duels:
        return ""
    names = sorted({*duels, *(m for won in duels.values() for m in won)}, key=lambda m: -_won(duels, m))
    head = "".join(f"<th>{_safe(n)}</th>" for n in ("nearer / farther", *names))
    rows = ""
    for a in names:
        cells = "".join(f"<td>{duels.get(a, {}).get(b, 0) or '·'}</td>" for b in names)
        rows += f"<tr><th>{_safe(a)}</th>{cells}</tr>"
    return (
        "<h2>Method against method</h2><p>In how many families the method of the row is nearer to the truth "
        "than that of the column: plain setting, 5 % level after Holm over all pairs of a family.</p>"
        f"<table><tr>{head}</tr>{rows}</table>"
    )


def _won(duels: Mapping[str, Mapping[str, int]], method: str) -> int:
    return sum(duels.get(method, {}).values()) - sum(won.get(method, 0) for won in duels.values())


def _safe(words: str) -> str:
    return html.escape(one_line(words))
