"""Credit methods: one file a method, pure functions from an Index to Parts."""

from accredit.methods import (
    crbc,
    gae,
    gigpo,
    gpg,
    graft,
    graph_hca,
    grpo,
    hgpo,
    opo,
    reinforce_pp,
    remax,
    rloo,
    td,
)
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
    "crbc",
    "doc_of",
    "flag",
    "gae",
    "get_method",
    "gigpo",
    "gpg",
    "graft",
    "graph_hca",
    "grpo",
    "hgpo",
    "make_params",
    "mapping",
    "method",
    "opo",
    "parse_value",
    "reinforce_pp",
    "remax",
    "rloo",
    "td",
]
