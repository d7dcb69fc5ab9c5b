"""``accredit methods``: the catalogue, read from a file so that it opens without the number libraries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from importlib.resources import files
from typing import Any

import click

from accredit.cli.options import (
    as_json,
    format_option,
    group_size_option,
    key_option,
    mapping_of,
    mapping_option,
    retokenize_option,
)
from accredit.cli.output import emit_json
from accredit.errors import ParamError, suggest

__all__ = ["command"]


@click.command("methods")
@click.argument("method", required=False)
@click.option(
    "--without",
    metavar="FIELD",
    multiple=True,
    help="Only methods that do not need this field, e.g. logprobs.",
)
@click.option(
    "--for",
    "file",
    metavar="FILE",
    type=click.Path(),
    help="Which methods to begin with on these rollouts, ranked with reasons, and what the others lack.",
)
@key_option
@format_option
@mapping_option
@group_size_option
@retokenize_option
@as_json
def command(
    method: str | None,
    without: tuple[str, ...],
    file: str | None,
    as_json: bool,
    key: str | None,
    mapping: tuple[str, ...],
    **reading: Any,
) -> None:
    """List the methods, or show one with its parameters, their ranges and what it needs.

    The options of reading and --key go with --for.
    """
    if file is None and (key or mapping or any(reading.values())):
        raise ParamError("--key and the options of reading go with --for FILE")
    from accredit.views.catalog_tables import catalog_blocks, method_blocks
    from accredit.views.tables import show

    entries = _catalogue()
    if method is not None:
        entry = _entry(entries, method)
        emit_json(entry) if as_json else show(method_blocks(entry))
        return
    _refuse_unneeded(entries, without)
    kept = [e for e in entries if not any(_needs_field(e, field) for field in without)]
    if file is not None:
        left_out = [e["id"] for e in entries if e not in kept]
        _advise(file, left_out, key, {**reading, "mapping": mapping_of(mapping)}, as_json=as_json)
    elif as_json:
        emit_json(kept)
    else:
        show(catalog_blocks(kept, _third_parties()))


def _refuse_unneeded(entries: Sequence[dict[str, Any]], without: Sequence[str]) -> None:
    needed = {field for entry in entries for need in entry["needs"] for field in need.split("|")}
    for field in without:
        if field not in needed:
            raise ParamError(f"no method needs a field {field!r}", hint=suggest(field, needed))


def _catalogue() -> list[dict[str, Any]]:
    """Cards of our methods; written by ``python -m accredit.methods``, equal to the registry by a test."""
    text = files("accredit").joinpath("catalog.json").read_text(encoding="utf-8")
    entries: list[dict[str, Any]] = json.loads(text)["methods"]
    return entries


def _entry(entries: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    """The card of an id or alias; a third party's is loaded with its code."""
    head = name.partition(":")[0]
    for entry in entries:
        if head == entry["id"] or head in entry["aliases"]:
            return entry
    if head in _third_parties():
        import accredit as ac

        for card in ac.catalog():
            if card.id == head:
                return card.to_dict() | {"doc": ""}
    known = [e["id"] for e in entries] + [a for e in entries for a in e["aliases"]] + _third_parties()
    raise ParamError(f"no method {head!r}", hint=suggest(head, known))


def _third_parties() -> list[str]:
    return sorted(point.name for point in entry_points(group="accredit.methods"))


def _needs_field(entry: dict[str, Any], field: str) -> bool:
    """Whether no alternative of some need goes without the field."""
    return any(set(need.split("|")) == {field} for need in entry["needs"])


def _advise(
    file: str, left_out: Sequence[str], key: str | None, reading: Mapping[str, Any], *, as_json: bool
) -> None:
    """Show the advice for a file, without some methods."""
    import accredit as ac
    from accredit.advice import advise
    from accredit.views.advice_tables import advice_blocks
    from accredit.views.tables import show

    document = advise(ac.read(file, **reading), without=left_out, key=key).to_dict()
    emit_json(document) if as_json else show(advice_blocks(document))
