"""Monte-Carlo truth: unbiased, as noisy as it says, and it knows when it is none."""

from __future__ import annotations

import numpy as np
import pytest

from accredit.data import Batch
from accredit.errors import DataError, ParamError
from accredit.planners import Place
from accredit.planners.truth import Estimates, TruthPlanner, continuations_for, places_of
from accredit.signals.continuation import Alone, Engine, Player, Replay
from accredit.worlds import TabularWorld, make, make_policy, sample
from accredit.worlds.acting import TableActor


def estimated(k: int, *, markov: bool = True, steps: int = 24) -> tuple[Estimates, np.ndarray, np.ndarray]:
    """Estimates of the first steps of sampled rollouts, beside their exact values and advantages."""
    task = make("rooms", seed=1, slip=0.0)
    policy = make_policy(task, 0.5)
    played = sample(task, policy=policy, groups=1, group_size=8, seed=2)
    player = Player(Replay(lambda group: TabularWorld(task)), {"actor": TableActor(task, policy)}, slots=32)
    planner = TruthPlanner(played.batch, np.arange(steps), k, markov=markov, horizon=task.horizon)
    found = Engine(Alone(player)).drive(planner).estimates()
    return found, played.truth.value[found.steps], played.truth.advantage[found.steps]


@pytest.mark.parametrize("markov", [True, False])
def test_estimates_agree_with_exact_values_within_their_errors(markov: bool) -> None:
    found, value, advantage = estimated(60, markov=markov, steps=10)
    assert found.steps.size == 10
    z_value = (found.value - value) / found.se_value
    z = (found.advantage - advantage) / found.se
    for each in (z_value, z):
        assert np.abs(each).max() < 4
        assert 0.4 < np.sqrt(np.mean(each**2)) < 1.6
    assert found.k.min() == 60


def drawn(k: int, *, steps: int = 3000, seed: int = 0) -> tuple[Estimates, np.ndarray]:
    """Estimates of states worth 0.2 to 0.8, k outcomes of 0 and 1 a side; and the true A."""
    rng = np.random.default_rng(seed)
    v = rng.uniform(0.2, 0.8, steps)
    q = np.clip(v + rng.normal(0, 0.13, steps), 0.02, 0.98)
    seen = rng.random((2, k, steps)) < np.stack([v, q])[:, None]
    value, after = seen.mean(1)
    halves = np.stack([seen[1, h::2].mean(0) - seen[0, h::2].mean(0) for h in (0, 1)])
    se = [np.sqrt(p * (1 - p) / k) for p in ((seen.sum(1) + 1) / (k + 2))]
    counts = np.full((steps, 2), k)
    return Estimates(np.arange(steps), value, after, se[0], se[1], counts, halves), q - v


@pytest.mark.parametrize(("k", "said"), [(8, "Not truth"), (16, "Not truth"), (400, "Good enough")])
def test_few_continuations_are_never_called_truth_and_many_are(k: int, said: str) -> None:
    found, true = drawn(k)
    assert found.verdict().startswith(said)
    reached = float(np.corrcoef(found.advantage, true)[0, 1])
    assert found.ceiling == pytest.approx(reached, abs=0.06)


def test_the_price_of_an_interval_is_that_of_the_normal_law() -> None:
    for width in (0.3, 0.1, 0.02):
        k = continuations_for(width)
        assert 1.959964 * np.sqrt(0.5 / k) <= width < 1.959964 * np.sqrt(0.5 / (k - 1))
    with pytest.raises(ParamError, match="half width"):
        continuations_for(0.0)


def records() -> list[dict[str, object]]:
    return [
        {"id": "a", "group": "g", "steps": [{"state": "s", "action": "x"}, {"state": "t", "action": "y"}]},
        {"id": "b", "group": "g", "steps": [{"state": "s", "action": "z"}, {"state": "t", "action": "y"}]},
        {"id": "c", "group": "h", "steps": [{"state": "s", "action": "x"}]},
    ]


def test_places_share_a_key_by_state_and_steps_left_or_by_path() -> None:
    batch = Batch.from_records(records())
    by_state = [p.key for p in places_of(batch, range(5), markov=True)]
    by_path = [p.key for p in places_of(batch, range(5), markov=False)]
    assert (by_state[0] == by_state[2], by_state[1] == by_state[3], by_state[0] == by_state[1]) == (
        True,
        True,
        False,
    )
    assert (by_path[0] == by_path[2], by_path[1] == by_path[3]) == (True, False)
    assert places_of(batch, [3], markov=True) == [Place("g", "1\nt", ("z",), 0, "t", "b", 1)]


def test_what_cannot_be_played_again_is_refused() -> None:
    no_action = Batch.from_records([{"id": "a", "group": "g", "steps": [{"state": "s"}]}])
    no_state = Batch.from_records([{"id": "a", "group": "g", "steps": [{"action": "x"}]}])
    with pytest.raises(DataError, match="no action"):
        places_of(no_action, [0], markov=False)
    with pytest.raises(DataError, match="no state"):
        places_of(no_state, [0], markov=True)
    assert len(places_of(no_state, [0], markov=False)) == 1
    with pytest.raises(ParamError, match="at least 2"):
        TruthPlanner(no_state, [0], 1, markov=False)


def test_steps_without_results_are_left_out() -> None:
    task = make("rooms", seed=1, slip=0.0)
    batch = Batch.from_records(records())
    player = Player(
        Replay(lambda group: TabularWorld(task)), {"actor": TableActor(task, make_policy(task, 0.5))}
    )
    found = Engine(Alone(player)).drive(TruthPlanner(batch, range(5), 2, markov=True)).estimates()
    assert found.steps.size == 0
    assert found.ceiling is None
    assert "do not spread" in found.verdict()
