"""What a probe wrote and what it says about the recording, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from accredit.views.credit_tables import finding_blocks
from accredit.views.tables import Line, Table, number

__all__ = ["probe_blocks"]

_WORST = 5  # rollouts of the drift that are shown


def probe_blocks(document: Mapping[str, Any]) -> list[Table | Line]:
    """Return a probe as text: columns, drift, alignment, findings.

    Args:
        document: of ``accredit probe --json``.
    """
    steps = document["steps"]
    head = f"{document['file']}: {steps['scored']:,} of {steps['all']:,} steps scored"
    blocks: list[Table | Line] = [Line(head, "bold"), Line(""), _columns(document["columns"])]
    if document["drift"] is not None:
        blocks += [Line(""), *_drift(document["drift"])]
    if document["alignment"] is not None:
        blocks += [Line(""), _alignment(document["alignment"])]
    return [*blocks, *finding_blocks(document["findings"])]


def _columns(columns: Mapping[str, Mapping[str, Any]]) -> Table:
    names = ("model", "dtype", "temperature", "context")
    rows = [(name, *(str(made.get(n, "")) for n in names)) for name, made in columns.items()]
    return Table("", ("column", *names), rows)


def _drift(drift: Mapping[str, Any]) -> Iterator[Table | Line]:
    size = f"{drift['tokens']:,} tokens of {len(drift['rollouts']):,} rollouts"
    far = f"mean {number(drift['mean'], 3)}, largest {number(drift['most'], 3)} nat"
    yield Line(f"drift |{drift['recorded']} - {drift['probed']}| over {size}: {far}")
    rows = [
        (row["rollout"], number(row["tokens"]), number(row["mean"], 3), number(row["most"], 3))
        for row in drift["rollouts"][:_WORST]
    ]
    yield Table("furthest rollouts", ("rollout", ">tokens", ">mean", ">largest"), rows)


def _alignment(alignment: Mapping[str, Any]) -> Line:
    told = ", ".join(f"shift {int(k):+d}: {number(v, 4)}" for k, v in alignment["logprob"].items())
    return Line(f"mean log-probability by shift of the rows, {alignment['tokens']:,} tokens: {told} nat")
