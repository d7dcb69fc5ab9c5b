"""Regret, the way to a goal, and the structure of shares in games, against loops and all coalitions."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit import metrics
from accredit.benchmark.structure import game_structure
from accredit.worlds.games import GAMES, make_game
from tests.dear import dear


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(1, 5)), min_size=1, max_size=8), st.integers(1, 50))
def test_regret_equals_the_mean_over_every_unit_spent(course, budget):
    units = [score / 10 for score, cost in course for _ in range(cost)][:budget]
    score, cost = (np.array(column, float) for column in zip(*course, strict=True))
    actual = metrics.regret(score / 10, cost, 1.0, float(budget))
    assert actual == pytest.approx(float(np.mean([1 - s for s in units])), abs=1e-12)


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 5)), min_size=1, max_size=8), st.integers(0, 11))
def test_reached_is_what_a_walk_had_spent(course, goal):
    score = np.array([s for s, _ in course], float)
    cost = np.array([c for _, c in course[:-1]], float)
    spent, expected = 0.0, None
    for s, c in zip(score.tolist(), [*cost.tolist(), 0.0], strict=True):
        if s >= goal:
            expected = spent
            break
        spent += c
    assert expected == metrics.reached(score, cost, float(goal))


def _worst(game, credit):
    """The largest v(S) - x(S) by going through all proper coalitions as sets of players."""
    players = range(game.players)
    return max(
        float(game.v[sum(1 << i for i in s)]) - sum(float(credit[i]) for i in s)
        for size in range(1, game.players)
        for s in combinations(players, size)
    )


@dear
@given(
    st.sampled_from(sorted(GAMES)),
    st.integers(3, 5),
    st.integers(0, 9),
    st.lists(st.floats(-1, 1), min_size=5, max_size=5),
)
def test_structure_of_a_game_equals_the_search_over_all_coalitions(name, players, seed, shares):
    game = make_game(seed, name, players)
    credit = np.array(shares[:players])
    found = game_structure(game, credit)
    assert found.efficiency == pytest.approx(abs(sum(credit.tolist()) - float(game.v[-1])), abs=1e-12)
    assert found.excess == pytest.approx(_worst(game, credit), abs=1e-9)
    assert found.excess == pytest.approx(game.excess(credit), abs=1e-9)
    assert found.gap == pytest.approx(found.excess - game.least_core()[0], abs=1e-9)


@pytest.mark.parametrize("name", sorted(GAMES))
def test_the_least_core_has_no_gap_and_no_efficient_share_has_less(name):
    game = make_game(3, name, 4)
    assert game_structure(game, game.least_core()[1]).gap == pytest.approx(0, abs=1e-9)
    assert game_structure(game, game.nucleolus()).gap == pytest.approx(0, abs=1e-7)
    shapley = game_structure(game, game.shapley())
    assert shapley.efficiency == pytest.approx(0, abs=1e-12)
    assert shapley.gap >= -1e-9


def test_two_gloves_by_hand():
    """One left glove, two right ones: all to the left owner is the core; equal shares fall short by 1/3."""
    v = np.array([0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    assert metrics.core_gap(np.array([1.0, 0.0, 0.0]), v, 0.0) == 0.0
    assert metrics.core_gap(np.full(3, 1 / 3), v, 0.0) == pytest.approx(1 / 3)
    assert metrics.efficiency_residual(np.full(3, 0.5), 1.0) == 0.5
    assert metrics.largest_excess(np.array([1.0]), np.array([0.0, 1.0])) is None
