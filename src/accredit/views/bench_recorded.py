"""Methods on recorded rollouts, as a table and as a section of the page of results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accredit.views.bench_continued import continued_words
from accredit.views.sections import section
from accredit.views.tables import Line, Table

__all__ = ["recorded_blocks", "recorded_section"]

_HEAD = ("method", "rank correlation", "sign", "gradient cosine", "bias")
_BOUGHT = ("bought", "continuations", "steps")
_WORDS = (
    "Each number is a mean over games with a 95 % bootstrap interval over games.\n"
    "Rank correlation: Spearman of credit with the true advantage over a game's steps.\n"
    "Sign: share of steps with |A| > 0.05 that credit pushes the right way.\n"
    "Gradient cosine: of the policy gradient by credit with that by A, one logit a (prompt, action).\n"
    "Bias: mean of credit - A after the best common scale, in reward units."
)


def recorded_blocks(document: Mapping[str, Any]) -> list[Table | Line]:
    """Return the table, and what its columns mean.

    Args:
        document: ``Recorded.to_dict()``.
    """
    head, rows = _rows(document)
    blocks: list[Table | Line] = [Line(_plan(document), "bold")]
    right = (name if name in (head[0], _BOUGHT[0]) else f">{name}" for name in head)
    blocks.append(Table("", tuple(right), rows))
    told = (*_WORDS.splitlines(), *continued_words(document), *_lacking(document))
    return [*blocks, *map(Line, told)]


def recorded_section(document: Mapping[str, Any]) -> str:
    """Return the section in Markdown, between its marks; one a name of rollouts.

    Args:
        document: ``Recorded.to_dict()``.
    """
    about = document["about"]
    title = about["rollouts"] or "recorded rollouts"
    head, rows = _rows(document)
    lines = [head, ["---"] * len(head), *([f"`{name}`", *rest] for name, *rest in rows)]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    told = "\n".join(continued_words(document))
    parts = [f"## Real rollouts: {title}", _plan(document), _WORDS, told, table, *_lacking(document)]
    body = "\n\n".join(filter(None, parts))
    name = "recorded-" + "".join(c if c.isalnum() else "-" for c in title.lower())
    return section(name, "accredit bench --recorded", body)


def _rows(document: Mapping[str, Any]) -> tuple[tuple[str, ...], list[list[str]]]:
    """Return the names of the columns and the cells; what was bought is told where anything was."""
    able = [row for row in document["rows"] if not row["unable"]]
    if "budgets" not in document["about"]:
        return _HEAD, [_cells(row) for row in able]
    rows = []
    for row in able:
        method, *numbers = _cells(row)
        spent = [f"{row[name]:,}" for name in ("continuations", "environment_steps")]
        rows.append([method, row["bought"] or "nothing", *spent, *numbers])
    return (_HEAD[0], *_BOUGHT, *_HEAD[1:]), rows


def _plan(document: Mapping[str, Any]) -> str:
    about = document["about"]
    kind = about.get("kind", "a truth file").replace("_", " ")
    policy = f" under {about['policy']}" if about.get("policy") else ""
    key = f"; state key {about['key']}" if about.get("key") else ""
    return (
        f"{document['steps']:,} steps of {document['rollouts']} rollouts in {document['games']} games; "
        f"truth: {kind}{policy}{key}."
    )


def _cells(row: Mapping[str, Any]) -> list[str]:
    return [row["method"], *(_estimate(row[name]) for name in ("rank", "sign", "cosine", "bias"))]


def _estimate(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "–"
    shown = f"{found['value']:.2f}"
    return shown if found["low"] is None else f"{shown} ({found['low']:.2f} to {found['high']:.2f})"


def _lacking(document: Mapping[str, Any]) -> list[str]:
    said = "; ".join(f"{row['method']} ({row['unable']})" for row in document["rows"] if row["unable"])
    return [f"Could not run: {said}."] if said else []
