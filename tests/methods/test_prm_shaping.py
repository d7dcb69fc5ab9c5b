"""When shaping leaves the optimal policy alone: exact on small decision processes.

Each row of the table of docs/methods/prm.md is a test here; the unsafe ones must change the policy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac

# -- random processes in layers, solved exactly from the last layer back ---------------------------


class Process(NamedTuple):
    """States in layers of equal width; after the last one comes the end."""

    chance: np.ndarray  # [layer, state, action, next state]
    reward: np.ndarray  # [layer, state, action]
    potential: np.ndarray  # [layer, state]


def process(seed, layers=4, states=3, actions=3):
    rng = np.random.default_rng(seed)
    chance = rng.dirichlet(np.ones(states), (layers, states, actions))
    return Process(chance, rng.normal(size=(layers, states, actions)), 3 * rng.normal(size=(layers, states)))


def shaping(found, gamma):
    """F ``[layer, state, next state]`` as the method pays it: a rollout of one or two steps a move."""
    layers, states = found.potential.shape
    moves = []
    for layer in range(layers):
        for s in range(states):
            for n in range(states):
                potentials = [found.potential[layer, s]]
                if layer + 1 < layers:
                    potentials.append(found.potential[layer + 1, n])
                steps = [{"potential": float(p)} for p in potentials]
                moves.append({"id": f"{layer} {s} {n}", "group": "g", "reward": 0.0, "steps": steps})
    credit = ac.assign(moves, "pbrs", gamma=gamma)
    first = credit.extras["shaping_rewards"][credit.batch.step_start_R1[:-1]]
    return first.reshape(layers, states, states)


def values(found, gamma, bonus):
    """Q ``[layer, state, action]`` by backward induction; ``bonus(layer, state, next)`` is added."""
    layers, states, actions = found.reward.shape
    q = np.zeros_like(found.reward)
    after = np.zeros(states)
    for layer in reversed(range(layers)):
        for s in range(states):
            for a in range(actions):
                ahead = sum(
                    found.chance[layer, s, a, n] * (bonus(layer, s, n) + gamma * after[n])
                    for n in range(states)
                )
                q[layer, s, a] = found.reward[layer, s, a] + ahead
        after = q[layer].max(axis=1)
    return q


def none(layer, s, n):
    return 0.0


def potential_based(found, gamma):
    f = shaping(found, gamma)
    return lambda layer, s, n: f[layer, s, n]


@pytest.mark.parametrize("gamma", [1.0, 0.7])
@pytest.mark.parametrize("seed", range(4))
def test_potential_based_shaping_keeps_every_optimal_action_and_shifts_q_by_the_potential(seed, gamma):
    found = process(seed)
    before, after = values(found, gamma, none), values(found, gamma, potential_based(found, gamma))
    np.testing.assert_array_equal(before.argmax(axis=2), after.argmax(axis=2))
    np.testing.assert_allclose(before - found.potential[:, :, None], after, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("clip", lambda f: max(f, 0.0)),
        ("bounded", lambda f: float(np.clip(f, -0.5, 0.5))),
        ("stretched where positive", lambda f: 3 * f if f > 0 else f),
    ],
)
def test_a_bent_shaping_changes_some_optimal_action(name, change):
    changed = []
    for seed in range(6):
        found = process(seed)
        straight = potential_based(found, 1.0)
        before = values(found, 1.0, none)
        after = values(found, 1.0, lambda *at, f=straight: change(f(*at)))
        changed.append((before.argmax(axis=2) != after.argmax(axis=2)).any())
    assert any(changed), name


def test_another_discount_of_the_shaping_changes_some_optimal_action():
    changed = []
    for seed in range(6):
        found = process(seed)
        before = values(found, 1.0, none)
        after = values(found, 1.0, potential_based(found, 0.6))
        changed.append((before.argmax(axis=2) != after.argmax(axis=2)).any())
    assert any(changed)


def test_a_potential_of_the_end_changes_some_optimal_action():
    changed = []
    for seed in range(6):
        found = process(seed)
        straight = potential_based(found, 1.0)
        ends = found.potential[0]  # what each end is worth, kept instead of 0

        def kept(layer, s, n, straight=straight, ends=ends, found=found):
            last = layer == found.potential.shape[0] - 1
            return straight(layer, s, n) + (ends[n] if last else 0.0)

        before, after = values(found, 1.0, none), values(found, 1.0, kept)
        changed.append((before.argmax(axis=2) != after.argmax(axis=2)).any())
    assert any(changed)


def test_a_potential_of_the_end_that_is_constant_changes_nothing():
    found = process(0)
    straight = potential_based(found, 1.0)
    last = found.potential.shape[0] - 1
    after = values(found, 1.0, lambda layer, s, n: straight(layer, s, n) + 2.0 * (layer == last))
    np.testing.assert_array_equal(values(found, 1.0, none).argmax(axis=2), after.argmax(axis=2))


# -- two ways to a goal: the direct one is better, the detour looks better --------------------------

DIRECT = {"id": "direct", "group": "g", "reward": 1.0, "steps": [{"potential": 0.0}]}
DETOUR = {
    "id": "detour",
    "group": "g",
    "reward": 0.9,
    "steps": [{"potential": 0.0}, {"potential": 5.0}, {"potential": -4.0}],
}


def returns(change):
    """What each way earns with the method's shaping rewards changed."""
    found = {}
    for way in (DIRECT, DETOUR):
        f = ac.assign([way], "pbrs").extras["shaping_rewards"]
        found[way["id"]] = way["reward"] + float(np.sum(change(f, way)))
    return found


def best(change):
    found = returns(change)
    return max(found, key=found.get)


def test_the_direct_way_stays_better_under_potential_based_shaping():
    assert {"direct": 1.0, "detour": pytest.approx(0.9)} == returns(lambda f, way: f)


def test_clipped_shaping_prefers_the_detour():
    assert "detour" == best(lambda f, way: np.maximum(f, 0.0))


def test_events_over_the_running_maximum_prefer_the_detour():
    def events(f, way):
        phi = np.array([s["potential"] for s in way["steps"]])
        return np.diff(np.maximum.accumulate(phi))

    assert "detour" == best(events)


def test_a_mismatched_discount_prefers_the_detour():
    # Returns are not discounted: what is left is (0.1 - 1) times the sum of the potentials.
    low = DETOUR | {"steps": [{"potential": 0.0}, {"potential": -5.0}, {"potential": 4.0}]}
    f = ac.assign([low], "pbrs", gamma=0.1).extras["shaping_rewards"]
    assert pytest.approx(0.9) == float(f.sum())
    assert low["reward"] + float(f.sum()) > DIRECT["reward"]


def test_a_kept_potential_of_a_truncated_end_prefers_to_be_cut_off():
    cut = {"id": "cut", "group": "g", "reward": 0.0, "status": "truncated"}
    cut["steps"] = [{"potential": 0.0}, {"potential": 5.0}]
    f = ac.assign([cut], "pbrs").extras["shaping_rewards"]
    assert pytest.approx(0.0) == float(f.sum())
    kept = cut["reward"] + float(f.sum()) + 5.0
    assert kept > DIRECT["reward"]


def test_summed_scores_pay_padding_and_the_minimum_does_not():
    def way(name, scores):
        return {"id": name, "group": "g", "reward": 1.0, "steps": [{"step_score": p} for p in scores]}

    short, padded = way("short", [0.9, 0.8]), way("padded", [0.9, 0.9, 0.9, 0.9, 0.8])
    summed = {w["id"]: sum(s["step_score"] for s in w["steps"]) for w in (short, padded)}
    assert summed["padded"] > summed["short"]
    credit = ac.assign([short, padded], "pure", tau=0.01)
    by_min = credit.extras["weighted_rewards"]
    assert pytest.approx(by_min[:2].sum(), abs=1e-3) == by_min[2:].sum()


def test_normalising_each_turn_by_itself_hides_which_turn_matters():
    # In turn 1 little is at stake, in turn 2 much; each turn's own deviation makes them equal.
    ways = [(0.01, 0.0), (0.0, 1.0), (0.01, 1.0), (0.0, 0.0)]
    four = [
        {"id": f"{a} {b}", "group": "g", "reward": 0.0, "steps": [{"reward": a}, {"reward": b}, {}]}
        for a, b in ways
    ]
    turn = ac.assign(four, "mt-grpo", eps=0).parts["turn"].reshape(4, 3).sum(axis=1)
    assert sum(ways[0]) < sum(ways[1])
    assert pytest.approx(turn[0]) == turn[1]


# -- shaping as a baseline --------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3)), min_size=1, max_size=6),
    st.floats(-3, 3),
)
def test_return_to_go_with_shaping_is_the_return_minus_the_potential(steps, outcome):
    one = [
        {
            "id": "a",
            "group": "g",
            "reward": outcome,
            "steps": [{"reward": r, "potential": p} for r, p in steps],
        }
    ]
    credit = ac.assign(one, "pbrs", outcome_in_steps="no")
    rewards = np.array([r for r, _ in steps])
    rewards[-1] += outcome
    to_go = np.cumsum(rewards[::-1])[::-1] - np.array([p for _, p in steps])
    # A group of one is centred on its own whole return.
    np.testing.assert_allclose(credit.steps, to_go - to_go[0], rtol=1e-9, atol=1e-9)
