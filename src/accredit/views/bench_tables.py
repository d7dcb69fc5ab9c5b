"""Leaderboards as tables, from their JSON-ready fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accredit.views.tables import Line, Table, number, plain, signed

__all__ = ["bench_blocks", "bench_text", "estimate_cell", "megabytes"]

# Columns of a leaderboard: measure, heading.
_SHOWN = (("tau", ">tau"), ("sign", ">sign"), ("useful", ">useful in failure"), ("gradient", ">gradient cos"))
_COUNTED = (
    ("continuations", ">continuations"),
    ("scored_tokens", ">scored tokens"),
    ("judge_calls", ">judge calls"),
    ("annotator_calls", ">annotator calls"),
)


def bench_text(document: Mapping[str, Any]) -> str:
    """Return a benchmark as plain text (see `bench_blocks`)."""
    return plain(bench_blocks(document))


def bench_blocks(document: Mapping[str, Any]) -> list[Table | Line]:
    """Return one table a family and setting, then what the columns mean.

    Args:
        document: ``Bench.to_dict()``.
    """
    scale = document["plan"]["scale"]
    blocks: list[Table | Line] = [
        Line(
            f"{scale['seeds']} task seeds, {scale['groups']} groups a task, {document['cells']:,} cells, "
            f"{document['seconds']:.0f} s",
            "bold",
        )
    ]
    for board in document["boards"]:
        blocks += [Line(""), _board(board)]
        lacking = [row for row in board["rows"] if row["unable"]]
        if lacking:
            said = "; ".join(f"{row['method']}: {row['unable']}" for row in lacking)
            blocks.append(Line(f"could not run: {said}"))
    blocks += [Line(""), *map(Line, _LEGEND)]
    return blocks


_LEGEND = (
    "NMSE: squared error after the best scale, over that of no credit; 0 is the truth. tau: Kendall's tau-b",
    "within a rollout. useful in failure: good steps of failed rollouts with credit above 0. 95 % intervals",
    "by a bootstrap over task seeds. tie: methods of one number cannot be separated from the first of them.",
    "vs grpo: NMSE minus grpo's on the same tasks; better or worse where it differs from 0 at the 5 % level,",
    "corrected (Holm) for the number of methods. Cost is what the signals would cost, a task.",
    "MB: most memory that the arithmetic held at once, on the first task.",
)


def _board(board: Mapping[str, Any]) -> Table:
    rows = [_cells(row) for row in board["rows"] if not row["unable"]]
    ran = [row for row in board["rows"] if not row["unable"]]
    used = [(name, title) for name, title in _COUNTED if any(row["cost"].get(name) for row in ran)]
    columns = ["method", ">tie", ">NMSE", "95 %", *(title for _, title in _SHOWN), ">vs grpo", ""]
    columns += [title for _, title in used] + [">ms", ">MB"]
    full = [
        [
            *cells,
            *(_count(row["cost"].get(name, 0.0)) for name, _ in used),
            _milliseconds(row),
            megabytes(row),
        ]
        for cells, row in zip(rows, ran, strict=True)
    ]
    skipped = f"; truth 0 on {board['skipped']} seeds, skipped" if board["skipped"] else ""
    rate = board["success_rate"]
    rated = "" if rate is None else f"; success rate {rate:.2f}"
    return Table(f"{board['family']}, {board['setting']}{rated}{skipped}", columns, full)


def _cells(row: Mapping[str, Any]) -> list[str]:
    versus = row["versus"]
    return [
        row["method"],
        "-" if row["tie"] is None else str(row["tie"]),
        *estimate_cell(row["metrics"].get("nmse")),
        *(estimate_cell(row["metrics"].get(name))[0] for name, _ in _SHOWN),
        "-" if versus is None else signed(round(versus["value"], 3)),
        row["verdict"] if row["verdict"] in ("better", "worse") else "",
    ]


def estimate_cell(found: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return a number with two decimals and its interval; "-" where undefined."""
    if found is None:
        return "-", "-"
    value = f"{found['value']:.2f}"
    return value, "-" if found["low"] is None else f"{found['low']:.2f} to {found['high']:.2f}"


def _milliseconds(row: Mapping[str, Any]) -> str:
    return "-" if row["reference"] else number(1000 * row["seconds"], 3)


def megabytes(row: Mapping[str, Any]) -> str:
    """Return the peak memory of an assignment in 10^6 bytes; "-" where it was not watched."""
    held = row.get("memory")
    return "-" if held is None else f"{held / 1e6:.1f}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value else "0"
