"""``accredit report``: one HTML file to look at."""

from __future__ import annotations

from typing import Any

import click

import accredit as ac
from accredit.cli.options import FILE, Settings, as_json, takes_methods
from accredit.cli.output import emit_json, note, refuse_input
from accredit.cli.running import compared_quietly, exit_code, rollouts_of

__all__ = ["command"]


@click.command("report")
@FILE
@takes_methods()
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    type=click.Path(),
    default="report.html",
    show_default=True,
    help="The file to write.",
)
@click.option(
    "--text",
    type=click.Choice(["full", "preview"]),
    help="Whole texts, or their beginnings; default: full up to 20 MB.",
)
@click.option(
    "--truth",
    metavar="FILE",
    type=click.Path(),
    help="True advantages of these steps (accredit.truth/1): each method, and each step, beside them.",
)
@click.option("--title", help="The line above the first sentence.")
@as_json
def command(
    file: str,
    run: Settings,
    output: str,
    text: Any,
    truth: str | None,
    title: str | None,
    as_json: bool,
) -> int:
    """Write an HTML report of one or more methods; it opens by double click, offline.

    Exit code 1: a method could not run.
    """
    from accredit.against import truth_of
    from accredit.views.write import check_target

    refuse_input(output, file)
    check_target(output)
    batch = rollouts_of(file, run)
    check_target(output, len(batch))
    table = None if truth is None else truth_of(batch, truth)
    found = compared_quietly(batch, run, n_boot=0)
    for missing in found.unable:
        note(f"{missing.label} could not run: {missing.reason}")
    health = ac.check(batch, key=run.keywords["key"])
    path = ac.report(
        list(found.credits.values()), output, text=text, title=title, findings=health, truth=table
    )
    if as_json:
        unable = {u.label: u.reason for u in found.unable}
        size = path.stat().st_size
        emit_json({"report": str(path), "bytes": size, "methods": list(found.credits), "unable": unable})
    else:
        click.echo(str(path))
    return exit_code(found)
