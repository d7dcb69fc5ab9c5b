"""Two sequences side by side: fewest edits, and which of the optimal ways is taken."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np

from accredit.typing import Array, BoolArray, Ints

__all__ = ["LONGEST", "Alignment", "aligned"]

LONGEST = 4096  # both sequences: beyond it the edit distance is no longer exact


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """How y becomes z.

    Args:
        kept: elements of y that are matched ``[n]``.
        inserted: gaps of y at which elements of z come in, 0 (before the first) .. n ``[n + 1]``.
        distance: number of edits.
        longest: length of the longer sequence.
        exact: whether it is the fewest; not beyond `LONGEST`.
    """

    kept: BoolArray
    inserted: BoolArray
    distance: int
    longest: int
    exact: bool = True

    @property
    def similarity(self) -> float:
        """1 - distance / length of the longer; 1 for two empty sequences."""
        return 1.0 - self.distance / max(self.longest, 1)

    def edited(self, *, mark_insertions: bool = True) -> BoolArray:
        """Return the elements of y that were edited ``[n]``.

        Args:
            mark_insertions: what is inserted marks the element before it, at the very start the first.
        """
        found = ~self.kept
        if mark_insertions and found.size:
            found = found | self.inserted[1:]
            found[0] |= bool(self.inserted[0])
        return found

    @property
    def first_edit(self) -> int:
        """First element of y that z does not repeat, or where something comes in; n where none is."""
        changed = np.append(~self.kept, True) | self.inserted
        return int(np.argmax(changed))


def aligned(y: Sequence[Hashable], z: Sequence[Hashable]) -> Alignment:
    """Return the alignment of y and z of fewest edits (Levenshtein).

    Among the optimal ones, traced back from the ends: match before substitution, deletion, insertion.
    Where the longer has more than `LONGEST` elements after the equal ends are taken off, blocks of
    longest matches stand in for it.

    Args:
        y: what is edited.
        z: what it becomes.

    Example:
        >>> found = aligned("abcd", "axcd")
        >>> found.kept.tolist(), found.distance, found.edited().tolist()
        ([True, False, True, True], 1, [False, True, False, False])
    """
    tail = 0
    while tail < min(len(y), len(z)) and y[-1 - tail] == z[-1 - tail]:
        tail += 1
    n, longest = len(y), max(len(y), len(z))
    head, other = y[: n - tail], z[: len(z) - tail]
    exact = max(len(head), len(other)) <= LONGEST
    kept, inserted, distance = (_traced if exact else _blocks)(head, other)
    ends = np.ones(tail, bool)
    return Alignment(
        np.concatenate([kept, ends]), np.concatenate([inserted, ~ends]), distance, longest, exact
    )


def _coded(y: Sequence[Hashable], z: Sequence[Hashable]) -> tuple[Ints, Ints]:
    codes: dict[Hashable, int] = {}
    both = [np.array([codes.setdefault(x, len(codes)) for x in own], np.int64) for own in (y, z)]
    return both[0], both[1]


def _table(a: Ints, b: Ints) -> Array:
    """Return the distance of every pair of beginnings ``[n + 1, m + 1]``.

    A row follows from the one above it: what an insertion gives is a running minimum along the row.
    """
    across = np.arange(b.size + 1, dtype=np.int32)
    found = np.empty((a.size + 1, b.size + 1), np.int32)
    found[0] = across
    for i in range(1, a.size + 1):
        row = found[i - 1] + 1
        row[1:] = np.minimum(row[1:], found[i - 1, :-1] + (b != a[i - 1]))
        found[i] = np.minimum.accumulate(row - across) + across
    return found


def _traced(y: Sequence[Hashable], z: Sequence[Hashable]) -> tuple[BoolArray, BoolArray, int]:
    a, b = _coded(y, z)
    table = _table(a, b)
    kept, inserted = np.zeros(a.size, bool), np.zeros(a.size + 1, bool)
    i, j = a.size, b.size
    while i or j:
        here = table[i, j]
        if i and j and table[i - 1, j - 1] + (a[i - 1] != b[j - 1]) == here:
            i, j = i - 1, j - 1
            kept[i] = a[i] == b[j]
        elif i and table[i - 1, j] + 1 == here:
            i -= 1
        else:
            j -= 1
            inserted[i] = True
    return kept, inserted, int(table[a.size, b.size])


def _blocks(y: Sequence[Hashable], z: Sequence[Hashable]) -> tuple[BoolArray, BoolArray, int]:
    a, b = _coded(y, z)
    kept, inserted = np.zeros(a.size, bool), np.zeros(a.size + 1, bool)
    distance = 0
    for tag, i, i2, j, j2 in SequenceMatcher(None, a.tolist(), b.tolist(), autojunk=False).get_opcodes():
        if tag == "equal":
            kept[i:i2] = True
            continue
        distance += max(i2 - i, j2 - j)
        inserted[i2] |= j2 - j > i2 - i
    return kept, inserted, distance
