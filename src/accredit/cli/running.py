"""Files read and methods run side by side, as `assign`, `compare`, `report` and `demo` do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import accredit as ac
from accredit.cli.options import Settings
from accredit.cli.output import emit_json, progress
from accredit.errors import DataError

if TYPE_CHECKING:
    from accredit.comparison import Comparison
    from accredit.data import Batch

__all__ = ["compared", "compared_quietly", "exit_code", "rollouts_of"]

FINDINGS = 1


def rollouts_of(file: str, run: Settings) -> Batch:
    """Return the rollouts of a file, read as the options say, with progress on standard error."""
    with progress("read") as tell:
        tell(0, 1, file)
        return ac.read(file, **run.reading())


def compared(batch: Batch, run: Settings, *, as_json: bool, **more: Any) -> Comparison:
    """Return the comparison of a run's methods after showing it.

    Args:
        batch: the rollouts.
        run: methods and their settings.
        as_json: as one document rather than tables.
        **more: keywords of `compare`.

    Raises:
        DataError: if none of the methods can run.
    """
    from accredit.views.comparison_tables import comparison_blocks
    from accredit.views.credit_tables import left_out_blocks
    from accredit.views.summary import left_out
    from accredit.views.tables import Line, show

    found = compared_quietly(batch, run, **more)
    if as_json:
        emit_json(found.to_dict())
    else:
        left = left_out_blocks(left_out(list(found.credits.values())))
        show([*comparison_blocks(found.to_dict()), Line(""), *left])
    return found


def compared_quietly(batch: Batch, run: Settings, **more: Any) -> Comparison:
    """Return the comparison of a run's methods, with progress on standard error.

    Args:
        batch: the rollouts.
        run: methods and their settings.
        **more: keywords of `compare`.

    Raises:
        DataError: if none of the methods can run.
    """
    with progress("assign") as tell:
        found = ac.compare(batch, run.methods, progress=tell, **run.for_all(), **more)
    if not found.rows:
        first = found.unable[0]
        raise DataError(f"none of the {len(found.unable)} methods can run: {first.label}: {first.reason}")
    return found


def exit_code(found: Comparison) -> int:
    """Return 1 where a method that was asked for could not run, else 0."""
    return FINDINGS if found.unable else 0
