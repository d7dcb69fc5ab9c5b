"""Methods against a truth as tables, and what is to be said of the truth itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accredit.views.tables import Line, Table, estimated, number

__all__ = ["against_blocks", "best_first", "truth_lines"]

_NEAR = (("rank", "rank correlation"), ("sign", "sign"), ("cosine", "gradient cosine"), ("bias", "bias"))


def best_first(rows: Any) -> list[Any]:
    """Return the rows of methods by rank correlation, those without one last.

    Args:
        rows: of ``Against``, each with ``rank`` as a mapping or None.
    """
    return sorted(rows, key=lambda row: -row["rank"]["value"] if row["rank"] else 2.0)


def against_blocks(truth: Mapping[str, Any]) -> list[Table | Line]:
    """Return each method against the truth, best first, then what the truth itself is worth.

    Args:
        truth: ``Comparison.to_dict()["truth"]``.
    """
    rows = best_first(truth["rows"])
    near = [(row["label"], *(cell for name, _ in _NEAR for cell in estimated(row[name]))) for row in rows]
    columns = ("method", *(cell for _, title in _NEAR for cell in (f">{title}", "95 %")))
    sizes = ", ".join(
        f"{n:,} {word}{'' if n == 1 else 's'}"
        for word, n in ((w, truth[f"n_{w}s"]) for w in ("step", "rollout", "group"))
    )
    sized = [
        (
            row["label"],
            *estimated(row["nmse"]),
            *estimated(row["tau"]),
            *(number(row["numbers"].get(name), 3) for name in ("sign_failure", "alternatives")),
        )
        for row in rows
    ]
    more = ("method", ">NMSE", "95 %", ">tau in rollouts", "95 %", ">sign in failures", ">alternatives")
    return [
        Table(f"Against the truth of {sizes}", columns, near),
        Line(""),
        Table("Errors of size, order within a rollout", more, sized),
        *map(Line, truth_lines(truth)),
    ]


def truth_lines(truth: Mapping[str, Any]) -> list[str]:
    """Return what is to be said of a truth: what it is, what it lacks, and how far it can be trusted.

    Args:
        truth: ``Comparison.to_dict()["truth"]``.
    """
    about, unknown = truth["about"], truth["unknown"]
    lines = [what] if (what := _what(about)) else []
    if about.get("verdict"):
        lines.append(str(about["verdict"]))
    lines.append(_trust(truth["reliability"]))
    if unknown:
        lines.append(f"{unknown:,} steps have no known truth" if unknown > 1 else "1 step has no known truth")
    return lines


def _what(about: Mapping[str, Any]) -> str:
    """Kind, world and policy, as far as the file tells them."""
    kind = str(about.get("kind", "")).replace("_", " ")
    parts = [
        f"{kind} truth" if kind else "",
        f"of {about['world']}" if about.get("world") else "",
        f"under {about['policy']}" if about.get("policy") else "",
    ]
    said = " ".join(part for part in parts if part)
    each = f", {about['continuations']} continuations a side" if about.get("continuations") else ""
    return said[:1].upper() + said[1:] + each if said else ""


def _trust(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "The reference's own reliability is unknown: its rows have no se and no n"
    if found["basis"] == "exact":
        return "The reference is exact: the truth itself would reach NMSE 0 and correlation 1"
    return (
        f"The reference is {found['whole']:.2f} reliable (its halves would correlate {found['halves']:.2f}): "
        f"the truth itself would reach correlation {found['ceiling']:.2f} and NMSE {found['floor']:.2f}"
    )
