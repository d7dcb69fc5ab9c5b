"""What `compare` says of rules that contradict each other: how they fared on exact token truth.

``python -m accredit.benchmark.token_evidence DIR`` writes it anew from the ``tokens.json`` of a full run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import accredit
from accredit.benchmark.tokens import ALL

__all__ = ["numbers_of"]

RATE = "0.5"
MEASURES = ("spearman_success", "spearman_failure")


def numbers_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return each method's order inside successes and failures, all rules, half of the rollouts succeeding.

    Args:
        document: ``Tokens.to_dict()``.
    """
    methods: dict[str, dict[str, list[float]]] = {}
    for row in document["rows"]:
        if (row["kind"], row["rule"], row["success_rate"]) == ("method", ALL, RATE) and not row["unable"]:
            methods[row["method"]] = {name: _ends(row["metrics"][name]) for name in MEASURES}
    scale = document["plan"]["scale"]
    tasks = scale["seeds"] * len(scale["rules"])
    return {"version": document["plan"]["version"], "tasks": tasks, "methods": methods}


def _ends(found: Mapping[str, float]) -> list[float]:
    return [round(found[part], 4) + 0.0 for part in ("value", "low", "high")]


if __name__ == "__main__":
    found = numbers_of(json.loads((Path(sys.argv[1]) / "tokens.json").read_text(encoding="utf-8")))
    path = Path(accredit.__file__).parent / "token_evidence.json"
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
