"""The page of the command line has every verb."""

from __future__ import annotations

import re
from pathlib import Path

from accredit.cli import VERBS

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_every_verb_has_a_row_and_a_section():
    """``bench`` was missing in the table of verbs."""
    page = PAGE.read_text()
    assert sorted(VERBS) == sorted(
        re.findall(r"^\| `(\w+)[^`]*` \|", page.partition("\n## ")[0], re.MULTILINE)
    )
    assert set(VERBS) <= set(re.findall(r"^## (\w+)$", page, re.MULTILINE))
