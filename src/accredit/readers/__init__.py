"""Files of rollouts, read as untrusted input: one file a format, recognised from content."""

from accredit.readers import document, jsonl, parquet  # each registers its formats
from accredit.readers.convert import Converted, convert
from accredit.readers.formats import Format, Head, Item, Reading, formats, register
from accredit.readers.reading import read
from accredit.store.limits import Limits

__all__ = [
    "Converted",
    "Format",
    "Head",
    "Item",
    "Limits",
    "Reading",
    "convert",
    "document",
    "formats",
    "jsonl",
    "parquet",
    "read",
    "register",
]
