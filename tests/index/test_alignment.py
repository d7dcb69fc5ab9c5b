"""Alignment: the table by rows equals the table by cells, and the way back is the declared one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.index import alignment
from accredit.index.alignment import aligned

words = st.text("abc", max_size=8)


def plain(y: str, z: str) -> tuple[list[bool], list[bool], int]:
    """Levenshtein by cells; back from the ends: match, substitution, deletion, insertion."""
    D = [[0] * (len(z) + 1) for _ in range(len(y) + 1)]
    for i in range(len(y) + 1):
        for j in range(len(z) + 1):
            if i == 0 or j == 0:
                D[i][j] = i + j
            else:
                D[i][j] = min(D[i - 1][j - 1] + (y[i - 1] != z[j - 1]), D[i - 1][j] + 1, D[i][j - 1] + 1)
    kept, inserted = [False] * len(y), [False] * (len(y) + 1)
    i, j = len(y), len(z)
    while i or j:
        if i and j and y[i - 1] == z[j - 1] and D[i][j] == D[i - 1][j - 1]:
            i, j = i - 1, j - 1
            kept[i] = True
        elif i and j and D[i][j] == D[i - 1][j - 1] + 1:
            i, j = i - 1, j - 1
        elif i and D[i][j] == D[i - 1][j] + 1:
            i -= 1
        else:
            j -= 1
            inserted[i] = True
    return kept, inserted, D[-1][-1]


@given(words, words)
def test_alignment_is_that_of_the_plain_table(y: str, z: str) -> None:
    """Seen failing with deletion taken before substitution."""
    found = aligned(y, z)
    assert plain(y, z) == (found.kept.tolist(), found.inserted.tolist(), found.distance)
    assert found.similarity == pytest.approx(1 - found.distance / max(len(y), len(z), 1))


@given(words, words)
def test_edits_are_what_is_not_matched_and_marks_of_insertions(y: str, z: str) -> None:
    found = aligned(y, z)
    assert found.edited(mark_insertions=False).sum() == len(y) - found.kept.sum()
    extra = set(np.flatnonzero(found.edited() & found.kept).tolist())
    gaps = {max(g - 1, 0) for g in np.flatnonzero(found.inserted).tolist()}
    assert extra == {g for g in gaps if g < len(y) and found.kept[g]}
    assert y[: found.first_edit] == z[: found.first_edit]


@pytest.mark.parametrize(
    ("y", "z", "edited"),
    [
        ("abcd", "axcd", [False, True, False, False]),
        ("ab", "abc", [False, True]),
        ("ab", "cab", [True, False]),
        ("abc", "ac", [False, True, False]),
        ("ab", "ab", [False, False]),
        ("", "a", []),
    ],
)
def test_what_is_marked(y: str, z: str, edited: list[bool]) -> None:
    assert edited == aligned(y, z).edited().tolist()


@given(st.text("ab", max_size=12), st.text("ab", max_size=12))
def test_long_texts_are_matched_by_blocks_and_say_so(y: str, z: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alignment, "LONGEST", 2)
        found = aligned(y, z)
    best = aligned(y, z)
    assert found.distance >= best.distance
    assert found.exact or found.distance >= 1
    if not found.exact:
        assert (found.kept.sum() > 0) <= bool(set(y) & set(z))
    assert y[: found.first_edit] == z[: found.first_edit]
    assert found.kept.size == len(y)
