"""Advice on methods as tables, from its JSON-ready fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accredit.views.tables import Line, Table, share

__all__ = ["advice_blocks"]


def advice_blocks(document: Mapping[str, Any]) -> list[Table | Line]:
    """Return what to begin with, what can run ranked by what it promises, and what the others lack.

    Args:
        document: ``Advice.to_dict()``.
    """
    methods = document["methods"]
    first = next(m for m in methods if m["method"] == document["first"])
    blocks: list[Table | Line] = [
        Line(f"Begin with {first['method']}: {first['reason']}", "bold"),
        Line(_traits(document["traits"])),
        Line(""),
    ]
    able = [(m["method"], _gain(m["gain"]), m["chance"], m["reason"]) for m in methods if m["runs"]]
    columns = ("runs here", ">gain", "chance", "why")
    blocks.append(Table("", columns, able, widest=200))
    lacking = [
        (m["method"], ", ".join(n.replace("|", " or ") for n in m["missing"]), _gain(m["gain"]), m["unlock"])
        for m in methods
        if not m["runs"]
    ]
    if lacking:
        blocks += [
            Line(""),
            Table("", ("cannot run", "lacks", ">gain", "what would unlock it"), lacking, widest=120),
        ]
    return [*blocks, Line(""), *map(Line, _LEGEND)]


_LEGEND = (
    "gain: how much lower than grpo's the NMSE (0 = the truth, 1 = no credit) was on benchmark tasks like",
    "these, less half a standard deviation over them; 0.02 or more is a good chance to beat the broadcast.",
    "Tasks are alike in the share of revisited states and in group size. Yours may differ in other ways.",
)


def _traits(traits: Mapping[str, Any]) -> str:
    parts = [
        f"{traits['groups']:,} groups of {traits['group_size']:.3g} rollouts",
        f"outcomes differ in {share(traits['spread'])} of them",
        f"{traits['length']:.3g} steps a rollout",
        f"{share(traits['shared'])} of steps at a state that another rollout of the group visits",
    ]
    if traits["critic"] is not None:
        parts.append(f"values explain {traits['critic']:.0%} of what follows")
    if traits["process"] is not None:
        parts.append(f"process scores correlate {traits['process']:+.2f} with the outcome")
    return "; ".join(parts)


def _gain(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3f}"
