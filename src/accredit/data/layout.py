"""Which record field each column is, and what a file must say so that columns come back as they were."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from accredit.data.column import AXES, Column, level_of
from accredit.data.vocabulary import ALIASES, CONTROL, ROLLOUT_FIELDS, STEP_FIELDS
from accredit.typing import Level

if TYPE_CHECKING:
    from accredit.data.batch import Batch

__all__ = ["CONTEXT_FIELDS", "HIDDEN", "ColumnKind", "Layout", "field_names", "layouts", "parse_layouts"]

ColumnKind: TypeAlias = Literal["number", "vector", "word", "json"]

CONTEXT_FIELDS = ("context_tokens", "prompt_tokens")
# Columns that records show in another way than as a field of their own.
HIDDEN = frozenset({"row_S", "context_token_C", "context_reset_S"})
_KNOWN = {
    **{f.column: f.name for f in ROLLOUT_FIELDS.values()},
    **{f.column: f.name for f in STEP_FIELDS.values()},
}
_RESERVED: Mapping[bool, frozenset[str]] = {
    True: frozenset(ROLLOUT_FIELDS) | CONTROL | {"row"},
    False: frozenset(STEP_FIELDS) | frozenset(ALIASES) | {*CONTEXT_FIELDS, "context_reset", "row"},
}
_MAX_WIDTH = 1 << 20


@dataclass(frozen=True, slots=True)
class Layout:
    """How one column is stored.

    Args:
        column: its name, axis letter included.
        field: the record field that holds its values.
        kind: number, vector (``width`` numbers a row), word (JSON scalar), json.
        dtype: numpy dtype of numbers, ``""`` for words and json.
        width: length of a vector, else 0.
        provenance: the column's own.
    """

    column: str
    field: str
    kind: ColumnKind
    dtype: str = ""
    width: int = 0
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def level(self) -> Level:
        """What one value belongs to."""
        return level_of(self.column)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values, empty ones left out."""
        return {k: v for k, v in asdict(self).items() if v}


def field_names(batch: Batch) -> dict[str, str]:
    """Return the record field of each column, in a fixed order, no field twice at one level.

    An extra signal goes by its bare name (``visits_S`` is ``visits``); if that is taken at its
    level, by the whole column name.
    """
    found = {c: _KNOWN[c] for c in _KNOWN if c in batch.columns}
    taken = {level: set(names) for level, names in _RESERVED.items()}
    for column, c in batch.columns.items():
        if column in found or column in HIDDEN:
            continue
        names = taken[c.level == "rollout"]
        spelled = column[:-2] if column[:-2] not in names else column
        while spelled in names:
            spelled += "_"
        names.add(spelled)
        found[column] = spelled
    return found


def layouts(batch: Batch) -> list[Layout]:
    """Return the layout of every column of a batch."""
    names = field_names(batch)
    return [
        Layout(
            name,
            names.get(name, name),
            kind_of(c),
            _dtype(c),
            _width(c),
            dict(c.provenance),
        )
        for name, c in batch.columns.items()
    ]


def kind_of(column: Column) -> ColumnKind:
    """Return the kind of a column's values."""
    if column.words is not None:
        return "word"
    if column.is_json:
        return "json"
    return "vector" if column.values.ndim > 1 else "number"


def _dtype(column: Column) -> str:
    return "" if column.words is not None or column.is_json else column.values.dtype.name


def _width(column: Column) -> int:
    return int(column.values.shape[1]) if column.values.ndim == 2 else 0


def parse_layouts(found: Any) -> list[Layout]:
    """Return the layouts that a file's header gives; entries that make no sense are left out.

    A header is untrusted: what it says about a column only helps to store the values, so that an
    entry that cannot be understood costs no rollout.
    """
    entries = found if isinstance(found, list) else []
    parsed = [_parse(entry) for entry in entries[:10_000] if isinstance(entry, Mapping)]
    return list({p.column: p for p in parsed if p is not None}.values())


def _parse(entry: Mapping[str, Any]) -> Layout | None:
    column, name, kind = entry.get("column"), entry.get("field"), entry.get("kind")
    if not (isinstance(column, str) and isinstance(name, str) and column[-2:-1] == "_"):
        return None
    if column[-1:] not in AXES or kind not in ("number", "vector", "word", "json"):
        return None
    width, dtype = entry.get("width", 0), entry.get("dtype", "")
    if kind in ("number", "vector") and dtype not in _DTYPES:
        return None
    if kind == "vector" and not (isinstance(width, int) and 0 <= width <= _MAX_WIDTH):
        return None
    made = entry.get("provenance")
    return Layout(column, name, kind, str(dtype), width, made if isinstance(made, Mapping) else {})


_DTYPES = frozenset(
    {"bool", "float16", "float32", "float64"} | {f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64)}
)
