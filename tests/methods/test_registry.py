"""Names of methods: whose they are, and that nobody takes another's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import accredit as ac
from accredit.data import Parts
from accredit.errors import ParamError
from accredit.index import Index
from accredit.methods import _registry, get_method


@dataclass(frozen=True, slots=True)
class NoParams:
    """Nothing to set."""


@pytest.fixture(autouse=True)
def _own_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_registry, "_METHODS", dict(_registry._METHODS))
    monkeypatch.setattr(_registry, "_ALIASES", dict(_registry._ALIASES))


def registered(id: str, **more: Any) -> None:
    @ac.method(id, title="zero", params=NoParams, needs={"reward"}, yields="step", **more)
    def zero(index: Index, params: NoParams) -> Parts:
        return Parts(np.zeros(index.batch.n_steps))


@pytest.mark.parametrize("taken", ["grpo", "dr-grpo"])
def test_an_id_or_alias_that_another_method_has_is_refused(taken: str) -> None:
    """An alias replaced another method's without a word: `dr-grpo` was then the newcomer."""
    before = get_method(taken)
    with pytest.raises(ParamError, match=f"{taken!r} is taken"):
        registered(taken)
    with pytest.raises(ParamError, match=f"{taken!r} is taken"):
        registered("newcomer", aliases={"newcomer-too": {}, taken: {}})
    assert before == get_method(taken)
    with pytest.raises(ParamError, match="no method 'newcomer'"):
        get_method("newcomer")


def test_a_new_method_is_found_by_id_and_alias() -> None:
    registered("newcomer", aliases={"latest": {}})
    assert ["newcomer", "newcomer"] == [get_method(name)[0].card.id for name in ("newcomer", "latest")]
