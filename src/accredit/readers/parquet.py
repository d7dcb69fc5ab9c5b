"""Parquet: files that accredit wrote, column by column; rows of anyone else, as records."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from accredit.errors import DataError
from accredit.readers.formats import Format, Head, Item, Reading, register
from accredit.readers.jsonl import is_native
from accredit.store.batches import load_parquet
from accredit.store.decode import known_only
from accredit.store.parquet import KEY
from accredit.store.streams import Source

__all__ = ["PARQUET", "ROWS", "as_json", "parquet_head", "parquet_rows"]

_ROWS_AT_ONCE = 256


def _broken(source: Source, error: Exception) -> DataError:
    return DataError(
        f"{source.name} is not a whole Parquet file: {str(error)[:200]}",
        code="ACC909",
        where=str(source.path),
        hint="Copy or write the file again",
    )


def parquet_head(source: Source) -> Head:
    """Return what the footer of a Parquet file tells.

    Raises:
        DataError: if the file is cut off or damaged.
    """
    try:
        schema = pq.read_schema(source.path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _broken(source, error) from error
    note = "accredit" if KEY in (schema.metadata or {}) else ""
    return Head(source.name, source.magic, b"", None, tuple(schema.names), note)


def _own(head: Head) -> int:
    return 3 if head.note else 0


def _foreign(head: Head) -> int:
    example = dict.fromkeys(head.columns) | ({"steps": []} if "steps" in head.columns else {})
    return is_native(example) if head.columns and not head.note else 0


def _check_size(reading: Reading) -> None:
    """Check what the footer says before anything is unpacked."""
    source = reading.source
    try:
        footer = pq.read_metadata(source.path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _broken(source, error) from error
    # Only plain numbers of the footer: asking Arrow for a damaged column's details aborts the process.
    for i in range(footer.num_row_groups):
        size = footer.row_group(i).total_byte_size
        reading.limits.check(f"row group {i} has bytes:", size, "line_bytes", str(source.path))


def _batches(reading: Reading) -> Iterator[Item]:
    _check_size(reading)
    yield Item(str(reading.source.path), load_parquet(reading.source.path))


def _records(reading: Reading) -> Iterator[Item]:
    for where, record in parquet_rows(reading):
        yield Item(where, _plain(record))


def parquet_rows(reading: Reading) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield place and fields of each row of a Parquet file, some hundred rows in memory at a time.

    Raises:
        DataError: if the file is damaged or passes a limit.
    """
    _check_size(reading)
    source, number = reading.source, 0
    try:
        with pq.ParquetFile(source.path) as file:
            for part in file.iter_batches(_ROWS_AT_ONCE):
                for record in part.to_pylist():
                    yield f"{source.name} row {number}", record
                    number += 1
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        if isinstance(error, DataError):
            raise
        raise _broken(source, error) from error


def as_json(value: Any) -> Any:
    """Return a value of a table as JSON: NaN (a null in data frames) is null, dates and bytes are texts."""
    if isinstance(value, dict):
        return {str(k): as_json(v) for k, v in value.items()}
    if isinstance(value, list):
        return [as_json(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


def _plain(record: dict[str, Any]) -> Any:
    """Return a row as a native record: JSON text unpacked, NaN (a null in data frames) left out."""
    for name in ("steps", "metadata", "rewards"):
        if isinstance(record.get(name), str):
            try:
                record[name] = json.loads(record[name])
            except (ValueError, RecursionError):
                continue
    return known_only(record)


PARQUET = register(Format("parquet", "Parquet that accredit wrote", _own, _batches))
ROWS = register(Format("parquet-rows", "Parquet with one native record a row", _foreign, _records))
