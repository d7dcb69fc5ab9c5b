"""Results as JSON and Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from accredit.benchmark.leaderboard import COUNTERS, Board, Row
from accredit.metrics import MEASURES
from accredit.store.atomic import atomic_file

if TYPE_CHECKING:
    from accredit.benchmark.run import Bench

__all__ = ["put_section", "save"]


def save(found: Bench, folder: Path) -> Path:
    """Write ``leaderboard.json``, ``leaderboard.parquet``, ``cells.parquet`` and ``report.html``.

    Args:
        found: the results.
        folder: is made where it is missing.
    """
    from accredit.views.bench_report import report_html  # pictures come last

    document = found.to_dict()
    with atomic_file(folder / "leaderboard.json") as out:
        out.write(json.dumps(document, indent=1, allow_nan=False).encode() + b"\n")
    with atomic_file(folder / "report.html") as out:
        out.write(report_html(document).encode())
    _table(folder / "cells.parquet", [_cell(c.to_dict()) for c in found.cells])
    rows = [_row(board, row) for board in found.boards for row in board.rows]
    _table(folder / "leaderboard.parquet", rows)
    return folder


def put_section(path: str | Path, section: str) -> Path:
    """Put a marked section into the page of results, which is made where it is missing.

    Args:
        path: ends in ``.md``.
        section: from `accredit.views.sections.section`.

    Raises:
        StoreError: if it cannot be written.
    """
    from accredit.views.sections import with_sections  # pictures come last

    page = Path(path)
    before = page.read_text(encoding="utf-8") if page.exists() else "# Benchmark\n"
    with atomic_file(page) as out:
        out.write(with_sections(before, section).encode())
    return page


def _table(path: Path, rows: list[dict[str, Any]]) -> None:
    with atomic_file(path) as out:
        pq.write_table(pa.Table.from_pylist(rows), out)


def _cell(fields: dict[str, Any]) -> dict[str, Any]:
    """One flat row: a column a measure and a counter, null where undefined."""
    names = ("family", "setting", "seed", "method", "seconds", "memory", "unable")
    flat = {name: fields[name] for name in names}
    flat |= {name: _float(fields["metrics"].get(name)) for name in MEASURES}
    return flat | {name: int(fields["cost"].get(name, 0)) for name in COUNTERS}


def _row(board: Board, row: Row) -> dict[str, Any]:
    flat: dict[str, Any] = {
        "family": board.family,
        "setting": board.setting,
        "method": row.method,
        "n": row.n,
        "verdict": row.verdict,
        "tie": row.tie,
        "p": row.p,
        "difference": None if row.versus is None else row.versus.value,
        "seconds": row.seconds,
        "memory": row.memory,
        "unable": row.unable,
    }
    for name in MEASURES:
        found = row.metrics.get(name)
        flat[name] = None if found is None else found.value
        flat[f"{name}_low"] = None if found is None else found.low
        flat[f"{name}_high"] = None if found is None else found.high
    return flat | {name: _float(row.cost.get(name, 0.0)) for name in COUNTERS}


def _float(value: Any) -> float | None:
    return None if value is None else float(value)
