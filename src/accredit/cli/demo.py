"""``accredit demo``: methods on the bundled rollouts, against each other and the truth; a report."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import click

import accredit as ac
from accredit.cli.options import Settings, as_json
from accredit.cli.output import emit_json, note
from accredit.cli.running import compared_quietly

if TYPE_CHECKING:
    from accredit.comparison import Comparison
    from accredit.data import Batch

__all__ = ["command"]

# Baseline, the method whose decisive steps are told, then some of each family.
SHOWN = (
    "grpo", "gigpo", "crbc", "graft", "graph-hca", "hgpo", "gaca", "price", "rloo", "reinforce-pp",
    "hapo", "eapo", "pepo", "entropy-top",
)  # fmt: skip
FIRST = SHOWN[:2]
REPORTED = 8


@click.command("demo")
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(file_okay=False),
    default="accredit-demo",
    show_default=True,
    help="Folder of the report.",
)
@click.option(
    "--open/--no-open", "opened", default=None, help="Open the report in a browser; default: on a desktop."
)
@as_json
def command(out: str, opened: bool | None, as_json: bool) -> None:
    """Assign credit to bundled rollouts: a 135M language model in text games, 16 rollouts a game."""
    from accredit import samples

    batch = ac.read(samples.path("textworld"))
    able, lacking = _methods(batch)
    truth = samples.truth_path("textworld")
    found = compared_quietly(batch, Settings(tuple(able), {}, {"seed": 0}), truth=truth)
    path = _report(found, truth, Path(out))
    _show(found, lacking, path, as_json=as_json)
    if _desktop() if opened is None else opened:
        webbrowser.open(path.resolve().as_uri())


def _methods(batch: Batch) -> tuple[list[str], dict[str, list[str]]]:
    """The methods that are shown, and what those lack that cannot run on these rollouts."""
    from accredit.comparison import runnable

    return list(SHOWN), {id: needs for id, needs in runnable(batch).items() if needs}


def _report(found: Comparison, truth: Path | None, folder: Path) -> Path:
    left = ", ".join(row.label for row in found.rows[REPORTED:])
    if left:
        note(f"the report shows the first {REPORTED} methods; not in it: {left}")
    reported = [found.credits[row.label] for row in found.rows[:REPORTED]]
    folder.mkdir(parents=True, exist_ok=True)
    title = "SmolLM2-135M in TextWorld games"
    checked = ac.check(reported[0].batch)
    return ac.report(reported, folder / "report.html", title=title, findings=checked, truth=truth)


def _show(found: Comparison, lacking: dict[str, list[str]], path: Path, *, as_json: bool) -> None:
    from accredit.views.comparison_tables import comparison_blocks
    from accredit.views.credit_tables import decisive_table, left_out_blocks
    from accredit.views.summary import decisive_steps, left_out
    from accredit.views.tables import Line, show

    name = FIRST[1] if FIRST[1] in found.credits else found.rows[0].label
    top = decisive_steps(found.credits[name], 10)
    if as_json:
        emit_json(
            {
                "comparison": found.to_dict(),
                "lacking": lacking,
                "method": name,
                "top": top,
                "report": str(path),
            }
        )
        return
    left = left_out_blocks(left_out(list(found.credits.values())))
    show([*comparison_blocks(found.to_dict(), worst=0), Line(""), *left])
    show([Line(""), decisive_table(f"The ten most decisive steps under {name}", top)])
    show([Line(line) for line in ("", *_told(lacking), f"Report: {path.resolve()}")])


def _told(lacking: dict[str, list[str]]) -> list[str]:
    said = "; ".join(
        f"{id} lacks {', '.join(n.replace('|', ' or ') for n in needs)}" for id, needs in lacking.items()
    )
    return [f"What these rollouts cannot feed: {said}", ""] if said else []


def _desktop() -> bool:
    """Whether someone sits before a screen: a browser of letters must not take over the terminal."""
    if os.environ.get("CI") or not sys.stdout.isatty():
        return False
    return sys.platform in ("darwin", "win32") or any(
        os.environ.get(k) for k in ("DISPLAY", "WAYLAND_DISPLAY")
    )
