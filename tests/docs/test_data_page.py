"""The tables of docs/data.md say what the reader knows."""

from pathlib import Path

import pytest

from accredit.data.vocabulary import ROLLOUT_FIELDS, STEP_FIELDS

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
ROLLOUTS, STEPS = PAGE.split("### Fields of a step")


@pytest.mark.parametrize(
    ("table", "fields"),
    [(ROLLOUTS, ROLLOUT_FIELDS), (STEPS, STEP_FIELDS)],
    ids=["rollout", "step"],
)
def test_every_known_field_is_documented(table, fields):
    assert [name for name in fields if f"| `{name}` |" not in table] == []
