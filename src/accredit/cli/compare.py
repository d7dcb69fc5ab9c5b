"""``accredit compare``: where methods agree, and where they would push a policy apart."""

from __future__ import annotations

import click

from accredit.cli.options import FILE, Settings, as_json, takes_methods
from accredit.cli.running import compared, exit_code, rollouts_of

__all__ = ["command"]


@click.command("compare")
@FILE
@takes_methods()
@click.option(
    "--boot",
    metavar="N",
    type=click.IntRange(0),
    default=1000,
    show_default=True,
    help="Resamples behind the intervals.",
)
@click.option(
    "--truth",
    metavar="FILE",
    type=click.Path(),
    help="True advantages of these steps (accredit.truth/1): measure each method against them.",
)
@as_json
def command(file: str, run: Settings, boot: int, truth: str | None, as_json: bool) -> int:
    """Compare methods on the same rollouts: the first is the baseline.

    Agreement between methods is no evidence that they are right; --truth is. Exit code 1: one could
    not run.
    """
    more = {} if truth is None else {"truth": truth}
    return exit_code(compared(rollouts_of(file, run), run, as_json=as_json, n_boot=boot, **more))
