"""A plan of group sizes as tables, from its JSON-ready fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from accredit.views.tables import Line, Table, number, share

__all__ = ["plan_blocks"]

_LAWS = {
    "given": "as given",
    "one_rate": "the groups differ no more than by chance, no Beta law fits: one rate for all",
    "split": "every group is all pass or all fail, no Beta law fits: only the interval tells",
    "one_outcome": "every rollout had the same outcome, no Beta law fits: only the interval tells",
}


def plan_blocks(document: Mapping[str, Any]) -> list[Table | Line]:
    """Return the odds now, the size to take, the odds by size, the waste, and who finds signal in it.

    Args:
        document: ``GroupPlan.to_dict()``.
    """
    blocks: list[Table | Line] = [Line(text, style) for text, style in _head(document)]
    if document["sizes"]:
        blocks += [Line(""), _sizes(document["sizes"])]
    if document["waste"] is not None:
        blocks += [Line(""), *_waste(document)]
    return blocks


def _head(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    now = next((s for s in document["sizes"] if s["size"] == document["size"]), None)
    if now is not None:
        yield f"With {now['size']} rollouts a group: P(no signal) = {_span(now['tie'])}", "bold"
    yield _law(document), ""
    if not document["sizes"]:
        return
    suggested, target = document["suggested"], share(document["target"])
    if suggested is not None:
        yield f"Suggested: {suggested} rollouts a group, the smallest with at most {target}", ""
    elif document["kind"] == "graded":
        yield f"Suggested: none; at most {target} needs larger groups than the file has", ""
    else:
        yield f"Suggested: none; not even 1,024 rollouts a group come to {target}", ""


def _law(document: Mapping[str, Any]) -> str:
    kind, rate = document["kind"], document["success_rate"]
    if kind == "graded":
        return "graded rewards: the chance that rollouts drawn from a group tie; no law of rates is assumed"
    if kind == "unknown":
        return (
            f"success rate {number(rate)}; no group has two scored rollouts, so nothing can be said of groups"
        )
    if kind == "fitted":
        a, b = document["beta"]
        return f"success rate {number(rate)}; over groups it varies as Beta({a:.3g}, {b:.3g})"
    return f"success rate {number(rate)}; {_LAWS[kind]}"


def _sizes(sizes: list[dict[str, Any]]) -> Table:
    rows = [
        (
            str(s["size"]),
            share(s["tie"]["value"]),
            _interval(s["tie"]),
            "-" if s["drawn"] is None else _span(s["drawn"]),
            number(s["cost"], 3),
        )
        for s in sizes
    ]
    columns = (">group size", ">P(no signal)", ">95 %", ">groups drawn down", ">rollouts a group with signal")
    return Table("", columns, rows)


def _waste(document: Mapping[str, Any]) -> Iterator[Table | Line]:
    waste = document["waste"]
    told = share(waste["rollouts"] / waste["scored"])
    yield Line(f"Wasted here: {waste['rollouts']:,} of {waste['scored']:,} rollouts ({told})", "bold")
    kinds = ", ".join(f"{waste[k]:,} {k.replace('_', ' ')}" for k in ("all_pass", "all_fail", "tie"))
    single = f"; {waste['single']:,} groups of one rollout are not counted" if waste["single"] else ""
    yield Line(
        f"{waste['groups']:,} of {waste['of_groups']:,} groups have no signal, {_span(waste['share'])}: "
        f"{kinds}{single}"
    )
    finders = [f for f in document["finders"] if f["steps"]]
    silent = [f["method"] for f in document["finders"] if not f["steps"]]
    if finders:
        yield Line("")
        yield Table("Who still finds signal in them", _COLUMNS, [_finder(f) for f in finders])
    if silent:
        yield Line(f"Nothing there: {', '.join(silent)}")
    for method, reason in document["unable"]:
        yield Line(f"Could not run: {method}: {reason}")


_COLUMNS = ("method", ">steps with credit", ">of", ">share", ">groups", "compares across groups")


def _finder(f: Mapping[str, Any]) -> tuple[str, ...]:
    groups = f"{f['groups']:,} of {f['of_groups']:,}"
    across = "yes" if f["across"] else ""
    return f["method"], f"{f['steps']:,}", f"{f['of_steps']:,}", share(f["share"]), groups, across


def _span(span: Mapping[str, float]) -> str:
    interval = "" if span["low"] == span["high"] else f" ({_interval(span)})"
    return share(span["value"]) + interval


def _interval(span: Mapping[str, float]) -> str:
    return "-" if span["low"] == span["high"] else f"{share(span['low'])} to {share(span['high'])}"
