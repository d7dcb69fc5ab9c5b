"""``accredit plan``: how large groups should be, and what is lost where all rewards of a group tie."""

from __future__ import annotations

import click

import accredit as ac
from accredit.cli.options import (
    as_json,
    format_option,
    key_option,
    mapping_of,
    mapping_option,
    retokenize_option,
    strict_option,
)
from accredit.cli.output import emit_json, progress

__all__ = ["command"]

FINDINGS = 1


@click.command("plan")
@click.argument("file", metavar="[FILE]", required=False, type=click.Path())
@click.option(
    "--success-rate",
    "rates",
    metavar="P",
    multiple=True,
    type=float,
    help="Success rate of a task, in place of what the file says; several are averaged over.",
)
@click.option(
    "--group-size",
    metavar="N",
    type=click.IntRange(min=1),
    help="Rollouts a group. With a file: each N rollouts that follow each other are one, whatever it says.",
)
@click.option(
    "--target",
    metavar="SHARE",
    type=float,
    default=0.1,
    show_default=True,
    help="Share of groups without signal that the suggested size must not exceed.",
)
@click.option(
    "-m",
    "--method",
    "methods",
    metavar="METHOD",
    multiple=True,
    help="Look for signal in groups without by this method; default: all that can run.",
)
@key_option
@format_option
@mapping_option
@retokenize_option
@strict_option
@as_json
def command(
    file: str | None,
    rates: tuple[float, ...],
    group_size: int | None,
    target: float,
    methods: tuple[str, ...],
    key: str | None,
    format: str | None,
    mapping: tuple[str, ...],
    retokenize: str | None,
    strict: bool,
    as_json: bool,
) -> int:
    """Plan group sizes: P(no signal) by size, the share of wasted rollouts, and who finds signal in them.

    From rollouts, from success rates (accredit plan --success-rate 0.2 --group-size 8), or from both.
    Exit code 1: a method that was named could not run.
    """
    from accredit.views.plan_tables import plan_blocks
    from accredit.views.tables import show

    columns = mapping_of(mapping)
    with progress("plan") as tell:
        batch = None
        if file is not None:
            tell(0, 1, file)
            batch = ac.read(
                file,
                format,
                strict=strict,
                mapping=columns,
                group_size=group_size,
                retokenize=retokenize,
            )
        found = ac.plan(
            batch,
            success_rate=rates or None,
            group_size=group_size,
            target=target,
            methods=methods or None,
            key=key,
            progress=tell,
        )
    document = {"schema": "accredit.plan/1", "file": file, **found.to_dict()}
    emit_json(document) if as_json else show(plan_blocks(document))
    return FINDINGS if methods and found.unable else 0
