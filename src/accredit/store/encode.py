"""JSON bytes of records: numpy inside metadata is allowed, float32 numbers are written short."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accredit.data import Batch
from accredit.data.export import records
from accredit.data.header import header_of
from accredit.errors import StoreError
from accredit.typing import Array, Ints

__all__ = ["encode", "number_lists", "rollout_lines"]


def encode(value: Any) -> bytes:
    """Return the JSON of a value; NaN and infinity, which JSON lacks, are written as null.

    Raises:
        StoreError: naming the type that has no JSON form.
    """
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"a value has no JSON form: {error}",
            code="ACC914",
            hint="Keep to strings, numbers, booleans, null, lists and objects in metadata and signals",
        ) from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)


def number_lists(values: Array, start: Ints) -> Sequence[Any]:
    """Return one JSON list of numbers a step, each in its shortest exact form.

    Args:
        values: ``[n]`` numbers or ``[n, d]`` vectors, finite.
        start: offsets of the steps, from 0 to n.
    """
    if values.dtype == np.float16:
        values = values.astype(np.float32)
    text = pa.array(values.reshape(-1)).cast(pa.string())
    if values.ndim == 2:
        rows = pa.array(np.arange(len(values) + 1) * values.shape[1], pa.int64())
        inner = pc.binary_join(pa.LargeListArray.from_arrays(rows, text), ",")
        text = pc.binary_join_element_wise("[", inner, "]", "")
    joined = pc.binary_join(pa.LargeListArray.from_arrays(pa.array(start, pa.int64()), text), ",")
    return [msgspec.Raw(b"[" + line.encode() + b"]") for line in joined.to_pylist()]


def rollout_lines(batch: Batch, *, header: bool = True) -> Iterator[bytes]:
    """Yield the lines of a native file, header first, each with its line end."""
    first: Iterable[Any] = [header_of(batch)] if header else []
    for record in chain(first, records(batch, number_lists)):
        yield encode(record) + b"\n"
