from __future__ import annotations

import numpy as np
import pytest

from accredit.errors import ParamError
from accredit.worlds import FAMILIES, TabularWorld, World, make


def _played(world: TabularWorld, rng: np.random.Generator) -> list[tuple[str, float, bool]]:
    seen = []
    while options := world.actions():
        seen.append(world.step(str(rng.choice(options))))
    return seen


@pytest.mark.parametrize("family", FAMILIES)
def test_a_restored_world_goes_on_exactly_as_the_saved_one(family):
    world = TabularWorld(make(family, seed=2))
    assert isinstance(world, World)
    world.reset(seed=4)
    world.step(world.actions()[0])
    seen, token = world.key(), world.snapshot()
    first = _played(world, np.random.default_rng(0))
    assert seen == world.restore(token)
    assert first == _played(world, np.random.default_rng(0))
    assert first[-1][2]


def test_equal_seeds_begin_equal_episodes():
    worlds = [TabularWorld(make("umbrella", seed=2)) for _ in range(2)]
    assert worlds[0].reset(9) == worlds[1].reset(9)
    assert _played(worlds[0], np.random.default_rng(1)) == _played(worlds[1], np.random.default_rng(1))


def test_returns_played_step_by_step_average_to_the_exact_value():
    from accredit.oracle import solve
    from accredit.worlds import make_policy

    task = make("dag", seed=2, predicates=4)
    policy = make_policy(task)
    world, rng, returns = TabularWorld(task), np.random.default_rng(5), []
    for seed in range(400):
        world.reset(seed)
        total, done = 0.0, False
        while not done:
            probs = policy.probs_NA[task.keys.index(world.key())]
            _, reward, done = world.step(task.actions[rng.choice(len(probs), p=probs)])
            total += reward
        returns.append(total)
    error = np.std(returns) / 20
    assert abs(np.mean(returns) - solve(task, policy).value) <= 4 * error


def test_deferred_rewards_come_at_the_end():
    world = TabularWorld(make("team", seed=1))
    world.reset(0)
    rewards = [r for _, r, _ in _played(world, np.random.default_rng(0))]
    assert [0.0] * (len(rewards) - 1) == rewards[:-1]
    assert rewards[-1]


def test_steps_snapshots_and_restores_are_counted():
    world = TabularWorld(make("rooms", seed=1))
    world.reset(0)
    token = world.snapshot()
    world.step("take")
    world.restore(token)
    world.reseed(3)
    cost = world.cost
    assert (1, 1, 1) == (cost.environment_steps, cost.snapshots, cost.restores)


def test_an_action_that_does_not_exist_is_refused_with_the_nearest():
    world = TabularWorld(make("rooms", seed=1))
    world.reset(0)
    with pytest.raises(ParamError, match="go north"):
        world.step("go nort")
