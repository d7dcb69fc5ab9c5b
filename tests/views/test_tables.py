"""Tables of the command line: columns, numbers, harmless text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from accredit.views.credit_tables import finding_blocks
from accredit.views.tables import Line, Table, number, plain, share, signed


def test_columns_stand_under_their_names_whatever_the_letters():
    table = Table("", ("id", ">credit", "action"), [("日本", "+1", "go"), ("e\u0301", "-0.25", "wait")])
    lines = plain([table]).splitlines()
    words = ("action", "go", "wait")
    assert 1 == len({cell_len(line[: line.index(w)]) for line, w in zip(lines, words, strict=True)})


@given(st.lists(st.tuples(st.text(max_size=80), st.text(max_size=8)), max_size=5))
def test_a_row_is_one_line_and_cannot_act_on_a_terminal(rows):
    text = plain([Table("", ("a", ">b"), rows)])
    assert 1 + len(rows) == len(text.split("\n"))
    assert not any(ord(c) < 32 or 0x7F <= ord(c) <= 0x9F for c in text.replace("\n", ""))


def test_a_long_cell_is_cut_and_says_so():
    assert "a" * 9 + "…" in plain([Table("", ("x",), [("a" * 50,)], widest=10)])


def test_lines_keep_their_breaks_and_lose_their_escapes():
    assert "one\n␛[31mtwo" == plain([Line("one\n\x1b[31mtwo")])


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, "0 %"), (1.0, "100 %"), (1e-9, "<1 %"), (1 - 1e-9, ">99 %"), (0.495, "50 %"), (0.5, "50 %")],
)
def test_a_share_is_0_or_100_per_cent_only_when_it_is(value, expected):
    assert expected == share(value)


def test_numbers_are_short_and_signed():
    assert ("+0.3333", "-2", "0") == (signed(1 / 3), signed(-2.0), signed(0.0))
    assert ("-", "0.333", "1,234") == (number(None), number(1 / 3, 3), number(1234))


@pytest.mark.parametrize(
    ("count", "known", "said"), [(35, 5, " … 32 more"), (5, 5, " … 2 more"), (3, 3, ""), (2, 1, " … 1 more")]
)
def test_a_finding_counts_the_places_that_it_does_not_name(count, known, said):
    """It said 30 more of 35, and named 3 of the 5 that it knew."""
    finding = {
        "code": "ACC120",
        "severity": "info",
        "count": count,
        "message": "twice",
        "where": "",
        "hint": "",
        "examples": [f"rollout {i}" for i in range(known)],
    }
    at = plain(finding_blocks([finding])).splitlines()[-1]
    assert at.endswith(f"rollout {min(known, 3) - 1}{said}")
