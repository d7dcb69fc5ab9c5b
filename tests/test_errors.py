"""Errors name what was meant."""

from __future__ import annotations

import pytest

from accredit.errors import suggest


@pytest.mark.parametrize(
    ("asked", "known", "meant"),
    [
        ("GiGPO", ["gigpo", "graft", "grpo"], "gigpo"),
        ("epsilon", ["eps", "gamma"], "eps"),
        ("Lambda", ["gamma", "lam"], "lam"),
        ("ppo", ["gae", "grpo"], "gae"),
        ("ppo", ["grpo", "opo"], "opo"),
        ("lengths", ["Length"], "Length"),
    ],
)
def test_capitals_and_second_names_are_understood(asked, known, meant):
    """``GiGPO`` was far from ``gigpo``, letter by letter, and ``epsilon`` from ``eps``."""
    assert f"Did you mean {meant!r}?" == suggest(asked, known)
