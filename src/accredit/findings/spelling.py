"""Checks of names: fields that are not known and nearly are."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from accredit.data import Batch, Finding
from accredit.data.vocabulary import CONTROL, NAMED_SIGNALS, ROLLOUT_FIELDS, STEP_FIELDS
from accredit.findings.codes import CODES
from accredit.findings.scene import Check, Scene

__all__ = ["CHECKS"]

_NEAR = 0.8
_KNOWN = {*CONTROL, *ROLLOUT_FIELDS, *STEP_FIELDS}


def _misspelt(scene: Scene) -> Iterator[Finding]:
    batch = scene.batch
    absent = {True: _absent_of_rollouts(batch), False: _absent_of_steps(batch)}
    for column_name, column in batch.columns.items():
        name = column_name[:-2]
        known = absent[column.level == "rollout"]
        if not _is_extra(column_name) or not (near := difflib.get_close_matches(name, known, 1, _NEAR)):
            continue
        yield CODES["ACC124"].finding(
            f"field {name!r} is kept as an extra signal, and no record has {near[0]!r}",
            examples=(f"field {name!r}",),
            mend=f"Write {near[0]!r} if that is meant",
        )


def _is_extra(column: str) -> bool:
    fields = {f.column for f in (*ROLLOUT_FIELDS.values(), *STEP_FIELDS.values())}
    made = column.startswith(("rewards.", f"{NAMED_SIGNALS}.", "context_")) or column == "row_S"
    return not made and column not in fields and column[:-2] not in _KNOWN


def _absent_of_rollouts(batch: Batch) -> list[str]:
    absent = [f.name for f in ROLLOUT_FIELDS.values() if not batch.has(f.column)]
    if not batch.n_steps:
        absent.append("steps")
    if not any(name.startswith("rewards.") for name in batch.columns):
        absent.append("rewards")
    if all(str(name).startswith("(no group) ") for name in batch.group_names):
        absent.append("group")
    return absent


def _absent_of_steps(batch: Batch) -> list[str]:
    absent = [f.name for f in STEP_FIELDS.values() if not batch.has(f.column)]
    return [name for name in absent if name != "n_tokens" or not batch.n_tokens]


CHECKS: tuple[Check, ...] = (_misspelt,)
