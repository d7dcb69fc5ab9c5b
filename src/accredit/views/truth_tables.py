"""The truth of rollouts as tables: what each group's world is worth, or how sure continuations are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accredit.views.tables import Table, number

__all__ = ["truth_blocks"]


def truth_blocks(document: Mapping[str, Any]) -> list[Table]:
    """Return a truth as tables.

    Args:
        document: ``TruthReport.to_dict()``.
    """
    facts = [("kind", document["kind"].replace("_", " ")), ("steps", number(document["steps"]))]
    facts += [(name.replace("_", " "), number(n)) for name, n in document["spent"].items() if n]
    for name in ("reliability", "ceiling"):
        if document[name] is not None:
            facts.append((name, number(document[name], 3)))
    if document["drift"] is not None:
        facts.append(("drift of the policy, nats", number(document["drift"], 2)))
    blocks = [Table("", ("truth", ""), facts)]
    if document["groups"]:
        rows = [
            (name, number(row["states"]), number(row["nodes"]), number(row["value"], 3))
            for name, row in document["groups"].items()
        ]
        blocks.insert(0, Table("", ("group", ">states", ">with memory", ">value of the start"), rows))
    return blocks
