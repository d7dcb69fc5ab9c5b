"""The battery fails methods that break a claim: each check is seen failing once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import accredit as ac
from accredit.battery import CheckFailed
from accredit.data import Explanation, Parts, Term
from accredit.index import GroupStats, Index
from accredit.methods import GroupParams, _registry


@dataclasses.dataclass(frozen=True, slots=True)
class Params(GroupParams):
    """Parameters of the broken methods."""

    weight: float = ac.bounded(1.0, at_least=0, at_most=2, doc="unused")


def _advantage(index: Index) -> np.ndarray:
    stats = GroupStats(index.score_R, index.group_R, index.n_groups, index.counted_R())
    return stats.centred[index.rollout_S]


def _good(index: Index, params: Params) -> Parts:
    values = _advantage(index)
    return Parts(values, parts={"all": values})


def _nan(index: Index, params: Params) -> Parts:
    return Parts(np.where(index.position_S == 0, np.inf, 0.0))


def _parts_do_not_sum(index: Index, params: Params) -> Parts:
    values = _advantage(index)
    return Parts(values, parts={"half": values / 3})


_calls = iter(range(10**9))


def _restless(index: Index, params: Params) -> Parts:
    return Parts(_advantage(index) + next(_calls))


def _by_position(index: Index, params: Params) -> Parts:
    return Parts(_advantage(index) + index.rollout_S)


def _pooled(index: Index, params: Params) -> Parts:
    counted = index.counted_R()
    mean = index.score_R[counted].mean() if counted.any() else 0.0
    return Parts(np.where(counted, index.score_R - mean, 0.0)[index.rollout_S])


def _by_name(index: Index, params: Params) -> Parts:
    lengths = np.array([len(name) for name in index.batch.ids], float)
    return Parts(_advantage(index) * lengths[index.rollout_S])


def _raw(index: Index, params: Params) -> Parts:
    return Parts(np.where(index.counted_R(), index.score_R, 0.0)[index.rollout_S])


def _noisy_tie(index: Index, params: Params) -> Parts:
    n = np.bincount(index.group_R, index.counted_R())
    mean = np.bincount(index.group_R, np.where(index.counted_R(), index.score_R, 0.0)) / np.maximum(n, 1)
    out = (index.score_R - mean[index.group_R]) / 1e-6
    return Parts(np.where(index.counted_R(), out, 0.0)[index.rollout_S] + 1e-9)


def _raw_where_alone(index: Index, params: Params) -> Parts:
    counted = index.counted_R()
    stats = GroupStats(index.score_R, index.group_R, index.n_groups, counted)
    return Parts(np.where(stats.alone, index.score_R, stats.centred)[index.rollout_S])


def _counts_unscored(index: Index, params: Params) -> Parts:
    everyone = np.ones(len(index.batch), bool)
    stats = GroupStats(index.score_R, index.group_R, index.n_groups, everyone)
    return Parts(stats.centred[index.rollout_S])


def _explains_wrongly(index: Index, params: Params) -> Parts:
    values = _advantage(index)

    def explain(s: int) -> Explanation:
        rollout = index.batch.ids[int(index.rollout_S[s])]
        return Explanation("x", rollout, 0, float(values[s]), (Term("t", float(values[s]) + 1, ""),))

    return Parts(values, explain=explain)


def _bad_fallbacks(index: Index, params: Params) -> Parts:
    return Parts(_advantage(index), fallbacks={"x": -1})


def _broadcast_over_rows(index: Index, params: Params) -> Parts:
    return Parts(_advantage(index) + 0.1 * index.steps_R[index.rollout_S] * index.batch.has("row_S"))


def _by_trainable(index: Index, params: Params) -> Parts:
    return Parts(_advantage(index) * index.trainable_S)


BROKEN: dict[str, tuple[Callable[[Index, Params], Parts], set[str]]] = {
    "finite": (_nan, set()),
    "parts": (_parts_do_not_sum, set()),
    "deterministic": (_restless, set()),
    "order of rollouts": (_by_position, set()),
    "a group alone": (_pooled, set()),
    "renaming": (_by_name, set()),
    "shift": (_raw, {"shift_invariant"}),
    "scale": (_noisy_tie, {"scale_equivariant"}),
    "tie": (_noisy_tie, {"group"}),
    "a group of one": (_raw_where_alone, {"group"}),
    "sum to 0": (_raw, {"conserves"}),
    "siblings of an unscored": (_counts_unscored, set()),
    "terms add up": (_explains_wrongly, set()),
    "fallback": (_bad_fallbacks, set()),
    "rows of one rollout": (_broadcast_over_rows, set()),
    "trained rollouts": (_by_trainable, set()),
}


@pytest.fixture
def register() -> Iterator[Callable[..., str]]:
    """Registers a method for one test."""
    added: list[str] = []

    def add(name: str, function: Callable[..., Parts], tags: set[str]) -> str:
        id = f"broken-{name}"
        ac.method(id, title="broken", params=Params, needs={"reward"}, yields="step", tags=tags)(function)
        added.append(id)
        return id

    yield add
    for id in added:
        del _registry._METHODS[id]


@pytest.mark.parametrize("name", BROKEN)
def test_battery_names_the_claim_that_a_broken_method_breaks(name: str, register: Callable[..., str]) -> None:
    function, tags = BROKEN[name]
    id = register(name.replace(" ", "-"), function, tags)
    with pytest.raises((CheckFailed, ac.AccreditError), match=name):
        ac.check_method(id)


def test_battery_passes_a_sound_method(register: Callable[..., str]) -> None:
    id = register("not", _good, {"group", "shift_invariant", "conserves", "scale_equivariant"})
    assert len(ac.check_method(id)) >= 15
