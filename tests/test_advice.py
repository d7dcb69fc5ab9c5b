"""The advisor: what can run, what it promises, and whether the benchmark bears it out."""

from __future__ import annotations

import numpy as np
import pytest

import accredit as ac
from accredit.advice import advise, traits_of
from accredit.views.advice_tables import advice_blocks
from accredit.views.tables import plain


def _records(states, n_groups=6, size=4, **fields):
    """Rollouts of two steps; ``states(g, r, t)`` names the states."""
    rng = np.random.default_rng(0)
    return [
        {
            "id": f"{g}.{r}",
            "group": str(g),
            "reward": float(rng.integers(2)),
            "steps": [{"state": states(g, r, t), "action": "a", "n_tokens": 1, **fields} for t in range(2)],
        }
        for g in range(n_groups)
        for r in range(size)
    ]


def test_where_nothing_recurs_no_state_method_is_advised():
    advice = advise(_records(lambda g, r, t: f"{g}{r}{t}"))
    assert advice.traits.shared == 0
    told = {m.method: m for m in advice.methods}
    assert {"none"} == {told[m].chance for m in ("gigpo", "crbc", "graft", "hgpo")}
    assert advice.first.method not in ("gigpo", "crbc", "graft", "hgpo", "graph-hca", "price")


def test_where_everything_recurs_a_state_method_is_advised():
    advice = advise(_records(lambda g, r, t: f"{g}{t}"))
    assert advice.traits.shared == 1
    assert "state" in {need for card in ac.catalog() if card.id == advice.first.method for need in card.needs}
    assert "100%" in advice.first.reason


def test_shared_steps_are_those_that_another_rollout_of_the_group_visits():
    batch = ac.Batch.from_records(_records(lambda g, r, t: f"{g}" if t else f"{g}{r // 2}"))
    assert traits_of(batch).shared == 1
    loops = ac.Batch.from_records(_records(lambda g, r, t: f"{g}{r}"))  # a rollout that waits meets nobody
    assert traits_of(loops).shared == 0


def test_a_critic_that_explains_nothing_is_not_advised():
    rng = np.random.default_rng(1)
    records = _records(lambda g, r, t: f"{g}{r}{t}")
    for record in records:
        for step in record["steps"]:
            step["value"] = float(rng.normal(0, 3))
    advice = advise(records)
    td = next(m for m in advice.methods if m.method == "td")
    assert advice.traits.critic < 0
    assert ("none", True) == (td.chance, td.runs)
    assert "explain nothing" in td.reason
    for record in records:
        for step in record["steps"]:
            step["value"] = record["reward"] * 0.8 + 0.1
    assert advise(records).first.method == "td"


def test_what_would_unlock_a_method_is_told():
    told = {m.method: m for m in advise(_records(lambda g, r, t: "s")).methods}
    assert "value from a critic" in told["td"].unlock
    assert "from `accredit probe FILE" in told["hcapo"].unlock
    assert not told["td"].runs


def test_groups_of_one_leave_group_methods_out():
    told = {m.method: m for m in advise(_records(lambda g, r, t: "s", size=1)).methods}
    assert not told["grpo"].runs
    assert "two or more" in told["grpo"].unlock


def test_the_table_shows_every_method_once():
    advice = advise(_records(lambda g, r, t: "s"))
    text = plain(advice_blocks(advice.to_dict()))
    for m in advice.methods:
        assert text.count(f"\n{m.method} ") == 1, m.method


@pytest.mark.parametrize("records", [[], [{"id": "a", "group": "g", "reward": None, "steps": []}]])
def test_advice_on_next_to_nothing_is_given(records):
    assert advise(records).first.method


def test_a_key_makes_states_shared():
    records = _records(lambda g, r, t: f"room {g} at {r}{t}")
    assert 0 == advise(records).traits.shared
    assert 1 == advise(records, key="strip-digits").traits.shared
    assert "100%" in advise(records, key="strip-digits").first.reason


def test_a_key_that_names_a_column_is_the_state():
    """States under another name counted as no states at all."""
    records = _records(lambda g, r, t: None, text="seen")
    told = {m.method: m for m in advise(records, key="text").methods}
    assert told["gigpo"].runs
    assert not {m.method: m for m in advise(records).methods}["gigpo"].runs
    assert 1 == advise(records, key="text").traits.shared
