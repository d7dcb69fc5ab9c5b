"""Misspelt fields: told where a known field is absent, never beside it."""

from __future__ import annotations

import pytest

import accredit as ac


def _record(name: str, **fields: object) -> dict[str, object]:
    return {"id": name, "group": "g", "steps": [{"action": "go", "n_tokens": 1}]} | fields


@pytest.mark.parametrize(
    ("spoilt", "meant"),
    [
        ({"rewrad": 1}, "reward"),
        ({"steps": None, "step": [{"action": "go"}]}, "steps"),
        ({"group": None, "groups": "g"}, "group"),
        ({"steps": [{"action": "go", "logprops": [-1.0], "n_tokens": 1}]}, "logprobs"),
        ({"steps": [{"actoin": "go", "n_tokens": 1}]}, "action"),
        ({"steps": [{"action": "go", "n_token": 1}]}, "n_tokens"),
    ],
)
def test_a_misspelt_field_is_told_what_may_be_meant(spoilt, meant):
    """``{"rewrad": 1}`` and ``{"step": […]}`` were extra signals without a word."""
    found = ac.check([_record("a", **spoilt), _record("b", **spoilt)]).by_code()["ACC124"]
    assert [f"Write {meant!r} if that is meant"] == [f.hint for f in found]


def test_a_signal_beside_the_field_it_resembles_is_no_misspelling():
    record = _record("a", reward=1, rewrad=2, kind="x", rewards={"rewars": 1})
    assert "ACC124" not in ac.check([record]).by_code()
