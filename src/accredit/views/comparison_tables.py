"""A comparison of methods as tables, from its JSON-ready fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accredit.views.against_tables import against_blocks
from accredit.views.tables import Line, Table, estimated, number, plain, share, signed

__all__ = ["comparison_blocks", "comparison_text"]

PAIRS = 6


def comparison_text(document: Mapping[str, Any]) -> str:
    """Return a comparison as plain text (see `comparison_blocks`)."""
    return plain(comparison_blocks(document))


def comparison_blocks(document: Mapping[str, Any], worst: int = 10) -> list[Table | Line]:
    """Return a comparison as tables: methods, agreement, disagreements, what could not run.

    Args:
        document: ``Comparison.to_dict()``.
        worst: how many disagreements of the first pair to list.
    """
    sizes = f"{document['rollouts']:,} rollouts, {document['groups']:,} groups, {document['steps']:,} steps"
    blocks: list[Table | Line] = [Line(f"Compared on {sizes}", "bold"), _methods(document["methods"])]
    if document.get("truth"):
        blocks += [Line(""), *against_blocks(document["truth"])]
    shown = _shown_pairs(document)
    if shown:
        blocks += [Line(""), _pairs(document, shown)]
    if len(shown) < len(document["pairs"]):
        blocks.append(Line(f"… {len(document['pairs']) - len(shown)} more pairs: --json, or the report"))
    told = [pair for pair in shown if pair["worst"]]
    if told and worst:
        blocks += [Line(""), _worst(told[0], worst)]
    if document["notes"]:
        blocks += [Line(""), *map(Line, document["notes"])]
        if not document.get("truth"):
            blocks.append(Line("Only true advantages (--truth) tell which rule fits these rollouts"))
    if document["unable"]:
        rows = [(u["label"], u["reason"]) for u in document["unable"]]
        blocks += [Line(""), Table("Could not run", ("method", "why"), rows, widest=300)]
    return blocks


def _methods(rows: Any) -> Table:
    columns = (
        "method",
        ">non-zero",
        ">informed steps",
        ">groups",
        ">mean |credit|",
        ">within rollouts",
        ">seconds",
    )
    cells = [
        (
            row["label"],
            share(row["nonzero"]),
            share(row["coverage"]["steps"]),
            share(row["coverage"]["groups"]),
            number(row["mean_abs"], 3),
            number(row["within"], 3),
            number(row["seconds"], 3),
        )
        for row in rows
    ]
    return Table("", columns, cells)


def _shown_pairs(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Every pair while they are few, else those with the baseline."""
    pairs = document["pairs"]
    if len(pairs) <= PAIRS:
        return list(pairs)
    return [pair for pair in pairs if pair["first"] == pairs[0]["first"]]


def _pairs(document: Mapping[str, Any], pairs: Sequence[Mapping[str, Any]]) -> Table:
    n, groups = pairs[0]["n_steps"], pairs[0]["n_groups"]
    unit = f"{groups:,} group{'' if groups == 1 else 's'}"
    intervals = f"; 95 % intervals from {document['n_boot']:,} resamples of groups"
    title = f"Rank agreement over {n:,} steps in {unit}" + (intervals if _has_intervals(pairs) else "")
    rows = [
        (
            pair["first"],
            pair["second"],
            *estimated(pair["spearman"]),
            *estimated(pair["kendall"]),
            f"{pair['flips']:,}",
            share(pair["flips"] / pair["n_steps"] if pair["n_steps"] else 0.0),
        )
        for pair in pairs
    ]
    return Table(
        title,
        ("method", "against", ">Spearman", "95 %", ">Kendall", "95 %", ">sign flips", ">of steps"),
        rows,
    )


def _has_intervals(pairs: Sequence[Mapping[str, Any]]) -> bool:
    return any(p["spearman"] is not None and p["spearman"]["low"] is not None for p in pairs)


def _worst(pair: Mapping[str, Any], most: int) -> Table:
    title = f"Where {pair['first']} and {pair['second']} disagree most, each in units of its root mean square"
    rows = [
        (
            w["rollout"],
            str(w["step"]),
            signed(w["first"]),
            signed(w["second"]),
            number(w["gap"], 3),
            w["action"],
            w["state"],
        )
        for w in pair["worst"][:most]
    ]
    columns = ("rollout", ">step", f">{pair['first']}", f">{pair['second']}", ">apart", "action", "state")
    return Table(title, columns, rows, widest=40)
