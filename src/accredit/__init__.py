"""accredit: which decisions of a rollout were responsible for its outcome.

``import accredit as ac``; then ``ac.read``, ``ac.check``, ``ac.assign``, ``ac.compare``,
``ac.report``. Names are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accredit.battery import check_method
    from accredit.benchmark import bench
    from accredit.checking import check
    from accredit.comparison import compare
    from accredit.data import Batch, Credit, Parts, Rollout, Step
    from accredit.engine import assign, explain
    from accredit.errors import AccreditError
    from accredit.index import Index
    from accredit.methods import bounded, catalog, method
    from accredit.oracle import truth
    from accredit.planning import plan
    from accredit.readers import read
    from accredit.resuming import resume
    from accredit.signals import probe
    from accredit.views import report

__version__ = "0.1.0"

_HOMES = {
    "AccreditError": "errors",
    "Batch": "data",
    "Credit": "data",
    "Index": "index",
    "Parts": "data",
    "Rollout": "data",
    "Step": "data",
    "assign": "engine",
    "bench": "benchmark",
    "bounded": "methods",
    "catalog": "methods",
    "check": "checking",
    "check_method": "battery",
    "compare": "comparison",
    "explain": "engine",
    "method": "methods",
    "probe": "signals",
    "plan": "planning",
    "read": "readers",
    "report": "views",
    "resume": "resuming",
    "truth": "oracle",
}

__all__ = [
    "AccreditError",
    "Batch",
    "Credit",
    "Index",
    "Parts",
    "Rollout",
    "Step",
    "assign",
    "bench",
    "bounded",
    "catalog",
    "check",
    "check_method",
    "compare",
    "explain",
    "method",
    "plan",
    "probe",
    "read",
    "report",
    "resume",
    "truth",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'accredit' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"accredit.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
