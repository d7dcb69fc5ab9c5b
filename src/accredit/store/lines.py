"""Small JSON Lines files, read whole: a header if there is one, then one object a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from accredit.data import FindingLog
from accredit.errors import DataError, kind_of
from accredit.store.decode import Decoder
from accredit.store.limits import Limits
from accredit.store.schema import check_schema, header_fields
from accredit.store.streams import Source

__all__ = ["read_objects"]


def read_objects(path: str | Path, schema: str, limits: Limits) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield place and fields of each object of a JSON Lines file, the header (if any) first.

    Unlike rollouts, these files are made by programs: a line that cannot be read stops it.

    Args:
        path: the file.
        schema: what it should hold; checked wherever a line names one.
        limits: bounds of the reading.

    Raises:
        VersionError: if a line names a newer version of the schema.
        DataError: at the first line that is not a JSON object, or of another schema.
    """
    source = Source(Path(path), limits)
    decoder = Decoder(limits, FindingLog(), strict=True)
    for number, line in source.lines():
        where = source.place(number)
        if isinstance(line, DataError):
            raise line
        if not line.strip():
            continue
        value = decoder.decode(line, where)
        if not isinstance(value, Mapping):
            raise DataError(
                f"the line is {kind_of(value)}, not an object",
                code="ACC904",
                where=where,
                hint=f"Each line is one object of schema {schema}",
            )
        if "schema" in value:
            check_schema(value["schema"], schema, where)
        yield where, value
    if source.broken is not None:
        raise source.broken


def is_header(value: Mapping[str, Any]) -> bool:
    """Return whether an object is a header rather than a row."""
    return header_fields(value) is not None
