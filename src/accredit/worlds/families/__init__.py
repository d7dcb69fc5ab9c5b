"""The task families of the credit benchmark, one file each with ``make(seed, **size) -> Task``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from accredit.errors import ParamError, suggest
from accredit.worlds.tabular import Task

__all__ = ["FAMILIES", "make"]

FAMILIES = (
    "rooms", "keydoor", "umbrella", "lock", "team", "coop", "dag", "pivot", "toklm", "selfplay",
)  # fmt: skip


def make(family: str, seed: int, **size: Any) -> Task:
    """Return a task of a family.

    Args:
        family: one of `FAMILIES`.
        seed: of the task.
        size: arguments of the family's ``make``.

    Raises:
        ParamError: if there is no such family.

    Example:
        >>> make("rooms", seed=1, rooms=6).horizon
        12
    """
    if family not in FAMILIES:
        raise ParamError(f"no task family {family!r}. {suggest(family, FAMILIES)}")
    found: Task = import_module(f"accredit.worlds.families.{family}").make(seed, **size)
    return found
