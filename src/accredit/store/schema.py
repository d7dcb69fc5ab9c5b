"""Schemas of files: a name, a version, and a refusal to guess at versions of the future."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accredit.errors import DataError, VersionError

__all__ = ["ANNOTATION", "CREDIT", "ROLLOUTS", "TABLES", "TRUTH", "check_schema"]

ROLLOUTS = "accredit.rollouts/1"
CREDIT = "accredit.credit/1"
TRUTH = "accredit.truth/1"
TABLES = "accredit.tables/1"
ANNOTATION = "accredit.annotation/1"
_WHAT = {
    "accredit.rollouts": "rollouts: give it to `read`",
    "accredit.credit": "credit of steps: give it to `read_credit`",
    "accredit.truth": "true step values: give it to `read_truth`",
    "accredit.tables": "worlds as tables: give it to `oracle.read_tables`",
    "accredit.annotation": "annotations of rollouts: give it to `read_annotations`",
}


def check_schema(found: Any, wanted: str, where: str) -> None:
    """Accept the schema that a file names, or say what it is.

    Args:
        found: the value of its ``schema`` field.
        wanted: the schema that the caller reads, such as ``accredit.credit/1``.
        where: the file.

    Raises:
        VersionError: if it is a newer version of the wanted schema.
        DataError: if it is another schema.

    Example:
        >>> check_schema("accredit.credit/1", CREDIT, "credit.jsonl")
    """
    if found == wanted:
        return
    name, _, version = wanted.partition("/")
    got, _, number = str(found).partition("/")
    if got == name and number.isdecimal() and number.isascii() and int(number[:9]) > int(version):
        raise VersionError(
            f"the file has schema {_short(found)}, and this release reads {wanted}",
            code="ACC910",
            where=where,
            hint="Update accredit: pip install -U accredit",
        )
    known = _WHAT.get(got)
    raise DataError(
        f"the file has schema {_short(found)}, not {wanted}",
        code="ACC910",
        where=where,
        hint=f"It holds {known}" if known and got != name else f'Write "schema": "{wanted}", or leave it out',
    )


def header_fields(first: Any) -> Mapping[str, Any] | None:
    """Return the first object of a file if it is a header: it has a schema and no rollout."""
    if isinstance(first, Mapping) and "schema" in first and not {"id", "steps", "rollout"} & first.keys():
        return first
    return None


def _short(found: Any) -> str:
    text = repr(found)
    return text if len(text) <= 60 else text[:57] + "..."
