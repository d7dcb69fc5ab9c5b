"""What policies learned from each credit, as tables and as a section of the page of results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accredit.views.sections import section
from accredit.views.tables import Line, Table

__all__ = ["learning_blocks", "learning_section"]

_MARK = {"better": " ▲", "worse": " ▼"}
_HEAD = (
    "method",
    "regret, equal rollouts",
    "regret, equal tokens",
    "updates to 90 %",
    "rollouts to 90 %",
    "tokens to 90 %",
    "seeds that reach it",
    "last score",
)


def learning_blocks(document: Mapping[str, Any]) -> list[Table | Line]:
    """Return one table a family, then what the columns mean.

    Args:
        document: ``Learning.to_dict()``.
    """
    blocks: list[Table | Line] = [Line(_plan(document), "bold")]
    for family in _families(document):
        lines = [_cells(row) for row in document["rows"] if row["family"] == family and not row["unable"]]
        blocks += [Line(""), Table(family, [_HEAD[0], *(f">{h}" for h in _HEAD[1:])], lines)]
        blocks += [Line(said) for said in _lacking(document, family)]
    return [*blocks, Line(""), *(Line(line) for line in _WORDS.splitlines())]


def learning_section(document: Mapping[str, Any]) -> str:
    """Return the section in Markdown, between its marks.

    Args:
        document: ``Learning.to_dict()``.
    """
    parts = [f"## Learning\n\n{_WORDS}\n\n{_plan(document)}"]
    for family in _families(document):
        rows = [_cells(row) for row in document["rows"] if row["family"] == family and not row["unable"]]
        lines = [_HEAD, ["---"] * len(_HEAD), *([f"`{name}`", *rest] for name, *rest in rows)]
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        parts.append("\n\n".join([f"### {family}", table, *_lacking(document, family)]))
    return section("learning", "accredit bench --learning", "\n\n".join(parts))


_WORDS = (
    "A policy, one logit a (state, action), is moved by a method's credit alone.\n"
    "After each update its chance of success is exact (dynamic programming): the curve has no noise.\n"
    "Regret is the mean distance from the best chance there is over all that was spent: 0 is the optimum.\n"
    "Equal tokens: up to what the cheapest course of the same task spent; continuations and rescored tokens\n"
    "are charged, judges and critics are not. A course that never comes to 90 % of the optimum counts with\n"
    "all it spent. `truth` is the exact advantage as credit. ▲ ▼: less or more regret than grpo at the 5 %\n"
    "level after Holm over the methods. The learning rate of a method is set so that its first update has\n"
    "the same length in logits as all others'; it is then constant, so that what a method's own normalising\n"
    "does to later updates (grpo divides by a group's deviation, rloo does not) is part of the result."
)


def _plan(document: Mapping[str, Any]) -> str:
    plan = document["plan"]
    lesson = plan["lesson"]
    return (
        f"{lesson['seeds']} task seeds, {lesson['updates']} updates of {lesson['groups']} x "
        f"{lesson['group_size']} rollouts from a success rate of {lesson['success_rate']}, "
        f"first update of length {lesson['step']}, version {plan['version']}."
    )


def _families(document: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(row["family"] for row in document["rows"]))


def _cells(row: Mapping[str, Any]) -> list[str]:
    found = row["metrics"]
    return [
        row["method"],
        *(_estimate(found[n], "{:.3f}") + _MARK.get(row["verdict"].get(n, ""), "") for n in _REGRETS),
        *(_estimate(found[n], "{:,.0f}") for n in ("updates", "rollouts", "tokens")),
        f"{found['reached']['value'] * row['n']:.0f} of {row['n']}",
        _estimate(found["final"], "{:.3f}"),
    ]


_REGRETS = ("regret", "token_regret")


def _estimate(found: Mapping[str, Any], shape: str) -> str:
    value = shape.format(found["value"])
    if found["low"] is None:
        return value
    return f"{value} ({shape.format(found['low'])} to {shape.format(found['high'])})"


def _lacking(document: Mapping[str, Any], family: str) -> list[str]:
    lacking = [row for row in document["rows"] if row["family"] == family and row["unable"]]
    said = "; ".join(f"{r['method']}: {r['unable']}" for r in lacking)
    return [f"Could not run: {said}"] if lacking else []
