"""What the advisor knows: how much nearer to the truth than grpo each method came, by task setting.

``python -m accredit.benchmark.evidence DIR`` writes it anew from the journal of a full run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import accredit
from accredit.benchmark.journal import Cell, read_journal
from accredit.benchmark.leaderboard import Board, boards_of
from accredit.benchmark.plan import SCALES, Setting, task_of
from accredit.worlds import sample

__all__ = ["points_of"]

_LOOKED_AT = 3  # task seeds behind the traits of a setting


def points_of(cells: Sequence[Cell], settings: Sequence[Setting]) -> list[dict[str, Any]]:
    """Return one point a family and setting: its traits, and every method's gain over grpo.

    Args:
        cells: of a run.
        settings: that it measured.
    """
    by_name = {s.name: s for s in settings if s.draws == 1}
    boards = [board for board in boards_of(cells) if board.setting in by_name]
    return [_point(board, by_name[board.setting]) for board in boards]


def _point(board: Board, setting: Setting) -> dict[str, Any]:
    gain = {
        row.method: round(-row.versus.value, 5) + 0.0
        for row in board.rows
        if row.versus is not None and not row.reference
    }
    return {
        "family": board.family,
        "setting": board.setting,
        "shared": round(float(np.mean([_shared(board.family, setting, s) for s in range(_LOOKED_AT)])), 4),
        "group_size": setting.group_size,
        "gain": dict(sorted(gain.items())),
    }


def _shared(family: str, setting: Setting, seed: int) -> float:
    from accredit.advice import traits_of

    drawn = sample(
        task_of(family, seed),
        groups=16,
        group_size=setting.group_size,
        success_rate=setting.success_rate,
        noise=setting.noise,
    )
    return traits_of(drawn.batch).shared


if __name__ == "__main__":
    plan, found = read_journal(Path(sys.argv[1]) / "journal.jsonl")
    points = points_of(found, SCALES["full"].settings)
    text = json.dumps({"version": plan["version"], "points": points}, indent=1) + "\n"
    (Path(accredit.__file__).parent / "evidence.json").write_text(text, encoding="utf-8")
