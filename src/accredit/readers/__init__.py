"""Files of rollouts, read as untrusted input: one file a format, recognised from content."""

# Each module registers its formats; of those equally sure of a file, the first named takes it.
from accredit.readers import document, jsonl, parquet  # isort: skip
from accredit.readers import atif, nemo_gym, openhands, react, swe_agent, tau_bench, who_when  # isort: skip
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
