"""State keys: which column is the state, and what a slip is told."""

from __future__ import annotations

import re

import pytest

import accredit as ac
from accredit.cli import VERBS


def _records(**names: str) -> list[dict[str, object]]:
    """Two rollouts through one place; keywords name the fields: place="observation"."""
    field = names.get("place", "state")
    return [
        {
            "id": name,
            "group": "g",
            "reward": reward,
            "steps": [
                {field: place, "action": f"{name} {place}", "n_tokens": 1} for place in ("hall", "attic")
            ],
        }
        for name, reward in (("a", 1), ("b", 0))
    ]


@pytest.mark.parametrize(
    "method", ["gigpo", "hgpo", "price", "graft", "graph-hca", "crbc", "mt-grpo:align=state"]
)
def test_a_key_that_names_another_column_needs_no_state(method):
    """ACC701 says key="observation", and the state was asked for before the key was looked at."""
    expected = ac.assign(_records(), method).steps
    assert expected.any()
    got = ac.assign(_records(place="observation"), method, key="observation+casefold")
    assert expected.tolist() == got.steps.tolist()
    assert ac.check(_records(place="observation"), method=method, key="observation").ok


def test_similarity_groups_take_the_text_of_the_key():
    expected = ac.assign(_records(), "gigpo:similarity=0.9").steps
    got = ac.assign(_records(place="observation"), "gigpo:similarity=0.9", key="observation")
    assert expected.tolist() == got.steps.tolist()


def test_the_memory_of_price_holds_the_keys_column():
    first = ac.assign(_records(place="observation"), "price", key="observation")
    again = ac.assign(_records(place="observation"), "price", key="observation", state=first.state)
    plain = ac.assign(_records(), "price", state=ac.assign(_records(), "price").state)
    assert plain.steps.tolist() == again.steps.tolist()


@pytest.mark.parametrize("records", [_records(), _records(place="observation")])
def test_a_misspelt_key_is_told_the_nearest_column(records):
    """``key="actoin"`` was told the normalisers only."""
    with pytest.raises(ac.AccreditError, match=r"no state key 'actoin'. Did you mean 'action'"):
        ac.assign(records, "gigpo", key="actoin")
    with pytest.raises(ac.AccreditError, match=r"no state key 'zzz'. Known: .*observation|Known: .*state"):
        ac.assign(records, "gigpo", key="zzz")


def test_a_missing_outcome_is_asked_for_as_the_outcome():
    """The mend of ACC401 described the reward of a step."""
    with pytest.raises(ac.AccreditError, match="outcome of the rollout; null = unscored") as caught:
        ac.assign([{"id": "a", "group": "g", "steps": [{"state": "s"}]}], "gigpo")
    assert "paid at this step" not in str(caught.value)


@pytest.mark.parametrize("method", ["hcapo", "gaca", "scad"])
def test_no_mend_names_a_command_that_is_not_there(method):
    """Signals were said to come from ``probe rescore``, and there is no such command."""
    with pytest.raises(ac.AccreditError) as caught:
        ac.assign(_records(), method)
    named = re.findall(r"accredit ([a-z]+) FILE", str(caught.value))
    assert set(named) <= {"probe", *VERBS}
    assert "rescore" not in str(caught.value)
