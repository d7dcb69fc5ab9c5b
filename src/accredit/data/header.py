"""What a file of rollouts says about itself: schema, columns, the reward convention, what reading found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from accredit.data.finding import Exclusion, Finding
from accredit.data.layout import Layout, layouts, parse_layouts
from accredit.data.records import SCHEMA

if TYPE_CHECKING:
    from accredit.data.batch import Batch

__all__ = ["Header", "header_of", "parse_header"]


@dataclass(frozen=True, slots=True)
class Header:
    """A file's own account of its rollouts.

    Args:
        layouts: columns that the batch had when it was written.
        outcome_in_steps: the reward convention, if it was decided for the whole source.
        findings: made when the source was first read.
        excluded: rollouts of the source that are not in the file.
        provenance: of the batch that was written.
        given: False for files that have none.
    """

    layouts: tuple[Layout, ...] = ()
    outcome_in_steps: bool | None = None
    findings: tuple[Finding, ...] = ()
    excluded: tuple[Exclusion, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    given: bool = True

    def __bool__(self) -> bool:
        return self.given

    def joined(self, other: Header) -> Header:
        """Return the header of two files read as one source; the convention is decided anew."""
        return Header(
            (*self.layouts, *other.layouts),
            None,
            (*self.findings, *other.findings),
            (*self.excluded, *other.excluded),
            {**self.provenance, **other.provenance},
        )


def header_of(batch: Batch) -> dict[str, Any]:
    """Return the header of a file that holds this batch, JSON-ready."""
    return {
        "schema": SCHEMA,
        "rollouts": len(batch),
        "outcome_in_steps": batch.outcome_in_steps,
        "provenance": dict(batch.provenance),
        "columns": [layout.to_dict() for layout in layouts(batch)],
        "findings": [finding.to_dict() for finding in batch.findings],
        "excluded": [exclusion.to_dict() for exclusion in batch.excluded],
    }


def parse_header(fields: Mapping[str, Any]) -> Header:
    """Return the header that a file gives; what cannot be understood is left out.

    Args:
        fields: the header's JSON object; its schema has been checked already.
    """
    outcome = fields.get("outcome_in_steps")
    made = fields.get("provenance")
    return Header(
        tuple(parse_layouts(fields.get("columns"))),
        outcome if isinstance(outcome, bool) else None,
        tuple(Finding.from_dict(f) for f in _objects(fields.get("findings"))),
        tuple(Exclusion.from_dict(e) for e in _objects(fields.get("excluded"))),
        made if isinstance(made, Mapping) else {},
    )


def _objects(found: Any) -> list[Mapping[str, Any]]:
    return [f for f in found if isinstance(f, Mapping)] if isinstance(found, list) else []
