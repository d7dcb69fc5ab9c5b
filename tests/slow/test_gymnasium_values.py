"""Gymnasium's toy texts: values known from outside, against our dynamic programming."""

from __future__ import annotations

import numpy as np
import pytest

from accredit.errors import DataError

pytestmark = pytest.mark.slow

# Optimal values at gamma 0.99 of the state that reset(seed=0) begins in.
KNOWN = {"FrozenLake-v1": 0.542026, "CliffWalking-v1": -12.2479, "Taxi-v4": 4.2495}


@pytest.mark.parametrize("name", KNOWN)
def test_optimal_values_are_the_known_ones_by_sweeps_and_by_horizon(name):
    import gymnasium

    from accredit.worlds import optimal
    from accredit.worlds.gym import gym_task, value_iteration

    task = gym_task(name, horizon=400 if name == "Taxi-v4" else 3000)
    start, _ = gymnasium.make(name).reset(seed=0)
    assert KNOWN[name] == pytest.approx(value_iteration(task)[start], abs=1e-4)
    assert KNOWN[name] == pytest.approx(optimal(task).V[0, start], abs=1e-4)


def test_played_returns_average_to_the_exact_value():
    import gymnasium

    from accredit.oracle import solve
    from accredit.worlds import make_policy
    from accredit.worlds.gym import gym_task

    task = gym_task("FrozenLake-v1", horizon=30, gamma=1.0)
    policy = make_policy(task)
    env, rng, returns = gymnasium.make("FrozenLake-v1"), np.random.default_rng(1), []
    for seed in range(2000):
        state, _ = env.reset(seed=seed)
        total, done, t = 0.0, False, 0
        while not done and t < 30:
            state, reward, done, _, _ = env.step(rng.choice(4, p=policy.probs_NA[state]))
            total, t = total + float(reward), t + 1
        returns.append(total)
    error = np.std(returns) / np.sqrt(2000)
    assert abs(np.mean(returns) - solve(task, policy).value) <= 4 * error


@pytest.mark.parametrize("name", KNOWN)
def test_a_restored_environment_goes_on_exactly(name):
    from accredit.worlds import World
    from accredit.worlds.gym import GymWorld

    world = GymWorld(name)
    assert isinstance(world, World)
    world.reset(3)
    token = world.snapshot()
    first = [world.step(str(a)) for a in (0, 1, 2)]
    world.restore(token)
    assert first == [world.step(str(a)) for a in (0, 1, 2)]
    assert 1 == world.cost.restores


def test_an_environment_without_tables_says_so():
    from accredit.worlds.gym import gym_task

    with pytest.raises(DataError, match="no transition table"):
        gym_task("Blackjack-v1")
