"""Files of rollouts, read as untrusted input: one file a format, recognised from content."""

# Each module registers its formats.
from accredit.readers import (
    atif,
    chat_rows,
    document,
    inspect_log,
    jsonl,
    math_aps,
    nemo_gym,
    openhands,
    otel,
    parquet,
    react,
    step_labels,
    swe_agent,
    tau_bench,
    trl,
    verifiers,
    verifiers_trace,
    verl_dump,
    who_when,
)
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
    "atif",
    "chat_rows",
    "convert",
    "document",
    "formats",
    "inspect_log",
    "jsonl",
    "math_aps",
    "nemo_gym",
    "openhands",
    "otel",
    "parquet",
    "react",
    "read",
    "register",
    "step_labels",
    "swe_agent",
    "tau_bench",
    "trl",
    "verifiers",
    "verifiers_trace",
    "verl_dump",
    "who_when",
]
