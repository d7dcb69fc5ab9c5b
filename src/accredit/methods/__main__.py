"""Write the static catalogue that ``accredit methods`` reads: ``python -m accredit.methods``.

The command line lists methods without importing numpy; so their cards are kept as JSON beside the
code, and a test compares the file with the registry.
"""

from __future__ import annotations

import inspect
import json
import math
from pathlib import Path
from typing import Any

from accredit.methods._registry import catalog, get_method

__all__ = ["CATALOG", "SCHEMA", "catalog_text"]

CATALOG = Path(__file__).parents[1] / "catalog.json"
SCHEMA = "accredit.catalog/1"


def catalog_text() -> str:
    """Return the cards of accredit's own methods as JSON text, with their docstrings."""
    entries = [_entry(card.id) for card in catalog() if _ours(card.id)]
    document = {"schema": SCHEMA, "methods": entries}
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _ours(id: str) -> bool:
    return get_method(id)[0].function.__module__.startswith("accredit.")


def _entry(id: str) -> dict[str, Any]:
    found = get_method(id)[0]
    card = found.card.to_dict()
    for spec in card["params"]:
        if isinstance(spec["default"], float) and math.isinf(spec["default"]):
            spec["default"] = "inf" if spec["default"] > 0 else "-inf"  # JSON has no infinity
    return card | {"doc": inspect.getdoc(found.function) or ""}


if __name__ == "__main__":
    CATALOG.write_text(catalog_text(), encoding="utf-8")
