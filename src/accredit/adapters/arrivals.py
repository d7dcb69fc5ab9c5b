"""Do something once a module has been imported, without importing it.

A trainer's plug-in is loaded in every worker process; most of them never compute an advantage and
must not pay for the modules that do.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import logging
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from accredit.errors import AccreditError

__all__ = ["when_imported"]

logger = logging.getLogger("accredit")
_WAITING: dict[str, list[str]] = {}


def when_imported(module: str, action: str) -> None:
    """Call ``action`` with a module right after its first import; now, if it is imported already.

    Args:
        module: its full name.
        action: ``"package.module:function"``, imported only then.

    An action that fails leaves the module as it is and logs one warning.
    """
    found = sys.modules.get(module)
    spec = getattr(found, "__spec__", None)
    if found is not None and not getattr(spec, "_initializing", False):
        _act(found, action)
        return
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    actions = _WAITING.setdefault(module, [])
    if action not in actions:
        actions.append(action)


def _act(module: ModuleType, action: str) -> None:
    home, _, name = action.partition(":")
    try:
        getattr(importlib.import_module(home), name)(module)
    except (AccreditError, ImportError, AttributeError) as error:
        logger.warning("accredit leaves %s as it is: %s", module.__name__, error)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules that are waited for through the other finders, and follows their loading."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module's own spec with a loader that acts afterwards; None for all others."""
        if fullname not in _WAITING:
            return None
        for finder in sys.meta_path:
            if isinstance(finder, _Finder) or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """As the module's own loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Load the module, then act."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        for action in _WAITING.pop(module.__name__, []):
            _act(module, action)
