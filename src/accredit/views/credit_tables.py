"""One result as tables, from its JSON-ready summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accredit.views.plain import shorten
from accredit.views.tables import Line, Table, number, share, signed

__all__ = ["credit_blocks", "decisive_table", "finding_blocks", "left_out_blocks"]

GROUPS = 20
EXCLUDED = 20
_NAMED = 3  # ids that are named where many share a reason


def credit_blocks(summary: Mapping[str, Any]) -> list[Table | Line]:
    """Return a result as tables: sizes, what was left out and why, groups, decisive steps, findings.

    Args:
        summary: from `accredit.views.summary.credit_summary`.
    """
    blocks: list[Table | Line] = [Line(_headline(summary), "bold"), *_facts(summary)]
    blocks += left_out_blocks(summary)
    if summary["top"]:
        blocks += [Line(""), decisive_table("Steps of largest |credit|", summary["top"])]
    elif summary["sizes"]["steps"]:
        blocks.append(Line("every step has credit 0"))
    blocks += [Line(""), _groups(summary["groups"])]
    if len(summary["groups"]) > GROUPS:
        blocks.append(Line(f"… {len(summary['groups']) - GROUPS:,} more groups: --json"))
    return blocks + finding_blocks(summary["findings"])


def _headline(summary: Mapping[str, Any]) -> str:
    sizes = summary["sizes"]
    return (
        f"{summary['method']}: {sizes['steps']:,} steps and {sizes['tokens']:,} policy tokens of "
        f"{summary['rollouts']['used']:,} rollouts in {sizes['groups']:,} groups"
    )


def _facts(summary: Mapping[str, Any]) -> list[Line]:
    cover = summary["coverage"]
    taken = {name: n for name, n in summary["fallbacks"].items() if n}
    told = ", ".join(f"{name} {n:,}" for name, n in taken.items()) or "none"
    params = ", ".join(f"{k}={_shown(v)}" for k, v in summary["params"].items() if not isinstance(v, Mapping))
    lines = [
        Line(f"parameters: {params}"),
        Line(
            f"coverage: {share(cover['steps'])} of steps, {share(cover['groups'])} of groups say more than "
            f"the outcome; {share(summary['nonzero'])} of steps have credit"
        ),
        Line(f"fallbacks: {told}"),
    ]
    if summary["unused"]:
        lines.append(Line(f"in the rollouts but not used: {', '.join(summary['unused'])}"))
    return lines


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def left_out_blocks(summary: Mapping[str, Any]) -> list[Table | Line]:
    """Return the sum ``read = used + excluded``, each exclusion, and who got no credit."""
    n = summary["rollouts"]
    blocks: list[Table | Line] = [
        Line(f"rollouts: {n['read']:,} read = {n['used']:,} used + {n['excluded']:,} excluded")
    ]
    for reason, ids in summary["uncounted"].items():
        named = ", ".join(repr(i) for i in ids[:_NAMED]) + (" …" if len(ids) > _NAMED else "")
        blocks.append(Line(f"  {len(ids):,} used but outside the statistics, {reason}: {named}"))
    excluded = summary["excluded"]
    if excluded:
        rows = [(e["id"], e["where"], e["reason"]) for e in excluded[:EXCLUDED]]
        blocks += [Line(""), Table("Excluded rollouts", ("id", "where", "why"), rows, widest=200)]
    if len(excluded) > EXCLUDED:
        blocks.append(Line(f"… {len(excluded) - EXCLUDED:,} more excluded: --json"))
    return blocks


def decisive_table(title: str, steps: Sequence[Mapping[str, Any]]) -> Table:
    """Return decisive steps as a table.

    Args:
        title: of the table.
        steps: from `accredit.views.summary.decisive_steps`.
    """
    rows = [
        (
            s["rollout"],
            str(s["step"]),
            signed(s["credit"]),
            number(s["reward"], 3),
            s["action"],
            s["reason"],
            shorten(s["state"], 40),
        )
        for s in steps
    ]
    columns = ("rollout", ">step", ">credit", ">reward", "action", "because", "state")
    return Table(title, columns, rows, widest=96)


def _groups(groups: Sequence[Mapping[str, Any]]) -> Table:
    columns = (
        "group",
        ">rollouts",
        ">scored",
        ">mean reward",
        "range",
        ">steps",
        ">mean |credit|",
        ">informed",
    )
    rows = [
        (
            g["group"],
            f"{g['rollouts']:,}",
            f"{g['scored']:,}",
            number(g["reward"] and g["reward"]["mean"], 3),
            f"{g['reward']['low']:.3g} to {g['reward']['high']:.3g}" if g["reward"] else "-",
            f"{g['steps']:,}",
            number(g["mean_abs"], 3),
            share(g["informed"]),
        )
        for g in groups[:GROUPS]
    ]
    return Table("Groups", columns, rows)


def finding_blocks(findings: Sequence[Mapping[str, Any]]) -> list[Table | Line]:
    """Return findings as lines: severity, code, count, first place, sentence, mend."""
    if not findings:
        return []
    blocks: list[Table | Line] = [Line(""), Line("Findings", "bold")]
    styles = {"error": "bold red", "warning": "yellow", "info": ""}
    for f in findings:
        places = f["examples"] or ([f["where"]] if f["where"] else [])
        times = f"{f['count']:,} x" if f["count"] != 1 else "1 x"
        blocks.append(
            Line(f"{f['severity']:7} {f['code']} {times:>8}  {_one(f['message'])}", styles[f["severity"]])
        )
        if places:
            named = places[:_NAMED]
            more = f" … {f['count'] - len(named):,} more" if f["count"] > len(named) else ""
            blocks.append(Line(f"        at: {'; '.join(_one(p) for p in named)}{more}"))
        if f["hint"]:
            blocks.append(Line(f"        mend: {_one(f['hint'])}"))
    return blocks


def _one(text: str) -> str:
    return " ".join(text.split())
