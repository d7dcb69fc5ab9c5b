"""``accredit check``: what is wrong with a file of rollouts, where, and how to mend it."""

from __future__ import annotations

import click

import accredit as ac
from accredit.cli.options import (
    FILE,
    as_json,
    format_option,
    group_size_option,
    key_option,
    mapping_of,
    mapping_option,
    retokenize_option,
    strict_option,
)
from accredit.cli.output import emit_json

__all__ = ["command"]

FINDINGS = 1


@click.command("check")
@FILE
@click.option("-m", "--method", metavar="METHOD", help="Also say what this method lacks or will leave out.")
@key_option
@format_option
@mapping_option
@group_size_option
@retokenize_option
@strict_option
@as_json
def command(
    file: str,
    method: str | None,
    key: str | None,
    format: str | None,
    mapping: tuple[str, ...],
    group_size: int | None,
    retokenize: str | None,
    strict: bool,
    as_json: bool,
) -> int:
    """Check rollouts: findings with code, place and mend, then the numbers of the file.

    Exit code 1: there are errors or warnings.
    """
    batch = ac.read(
        file,
        format,
        strict=strict,
        mapping=mapping_of(mapping),
        group_size=group_size,
        retokenize=retokenize,
    )
    found = ac.check(batch, method=method, key=key, strict=strict)
    excluded = [{"id": e.id, "reason": e.reason, "where": e.where, "code": e.code} for e in batch.excluded]
    document = {"schema": "accredit.check/1", "file": file, **found.to_dict(), "excluded": excluded}
    if as_json:
        emit_json(document)
    else:
        from accredit.views.check_tables import check_blocks
        from accredit.views.tables import show

        show(check_blocks(document))
    return 0 if found.ok else FINDINGS
