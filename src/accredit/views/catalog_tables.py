"""The catalogue of methods as tables, from its JSON entries; imports no numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accredit.views.tables import Line, Table

__all__ = ["catalog_blocks", "method_blocks"]


def catalog_blocks(
    entries: Sequence[Mapping[str, Any]],
    third_parties: Sequence[str] = (),
) -> list[Table | Line]:
    """Return the methods as one table.

    Args:
        entries: of the catalogue.
        third_parties: names of methods that other packages registered.
    """
    rows = [(e["family"], e["id"], e["yields"], _needs(e["needs"]), e["title"]) for e in entries]
    columns = ("family", "method", "credit per", "needs", "what it gives")
    blocks: list[Table | Line] = [Table("", columns, rows, widest=90)]
    if third_parties:
        blocks.append(Line(f"from other packages: {', '.join(third_parties)}"))
    aliases = sorted(
        f"{alias} = {e['id']} ({_given(preset)})" for e in entries for alias, preset in e["aliases"].items()
    )
    if aliases:
        blocks.append(Line(f"also known as: {'; '.join(aliases)}"))
    return [*blocks, Line("one of them: accredit methods METHOD")]


def _needs(needs: Sequence[str]) -> str:
    return ", ".join(need.replace("|", " or ") for need in needs)


def method_blocks(entry: Mapping[str, Any]) -> list[Table | Line]:
    """Return one method: title, needs, parameters with ranges, presets, description.

    Args:
        entry: of the catalogue.
    """
    blocks: list[Table | Line] = [
        Line(f"{entry['id']}: {entry['title']}", "bold"),
        Line(f"needs {_needs(entry['needs'])}; gives credit per {entry['yields']}; source {entry['cites']}"),
        Line(f"tags: {', '.join(entry['tags'])}"),
    ]
    if entry.get("loss"):
        blocks.append(Line(f"asks the trainer for the loss accredit.losses.{entry['loss']} as well"))
    blocks.append(Line(""))
    rows = [(p["name"], _shown(p["default"]), p["bounds"], p["doc"]) for p in entry["params"]]
    blocks.append(
        Table("Parameters (--set NAME=VALUE)", ("name", "default", "allowed", "meaning"), rows, widest=100)
    )
    presets = [
        *((f"--compat {name}", _given(values)) for name, values in entry["compat"].items()),
        *((f"-m {name}", _given(values)) for name, values in entry["aliases"].items()),
    ]
    if presets:
        blocks += [Line(""), Table("Presets", ("option", "stands for"), presets, widest=100)]
    return [*blocks, Line(""), Line(entry["doc"])] if entry.get("doc") else blocks


def _given(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={_shown(v)}" for k, v in values.items()) or "the defaults"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
