"""States: how often they recur, and what a coarser key would add."""

from __future__ import annotations

import pytest
from hypothesis import given

import accredit as ac
from accredit.findings import normaliser_gains, revisits
from accredit.index import Index
from tests.dear import dear
from tests.findings.planted import clean
from tests.strategies import batches


def _batch(*rollouts, groups=None):
    return ac.Batch.from_records(
        {
            "id": str(i),
            "group": groups[i] if groups else "g",
            "reward": 1,
            "steps": [{"state": s} for s in states],
        }
        for i, states in enumerate(rollouts)
    )


def test_a_state_visited_twice_by_one_rollout_recurs_and_is_not_shared():
    found = revisits(Index(_batch("aab", "cd")))
    assert (2 / 5, 0.0) == (found.anywhere, found.across)


def test_equal_states_of_two_groups_do_not_recur():
    assert 0.0 == revisits(Index(_batch("ab", "ab", groups="xy"))).anywhere


def test_steps_without_a_state_are_not_in_the_shares():
    found = revisits(Index(_batch(["a", None], ["a", None])))
    assert (1.0, 1.0, 2, 1) == found


@dear
@given(batches(always=("state",), rows=False))
def test_revisits_equal_the_plain_count(batch):
    index = Index(batch)
    found = revisits(index)
    visits = [
        (int(index.group_S[s]), int(index.state_S[s]), int(index.rollout_S[s]))
        for s in range(batch.n_steps)
        if batch.has("state_S") and batch.column("state_S").mask(batch.n_steps)[s]
    ]
    if found is None:
        assert [] == visits
        return
    again = [sum(v[:2] == w[:2] for w in visits) > 1 for v in visits]
    across = [any(v[:2] == w[:2] and v[2] != w[2] for w in visits) for v in visits]
    assert pytest.approx(sum(again) / len(visits)) == found.anywhere
    assert pytest.approx(sum(across) / len(visits)) == found.across


def test_gains_are_those_of_the_key_itself():
    batch = _batch(["09:12 hall", "room 1"], ["09:13 hall", "room 2"])
    gains = normaliser_gains(Index(batch))
    for name, gain in gains.items():
        assert pytest.approx(gain) == revisits(Index(batch, name)).anywhere
    assert (0.5, 1.0, 0.0) == (gains["strip-clocks"], gains["strip-digits"], gains["casefold"])


def test_gains_are_measured_on_the_first_groups_of_many_words(monkeypatch):
    monkeypatch.setattr("accredit.findings.recurrence._CHARACTERS", 50)
    rollouts = [[f"g{g} at {i}:00" for i in range(3)] for g in range(40) for _ in range(2)]
    batch = _batch(*rollouts, groups=[g for g in range(40) for _ in range(2)])
    assert 0.0 <= normaliser_gains(Index(batch))["strip-digits"] <= 1.0


def test_states_longer_than_the_budget_are_left_alone(monkeypatch):
    monkeypatch.setattr("accredit.findings.recurrence._CHARACTERS", 10)
    assert {} == normaliser_gains(Index(_batch(["x" * 1000], ["y"])))


def test_the_key_decides_what_recurs():
    records = clean()
    for r, record in enumerate(records):
        for t, step in enumerate(record["steps"]):
            step["state"] += f" at {r}:{t}0"
    assert "ACC703" in ac.check(records).by_code()
    assert "ACC703" not in ac.check(records, key="strip-clocks").by_code()


def test_another_column_as_key_is_a_state():
    records = clean()
    for record in records:
        for step in record["steps"]:
            step["observation"] = step.pop("state")
    assert "ACC701" in ac.check(records).by_code()
    assert "ACC701" not in ac.check(records, key="observation").by_code()


def test_single_steps_in_one_state_are_a_bandit():
    records = [r | {"steps": r["steps"][:1]} for r in clean()[:4]]
    assert "ACC705" not in ac.check(records).by_code()
