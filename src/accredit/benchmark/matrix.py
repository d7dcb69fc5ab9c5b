"""Which method cannot run on which family, and why: what was found, and what is expected.

``python -m accredit.benchmark.matrix`` writes the expectation anew; a test compares it with what is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from accredit.benchmark.journal import Cell

__all__ = ["absences", "expected"]

NAME = "matrix.json"


def absences(cells: Iterable[Cell]) -> dict[str, dict[str, str]]:
    """Return the reason of every method that could not run, by method and family.

    Args:
        cells: of a run.
    """
    found: dict[str, dict[str, str]] = {}
    for cell in cells:
        if cell.unable:
            found.setdefault(cell.place.method, {})[cell.place.family] = cell.unable
    return {method: dict(sorted(found[method].items())) for method in sorted(found)}


def expected() -> dict[str, dict[str, str]]:
    """Return the committed table of absences."""
    text = files("accredit.benchmark").joinpath(NAME).read_text(encoding="utf-8")
    table: dict[str, dict[str, str]] = json.loads(text)
    return table


def write(cells: Iterable[Cell]) -> Path:
    """Write the table of absences beside this file.

    Args:
        cells: of a run over all families and methods.
    """
    path = Path(__file__).with_name(NAME)
    path.write_text(json.dumps(absences(cells), indent=1) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    from accredit.benchmark.plan import PLAIN, Scale
    from accredit.benchmark.run import bench

    write(bench(scale=Scale("matrix", 1, 2, (PLAIN,))).cells)
