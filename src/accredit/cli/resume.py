"""``accredit resume``: the command of a job that did not end, once more."""

from __future__ import annotations

import click

from accredit.cli.options import as_json

__all__ = ["command"]


@click.command("resume")
@click.argument("job", metavar="JOB", type=click.Path())
@as_json
def command(job: str, as_json: bool) -> int:
    """Go on with a job: JOB is a journal (OUT.probe, the FILE of truth --journal) or the folder of bench -o.

    Its command, kept beside it, runs again in the folder where it was run; what was done is not done again.
    Exit code: the command's.
    """
    import accredit as ac

    return ac.resume(job, as_json=as_json)
