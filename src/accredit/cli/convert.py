"""``accredit convert``: the same rollouts in another file form."""

from __future__ import annotations

import click

from accredit.cli.options import (
    as_json,
    format_option,
    group_size_option,
    mapping_of,
    mapping_option,
    retokenize_option,
    strict_option,
)
from accredit.cli.output import emit_json, note

__all__ = ["command"]

FINDINGS = 1


@click.command("convert")
@click.argument("source", metavar="FROM", type=click.Path())
@click.argument("target", metavar="TO", type=click.Path())
@format_option
@mapping_option
@group_size_option
@retokenize_option
@strict_option
@as_json
def command(
    source: str,
    target: str,
    format: str | None,
    mapping: tuple[str, ...],
    group_size: int | None,
    retokenize: str | None,
    strict: bool,
    as_json: bool,
) -> int:
    """Convert rollouts without loss: JSON Lines (.jsonl, .jsonl.gz, .jsonl.zst) or Parquet, by ending.

    Exit code 1: some rollouts could not be used; each is named with its reason.
    """
    from accredit.readers import convert

    columns = mapping_of(mapping)
    done = convert(
        source,
        target,
        format,
        strict=strict,
        mapping=columns,
        group_size=group_size,
        retokenize=retokenize,
    )
    excluded = [{"id": e.id, "reason": e.reason, "where": e.where, "code": e.code} for e in done.excluded]
    counts = {"read": done.rollouts + len(excluded), "used": done.rollouts, "excluded": len(excluded)}
    findings = [f.to_dict() for f in done.findings]
    left = {"rollouts": counts, "excluded": excluded}
    if as_json:
        emit_json({"schema": "accredit.convert/1", "file": str(done.path), **left, "findings": findings})
    else:
        from accredit.views.credit_tables import finding_blocks, left_out_blocks
        from accredit.views.tables import show

        show([*left_out_blocks({**left, "uncounted": {}}), *finding_blocks(findings)])
        note(f"wrote {done.path}")
    return FINDINGS if excluded else 0
