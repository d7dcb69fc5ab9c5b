"""One column of a batch: flat values at one level, with an explicit validity mask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accredit.typing import Array, BoolArray, Json, Level, Scalar

__all__ = ["AXES", "Column", "axis_of", "level_of"]

AXES: Mapping[str, Level] = {"R": "rollout", "S": "step", "T": "token", "C": "context"}
_LETTERS = {level: letter for letter, level in AXES.items()}


def level_of(name: str) -> Level:
    """Return the level that a column name's axis letter says (``reward_S`` is a step column)."""
    letter = name.rpartition("_")[2]
    if letter not in AXES:
        raise ValueError(f"column name {name!r} must end in one of _R, _S, _T, _C")
    return AXES[letter]


def axis_of(level: Level) -> str:
    """Return the axis letter of a level."""
    return _LETTERS[level]


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Flat values of one field.

    Args:
        level: what one value belongs to.
        values: ``[R]``, ``[S]``, ``[T]`` or ``[C]``; ``[R, d]``, ``[S, d]`` or ``[T, d]`` for vectors.
            Where invalid: 0.
        valid: bool ``[R]`` for rollout columns, ``[S]`` for all others (a step has all its tokens'
            values or none); None = present everywhere.
        words: vocabulary of an interned column; then ``values`` are int32 codes into it.
        provenance: who made it, from what (empty for recorded fields).
    """

    level: Level
    values: Array
    valid: BoolArray | None = None
    words: tuple[Scalar, ...] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values.flags.writeable = False
        if self.valid is not None:
            self.valid.flags.writeable = False

    def __reduce__(self) -> tuple[Any, ...]:
        # Arrays forget in a pickle that they are read-only.
        return Column, (self.level, self.values, self.valid, self.words, dict(self.provenance))

    @property
    def is_json(self) -> bool:
        """Whether the values are JSON objects rather than numbers or codes."""
        return self.values.dtype == object

    def mask(self, size: int) -> BoolArray:
        """Return the validity mask, all True where none is stored."""
        return np.ones(size, bool) if self.valid is None else self.valid

    def given(self, where: int | slice) -> bool:
        """Return whether value ``where`` is there; of a slice, whether all are."""
        return self.valid is None or bool(self.valid[where].all())

    def decoded(self) -> Array:
        """Return the values with words in place of codes (object array), numbers as they are."""
        if self.words is None:
            return self.values
        table = np.empty(len(self.words) + 1, dtype=object)
        table[: len(self.words)] = self.words
        return table[self.values]

    def item(self, i: int) -> Json:
        """Return value i as a plain Python object (codes resolved)."""
        if self.words is not None:
            return self.words[int(self.values[i])]
        value = self.values[i]
        return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
