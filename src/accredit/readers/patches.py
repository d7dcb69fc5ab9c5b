"""A store of values followed through JSON patches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Store"]


class Store:
    """The content of a store after some changes; a change that does not fit ends the following.

    Example:
        >>> store = Store()
        >>> store.apply([{"op": "add", "path": "/a~1b", "value": [1]}])
        >>> store.apply([{"op": "add", "path": "/a~1b/-", "value": 2}])
        >>> store.content, store.changed
        ({'a/b': [1, 2]}, True)
    """

    def __init__(self) -> None:
        self.content: dict[str, Any] = {}
        self.changed = False
        self._lost = False

    def apply(self, changes: list[Any]) -> None:
        """Follow some changes (``op``, ``path``, ``value``)."""
        for change in changes:
            if not self._lost:
                self._lost = not (isinstance(change, Mapping) and self._one(change))
                self.changed = not self._lost

    def _one(self, change: Mapping[str, Any]) -> bool:
        path = change.get("path")
        if not isinstance(path, str) or not path.startswith("/"):
            return False
        *way, last = (part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/"))
        holder: Any = self.content
        for part in way:
            holder = _member(holder, part)
        op = change.get("op")
        if isinstance(holder, dict):
            return _in_object(holder, last, str(op), change.get("value"))
        return isinstance(holder, list) and _in_list(holder, last, str(op), change.get("value"))


def _member(holder: Any, part: str) -> Any:
    if isinstance(holder, dict):
        return holder.get(part)
    if isinstance(holder, list) and part.isdigit() and len(part) < 10 and int(part) < len(holder):
        return holder[int(part)]
    return None


def _in_object(holder: dict[str, Any], key: str, op: str, value: Any) -> bool:
    if op in ("add", "replace"):
        holder[key] = value
        return True
    return op == "remove" and holder.pop(key, holder) is not holder


def _in_list(holder: list[Any], key: str, op: str, value: Any) -> bool:
    if key == "-" and op == "add":
        holder.append(value)
        return True
    if not (key.isdigit() and len(key) < 10 and int(key) <= len(holder)):
        return False
    at = int(key)
    if op == "add":
        holder.insert(at, value)
    elif op in ("replace", "remove") and at < len(holder):
        holder[at : at + 1] = [value] if op == "replace" else []
    else:
        return False
    return True
