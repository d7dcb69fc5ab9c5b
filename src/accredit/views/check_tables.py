"""A check of rollouts as tables: findings first, then the numbers of the batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from accredit.views.credit_tables import finding_blocks, left_out_blocks
from accredit.views.tables import Line, Table, number, share

__all__ = ["check_blocks"]


def check_blocks(document: Mapping[str, Any]) -> list[Table | Line]:
    """Return a check as text: a sentence, findings with mend, exclusions, numbers.

    Args:
        document: ``Report.to_dict()`` with ``excluded`` and ``file``.
    """
    findings = document["findings"]
    counted = {s: sum(f["severity"] == s for f in findings) for s in ("error", "warning", "info")}
    told = ", ".join(f"{n} {name}{'' if n == 1 else 's'}" for name, n in counted.items() if n)
    blocks: list[Table | Line] = [Line(f"{document['file']}: {told or 'nothing found'}", "bold")]
    blocks += finding_blocks(findings)
    summary = document["summary"]
    left = {"rollouts": summary["rollouts"], "excluded": document["excluded"], "uncounted": {}}
    return [*blocks, Line(""), *left_out_blocks(left), Line(""), _numbers(summary)]


def _numbers(summary: Mapping[str, Any]) -> Table:
    return Table("", ("numbers", ""), list(_rows(summary)), widest=1000)


def _rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    rollouts, groups, states = summary["rollouts"], summary["groups"], summary["states"]
    statuses = ", ".join(f"{n:,} {name}" for name, n in rollouts["statuses"].items() if n)
    yield (
        "rollouts",
        f"{rollouts['scored']:,} scored, {rollouts['unscored']:,} unscored; status: {statuses or 'none'}",
    )
    yield "groups", f"{groups['count']:,} of {groups['smallest']:,} to {groups['largest']:,} rollouts"
    spread = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in groups["spread"].items() if n)
    yield "group rewards", f"{spread}; {share(groups['zero_spread_share'])} of groups without spread"
    yield "reward", _distribution(summary["reward"])
    yield "success", f"{share(summary['success'])} of scored rollouts have a positive outcome"
    yield (
        "steps",
        f"{summary['steps']['count']:,}; a rollout: {_distribution(summary['steps']['per_rollout'])}",
    )
    tokens = summary["tokens"]
    yield (
        "policy tokens",
        f"{tokens['count']:,}, {tokens['trained']:,} trained; {tokens['context']:,} context tokens",
    )
    if states["steps"]:
        yield (
            "states",
            (
                f"{states['distinct']:,} in {states['steps']:,} steps; {share(states['shared'])} of steps "
                "in a state that another rollout of the group visits"
            ),
        )
    yield (
        "columns",
        ", ".join(f"{name} {share(s)}" if s < 1 else name for name, s in summary["signals"].items()),
    )


def _distribution(d: Mapping[str, Any]) -> str:
    if not d["n"]:
        return "none"
    ends = f"{number(d['min'])} to {number(d['max'])}"
    return f"mean {number(d['mean'])}, median {number(d['median'])}, from {ends}"
