"""``accredit convert``: the same rollouts in another file form."""

from __future__ import annotations

import click

import accredit as ac
from accredit.cli.options import as_json, strict_option
from accredit.cli.output import emit_json, note

__all__ = ["command"]


@click.command("convert")
@click.argument("source", metavar="FROM", type=click.Path())
@click.argument("target", metavar="TO", type=click.Path())
@strict_option
@as_json
def command(source: str, target: str, strict: bool, as_json: bool) -> int:
    """Convert rollouts without loss: JSON Lines (.jsonl, .jsonl.gz, .jsonl.zst) or Parquet, by ending.

    Exit code 1: some rollouts could not be used; each is named with its reason.
    """
    from accredit.store import save_batch

    batch = ac.read(source, strict=strict)
    path = save_batch(batch, target)
    excluded = [{"id": e.id, "reason": e.reason, "where": e.where, "code": e.code} for e in batch.excluded]
    counts = {"read": len(batch) + len(excluded), "used": len(batch), "excluded": len(excluded)}
    if as_json:
        emit_json(
            {"schema": "accredit.convert/1", "file": str(path), "rollouts": counts, "excluded": excluded}
        )
    else:
        from accredit.views.credit_tables import left_out_blocks
        from accredit.views.tables import show

        show(left_out_blocks({"rollouts": counts, "excluded": excluded, "uncounted": {}}))
        note(f"wrote {path}")
    return 1 if excluded else 0
