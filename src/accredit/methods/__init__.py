"""Credit methods: one file a method, pure functions from an Index to Parts."""

from accredit.methods import gigpo, grpo, hgpo
from accredit.methods._params import (
    GroupParams,
    bounded,
    choice,
    flag,
    make_params,
    mapping,
)
from accredit.methods._registry import Method, catalog, doc_of, get_method, method, parse_value

__all__ = [
    "GroupParams",
    "Method",
    "bounded",
    "catalog",
    "choice",
    "doc_of",
    "flag",
    "get_method",
    "gigpo",
    "grpo",
    "hgpo",
    "make_params",
    "mapping",
    "method",
    "parse_value",
]
