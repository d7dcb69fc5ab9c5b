"""Tables made by exploring a world agree with the tables that the world was made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from accredit.data import Batch
from accredit.errors import DataError, ParamError, ProbeError
from accredit.oracle import solve, table_truth, tabulate
from accredit.oracle.truths import truth
from accredit.signals.continuation import Budget
from accredit.worlds import TabularWorld, Task, make, make_policy, sample
from accredit.worlds.acting import Choice, Scene, TableActor


class Sure(TabularWorld):
    """A tabular world that leaves nothing to chance, and says so."""

    deterministic = True


def rooms() -> Task:
    return make("rooms", seed=1, slip=0.0)


def test_explored_values_are_the_exact_ones() -> None:
    task = rooms()
    policy = make_policy(task, 0.3)
    table = tabulate(Sure(task), TableActor(task, policy))
    exact = solve(task, policy)
    assert table.value == pytest.approx(exact.value, abs=1e-12)
    number = {(task.keys[n], task.keys[n]): n for n in range(task.n_states)}
    for (state, _), n in table.nodes.items():
        for a, action in enumerate(table.task.actions):
            if table.task.allowed_NA[n, a]:
                mine = table.tables.A[:, n, a]
                np.testing.assert_allclose(
                    mine, exact.A[:, number[state], task.actions.index(action)], atol=1e-12
                )


def test_truth_of_played_rollouts_is_that_of_the_sampler() -> None:
    task = rooms()
    policy = make_policy(task, 0.3)
    played = sample(task, policy=policy, groups=2, group_size=6, seed=5)
    tables = {
        str(name): tabulate(Sure(task), TableActor(task, policy), str(name))
        for name in played.batch.group_names
    }
    found = table_truth(played.batch, tables)
    np.testing.assert_allclose(found.advantage, played.truth.advantage, atol=1e-12)
    np.testing.assert_allclose(found.value, played.truth.value, atol=1e-12)
    np.testing.assert_allclose(found.q, played.truth.q, atol=1e-12)
    np.testing.assert_allclose(found.spread, played.truth.spread, atol=1e-12)
    np.testing.assert_allclose(found.advantage_key, played.truth.advantage_key, atol=1e-12)


class Repeating(TableActor):
    """Likes to do again what it did last, if that is possible."""

    def probs(self, scenes: list[Scene]) -> list[np.ndarray]:
        found = []
        for scene, row in zip(scenes, super().probs(scenes), strict=True):
            again = np.array([a in scene.history[-1:] for a in scene.actions or ()], float)
            found.append((row + again) / (row + again).sum())
        return found

    def act(self, scenes: list[Scene], rngs: list[np.random.Generator]) -> list[Choice]:
        rows = self.probs(scenes)
        return [
            Choice(str(rng.choice(scene.actions, p=row)))
            for scene, rng, row in zip(scenes, rngs, rows, strict=True)
        ]


def mean_return(world: Sure, actor: Repeating, episodes: int) -> tuple[float, float]:
    rng, found = np.random.default_rng(0), []
    for _ in range(episodes):
        world.reset(0)
        past, total, over = list[str](), 0.0, False
        while not over:
            scene = Scene("g", world.key(), world.seen(), tuple(world.actions()), tuple(past))
            past.append(actor.act([scene], [rng])[0].action)
            _, reward, over = world.step(past[-1])
            total += reward
        found.append(total)
    return float(np.mean(found)), float(np.std(found) / np.sqrt(episodes))


def test_a_policy_that_remembers_is_solved_with_its_memory_in_the_state() -> None:
    task = rooms()
    actor = Repeating(task, make_policy(task, 0.3))
    mean, error = mean_return(Sure(task), actor, 1500)
    right, forgetful = (tabulate(Sure(task), actor, memory=m).value for m in (1, 0))
    assert abs(mean - right) <= 3.5 * error
    assert abs(right - forgetful) > 0.02


def test_a_world_of_chance_is_refused() -> None:
    task = rooms()
    with pytest.raises(ProbeError, match="deterministic"):
        tabulate(TabularWorld(task), TableActor(task, make_policy(task, 0.3)))


@pytest.mark.parametrize("error", [1e-9, np.nan])
def test_values_that_do_not_satisfy_their_equations_are_no_truth(monkeypatch, error: float) -> None:
    task = rooms()
    for module in ("exact", "tabulated"):
        monkeypatch.setattr(f"accredit.oracle.{module}.residual", lambda *parts: error)
    with pytest.raises(ArithmeticError, match="Bellman"):
        tabulate(Sure(task), TableActor(task, make_policy(task, 0.3)))
    with pytest.raises(ArithmeticError, match="Bellman"):
        solve(task, make_policy(task, 0.3))


def test_a_world_that_is_too_large_is_given_up() -> None:
    task = rooms()
    with pytest.raises(ProbeError, match="more than 3"):
        tabulate(Sure(task), TableActor(task, make_policy(task, 0.3)), most=3)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"state": "nowhere", "action": "go north"}, "recorded was 'nowhere'"),
        ({"action": "fly"}, "'fly' is not possible"),
    ],
)
def test_a_rollout_of_another_world_is_refused(step: dict[str, str], said: str) -> None:
    task = rooms()
    table = tabulate(Sure(task), TableActor(task, make_policy(task, 0.3)), "g")
    batch = Batch.from_records([{"id": "odd", "group": "g", "reward": 0, "steps": [step]}])
    with pytest.raises(DataError, match=said):
        table_truth(batch, {"g": table})
    with pytest.raises(DataError, match="no table"):
        table_truth(batch, {"h": table})


@pytest.mark.parametrize(
    "asked", [{"steps": [0]}, {"budget": Budget(tokens=1)}, {"journal": "j"}, {"workers": 2}]
)
def test_what_belongs_to_continuations_is_refused_beside_exact_truth(asked: dict[str, Any]) -> None:
    """It would be passed over in silence."""
    task = rooms()
    batch = sample(task, groups=1, group_size=2, success_rate=0.5).batch
    with pytest.raises(ParamError, match="belong to continuations"):
        truth(batch, lambda group: Sure(task), TableActor(task, make_policy(task, 0.3)), **asked)


def test_what_a_policy_remembers_keeps_equal_states_apart() -> None:
    """Shared continuations would be those of another past."""
    task = rooms()
    policy = make_policy(task, 0.3)
    batch = sample(task, policy=policy, groups=1, group_size=8, seed=5).batch
    bought = [
        truth(batch, lambda group: Sure(task), TableActor(task, policy), memory=m, continuations=2).spent
        for m in (0, 1)
    ]
    assert bought[0]["continuations"] < bought[1]["continuations"]
