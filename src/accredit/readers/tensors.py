"""Named arrays of numbers from safetensors and npz files, read as untrusted input: nothing is unpickled.

Both formats are read here: safetensors is a JSON header and raw bytes, npz a ZIP archive of numpy's own
form. Every size is checked against the bytes that are there before an array is made.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from accredit.errors import DataError
from accredit.readers.archive import Archive
from accredit.readers.formats import Head
from accredit.store.limits import Limits
from accredit.store.streams import Source
from accredit.typing import Array

__all__ = ["PICKLED", "holds_tensors", "is_pickle", "read_tensors"]

PICKLED = (".pkl", ".pickle", ".pt", ".pth")
_ZIP = b"PK\x03\x04"
_MAX_HEADER = 100_000_000  # the format's own bound
_DTYPES = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F16": "<f2",
    "BF16": "<u2",
    "F32": "<f4",
    "F64": "<f8",
}


def holds_tensors(head: Head) -> bool:
    """Return whether a file is safetensors or npz, by its first bytes."""
    return _is_safetensors(head.magic) or _member(head.magic).endswith(b".npy")


def is_pickle(source: Source) -> bool:
    """Return whether a file is a pickle, or an archive of torch that holds one, by bytes or name."""
    magic = source.magic
    begins = magic[:1] == b"\x80" and magic[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    named = source.path.suffix.lower() in PICKLED
    return begins or _member(magic).endswith(b"data.pkl") or named


def _is_safetensors(magic: bytes) -> bool:
    return len(magic) > 9 and magic[8:9] == b"{" and 2 <= int.from_bytes(magic[:8], "little") <= _MAX_HEADER


def _member(magic: bytes) -> bytes:
    """Name of the first member of a ZIP archive, as far as the first bytes of the file hold it."""
    return magic[30 : 30 + int.from_bytes(magic[26:28], "little")] if magic.startswith(_ZIP) else b""


def read_tensors(source: Source, limits: Limits) -> dict[str, Array]:
    """Return the arrays of a safetensors or npz file by name; bfloat16 comes as float32.

    Args:
        source: the file.
        limits: bounds of the reading.

    Raises:
        DataError: if the file is damaged, or an array holds anything but numbers.
    """
    if source.magic.startswith(_ZIP):
        archive = Archive.open(source.path, limits)
        names = [name for name in archive.members if name.endswith(".npy")]
        return {name.removesuffix(".npy"): _npy(archive.read(name), source, name) for name in names}
    limits.check(f"{source.name} has bytes:", source.size, "total_bytes", str(source.path))
    with source.path.open("rb") as file:
        return _safetensors(file, source)


def _damaged(source: Source, why: str) -> DataError:
    return DataError(f"{source.name} {why}", code="ACC909", where=source.name, hint="Write the file again")


def _safetensors(file: BinaryIO, source: Source) -> dict[str, Array]:
    size = int.from_bytes(file.read(8), "little")
    if not 2 <= size <= min(_MAX_HEADER, source.size - 8):
        raise _damaged(source, "is no whole safetensors file: its header goes beyond its end")
    try:
        header = json.loads(file.read(size))
    except (ValueError, RecursionError) as error:
        raise _damaged(source, f"has a header that is not JSON: {error}") from error
    if not isinstance(header, Mapping):
        raise _damaged(source, "has a header that is no object")
    data = source.size - 8 - size
    entries = {str(k): v for k, v in header.items() if k != "__metadata__"}
    spans = {name: _span(entry, data, name, source) for name, entry in entries.items()}
    if sum(end - begin for begin, end in spans.values()) > data:
        raise _damaged(source, "has tensors that share their bytes")
    found = {}
    for name, (begin, end) in spans.items():
        file.seek(8 + size + begin)
        found[name] = _numbers(file.read(end - begin), entries[name])
    return found


def _span(entry: Any, data: int, name: str, source: Source) -> tuple[int, int]:
    """Half-open byte range of a tensor, which must be just what its shape needs."""
    fields = entry if isinstance(entry, Mapping) else {}
    shape, span = _whole(fields.get("shape")), _whole(fields.get("data_offsets"))
    dtype = _DTYPES.get(str(fields.get("dtype")))
    if dtype is None or shape is None or span is None or len(span) != 2:
        raise _damaged(source, f"has a tensor {name!r} of a kind that is not read: {str(fields)[:80]}")
    begin, end = span
    if not begin <= end <= data or end - begin != math.prod(shape) * np.dtype(dtype).itemsize:
        raise _damaged(source, f"has a tensor {name!r} whose bytes are not those of its shape")
    return begin, end


def _whole(value: Any) -> list[int] | None:
    whole = isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)
    return value if whole else None


def _numbers(raw: bytes, entry: Mapping[str, Any]) -> Array:
    found = np.frombuffer(raw, _DTYPES[entry["dtype"]])
    if entry["dtype"] == "BF16":  # the upper half of a float32
        found = (found.astype(np.uint32) << 16).view(np.float32)
    return found.reshape(entry["shape"])


def _npy(content: bytes, source: Source, member: str) -> Array:
    stream = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(stream)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else _header_2
        shape, fortran, dtype = header(stream)
    except (ValueError, EOFError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise _damaged(source, f"member {member} is no array of numpy: {error}") from error
    if dtype.kind not in "biuf":
        kind = "records" if dtype.names is not None else f"values of type {dtype.name}"
        raise DataError(
            f"{source.name} member {member} holds {kind}, not numbers",
            code="ACC866",
            where=source.name,
            hint="Objects are pickles, which are never read: put them into the JSON file beside it",
        )
    if math.prod(shape) * dtype.itemsize != len(content) - stream.tell():
        raise _damaged(source, f"member {member} has bytes that are not those of its shape")
    flat = np.frombuffer(content, dtype, offset=stream.tell())
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def _header_2(stream: BinaryIO) -> Any:
    return np.lib.format.read_array_header_2_0(stream)
