"""hgpo: the card's worked example, reductions, and a slow oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from tests.methods.test_gigpo import EXAMPLE, groups, rollout


def test_card_example() -> None:
    credit = ac.assign(EXAMPLE, "hgpo", gamma=0.5, history_length=1, mode="mean_norm")
    r1, *_, r4 = credit.by_rollout()
    assert pytest.approx([1 / 3, 0.5], abs=1e-6) == r1[1:].tolist()
    assert pytest.approx(0.5, abs=1e-6) == r4[1]


def test_no_history_is_the_step_part_of_gigpo() -> None:
    got = ac.assign(EXAMPLE, "hgpo", history_length=0, mode="mean_norm", length_weight_alpha=1.5)
    factor = 2**1.5 / (2**1.5 + 1e-6)
    np.testing.assert_allclose(got.steps, factor * ac.assign(EXAMPLE, "returns").steps, rtol=1e-12)


def test_large_alpha_keeps_the_longest_match_only() -> None:
    records = [*EXAMPLE, rollout("r5", 0, "C x B l C x")]
    got = ac.assign(records, "hgpo", gamma=0.5, history_length=1, length_weight_alpha=200, mode="mean_norm")
    assert pytest.approx(np.mean([0.5, 0, 0]) * 0 + 0.5 - 0.5 / 3, abs=1e-6) == got.by_rollout()[0][1]


def test_a_fixed_path_gives_every_length_the_same_value() -> None:
    records = [rollout(str(i), r, "A go B go C go") for i, r in enumerate((1, 0, 0.5))]
    parts = ac.assign(records, "hgpo", gamma=1, mode="mean_norm", length_weight_alpha=0).parts
    last = [part[2] for part in parts.values()]
    assert pytest.approx([last[0]] * 3) == last


def test_a_missing_state_makes_every_history_with_it_a_singleton() -> None:
    records = [rollout("a", 1, "A go B go"), rollout("b", 0, "A go B go")]
    for record in records:
        del record["steps"][0]["state"]
    credit = ac.assign(records, "hgpo", gamma=1, mode="mean_norm", history_length=1)
    assert pytest.approx([0, 0.5, 0, -0.5], abs=1e-6) == credit.steps.tolist()
    assert not credit.parts["history_2"].any()


def test_group_of_one_row_in_the_base_group() -> None:
    records = [rollout("a", 3, "A go")]
    assert [0.0] == ac.assign(records, "hgpo", base_group=True).steps.tolist()
    raw = ac.assign(records, "hgpo", base_group=True, compat="code").steps.tolist()
    assert pytest.approx([3.0], rel=1e-5) == raw


def slow_hgpo(records: list[dict[str, Any]], gamma: float, history: int, alpha: float) -> list[float]:
    """The card's text as plain loops (mean_norm, no base group)."""
    rows = []
    for record in records:
        states = [s["state"] for s in record["steps"]]
        for t in range(len(states)):
            value = record["reward"] * gamma ** (len(states) - 1 - t)
            keys = {k: tuple(states[t - k + 1 : t + 1]) for k in range(1, min(history + 1, t + 1) + 1)}
            rows.append((record["group"], keys, value))
    found = []
    for group, keys, value in rows:
        items = []
        for k, key in keys.items():
            same = [v for g, other, v in rows if g == group and other.get(k) == key]
            flat = max(same) - min(same) <= 1e-12 * max(1, *map(abs, same))
            items.append((k, 0.0 if flat else value - sum(same) / len(same)))
        kept = [((k + 1) ** alpha, a) for k, a in items if a != 0]
        found.append(sum(w * a for w, a in kept) / (sum(w for w, _ in kept) + 1e-6))
    return found


@given(groups(), st.floats(0, 1), st.integers(0, 3), st.sampled_from([0.0, 1.0, 2.0]))
def test_equals_the_slow_loop(
    records: list[dict[str, Any]], gamma: float, history: int, alpha: float
) -> None:
    """Seen failing with histories that cross rollouts and with kept zero items."""
    got = ac.assign(
        records, "hgpo", gamma=gamma, history_length=history, length_weight_alpha=alpha, mode="mean_norm"
    )
    np.testing.assert_allclose(got.steps, slow_hgpo(records, gamma, history, alpha), atol=1e-7)
