"""``accredit assign``: credit of every step and token by one method, or several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

import accredit as ac
from accredit.cli.options import FILE, Settings, as_json, takes_methods
from accredit.cli.output import emit_json, note, progress, refuse_input
from accredit.cli.running import compared, exit_code, rollouts_of

if TYPE_CHECKING:
    from accredit.data import Batch, Credit

__all__ = ["command"]


@click.command("assign")
@FILE
@takes_methods()
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    type=click.Path(),
    help="Write the credit: .parquet, .jsonl, .jsonl.gz or .jsonl.zst.",
)
@click.option(
    "--top",
    metavar="N",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Decisive steps to list.",
)
@as_json
def command(file: str, run: Settings, output: str | None, top: int, as_json: bool) -> int:
    """Assign credit by a method and say what it used and what it left out.

    With several methods they are compared; -o then writes one file each, PATH-METHOD.
    Exit code 1: one of several could not run.
    """
    batch = rollouts_of(file, run)
    if len(run.methods) > 1:
        return _several(batch, file, run, output, as_json=as_json)
    if output:
        refuse_input(output, file)
    with progress("assign") as tell:
        tell(0, 1, run.methods[0])
        credit = ac.assign(batch, run.methods[0], **run.for_one())
    _show(credit, top, as_json=as_json)
    if output:
        _save(credit, Path(output))
    return 0


def _show(credit: Credit, top: int, *, as_json: bool) -> None:
    from accredit.views.credit_tables import credit_blocks
    from accredit.views.summary import credit_summary
    from accredit.views.tables import show

    summary = credit_summary(credit, top)
    if as_json:
        emit_json(summary)
    else:
        show(credit_blocks(summary))


def _several(batch: Batch, file: str, run: Settings, output: str | None, *, as_json: bool) -> int:
    found = compared(batch, run, as_json=as_json)
    for label, credit in found.credits.items():
        if output:
            path = Path(output)
            name, dot, suffix = path.name.partition(".")
            path = path.with_name(f"{name}-{_file_part(label)}{dot}{suffix}")
            refuse_input(path, file)
            _save(credit, path)
    return exit_code(found)


def _file_part(label: str) -> str:
    """A method's label as part of a file name."""
    return "".join(c if c.isalnum() or c in "-_.=" else "-" for c in label)


def _save(credit: Credit, path: Path) -> None:
    note(f"wrote {credit.save(path)}")
