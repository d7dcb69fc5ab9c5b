"""Results made visible: one offline HTML file, pictures as SVG, notebook and terminal views."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accredit.views.notebook import notebook_html
    from accredit.views.plots import Plots
    from accredit.views.write import report

_HOMES = {"Plots": "plots", "notebook_html": "notebook", "report": "write"}

__all__ = ["Plots", "notebook_html", "report"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'accredit.views' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"accredit.views.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
