from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.worlds import Task, evaluate, key_advantage, make_policy, occupancy, optimal
from accredit.worlds.dynamic import residual, success_values
from accredit.worlds.noise import Noise, keys_of
from tests.dear import dear
from tests.worlds.enumeration import paths, tiny

seeds = st.integers(0, 10_000)


def _means(pairs) -> dict:
    total, mass = defaultdict(float), defaultdict(float)
    for key, prob, value in pairs:
        total[key] += prob * value
        mass[key] += prob
    return {key: total[key] / mass[key] for key in mass if mass[key] > 1e-12}


def _probs(task: Task):
    return make_policy(task).probs_NA


@dear
@given(seeds, st.sampled_from([1.0, 0.9]))
def test_values_are_those_of_all_trajectories_one_by_one(seed, gamma):
    task = tiny(seed, gamma=gamma)
    every = list(paths(task, _probs(task)))
    tables = evaluate(task, _probs(task))
    q = _means((step, p.prob, p.after(step[0], gamma)) for p in every for step in p.steps)
    v = _means((step[:2], p.prob, p.after(step[0], gamma)) for p in every for step in p.steps)
    assert q == pytest.approx({key: tables.Q[key] for key in q}, abs=1e-12)
    assert v == pytest.approx({key: tables.V[key] for key in v}, abs=1e-12)


@given(seeds)
def test_occupancy_is_the_chance_of_each_step_among_all_trajectories(seed):
    task = tiny(seed)
    expected = np.zeros((task.horizon, task.n_states))
    for p in paths(task, _probs(task)):
        for t, s, _ in p.steps:
            expected[t, s] += p.prob
    assert expected == pytest.approx(occupancy(task, _probs(task)), abs=1e-12)


@given(seeds, st.booleans())
def test_truth_by_key_is_the_mean_over_the_histories_that_show_the_key(seed, clock):
    task = tiny(seed, clock=clock)
    probs, tables, keys = _probs(task), evaluate(task, _probs(task)), keys_of(task, Noise())
    weight = occupancy(task, probs)[:, :, None] * probs
    found = key_advantage(tables.A, weight, keys.code_HN)
    expected = _means(
        ((keys.words[keys.code_HN[t, s]], a), p.prob, tables.A[t, s, a])
        for p in paths(task, probs)
        for t, s, a in p.steps
    )
    shown = {(k, a): found[keys.words.index(k), a] for k, a in expected}
    assert expected == pytest.approx(shown, abs=1e-12)


@given(seeds)
def test_advantages_have_mean_zero_under_the_policy(seed):
    task = tiny(seed)
    mean = (_probs(task) * evaluate(task, _probs(task)).A).sum(2)
    assert np.abs(mean).max() < 1e-12


@given(seeds)
def test_optimal_values_are_the_best_choice_at_every_step_by_recursion(seed):
    task = tiny(seed)

    def best(t: int, s: int) -> float:
        choices = np.flatnonzero(task.allowed_NA[s]).tolist() if t < task.horizon else []
        gains = []
        for a in choices:
            row = s * task.n_actions + a
            edges = range(task.edge_start_M1[row], task.edge_start_M1[row + 1])
            ways = ((task.edge_prob_E[e], task.edge_reward_E[e], int(task.edge_to_E[e])) for e in edges)
            gains.append(sum(p * (r + best(t + 1, to)) for p, r, to in ways))
        return max(gains, default=float(task.outcome_N[s]))

    expected = [best(0, s) for s in range(task.n_states)]
    assert expected == pytest.approx(optimal(task).V[0].tolist(), abs=1e-12)


@given(seeds)
def test_chance_of_success_is_that_of_all_trajectories(seed):
    task = tiny(seed)
    expected = sum(p.prob for p in paths(task, _probs(task)) if task.success_N[p.end])
    assert expected == pytest.approx(float(task.start_N @ success_values(task, _probs(task)).V[0]), abs=1e-12)


@given(seeds)
def test_the_second_pass_sees_a_wrong_value(seed):
    task = tiny(seed)
    tables = evaluate(task, _probs(task))
    assert residual(task, _probs(task), tables) < 1e-12
    tables.V[1, 0] += 1e-6
    assert residual(task, _probs(task), tables) > 1e-8
