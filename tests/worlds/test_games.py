from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from accredit.oracle import solve
from accredit.worlds import make, make_policy
from accredit.worlds.games import GAMES, Game, make_game


@pytest.fixture(params=[(name, n) for name in GAMES for n in (3, 6)], ids=lambda p: f"{p[0]}-{p[1]}")
def game(request):
    return make_game(4, *request.param)


def test_the_empty_coalition_is_worth_nothing(game):
    assert 0.0 == game.v[0]


def test_shapley_values_are_the_mean_over_all_orders(game):
    total, orders = np.zeros(game.players), list(permutations(range(game.players)))
    for order in orders:
        mask = 0
        for i in order:
            total[i] += game.v[mask | 1 << i] - game.v[mask]
            mask |= 1 << i
    assert total / len(orders) == pytest.approx(game.shapley(), abs=1e-12)


def test_shapley_values_sum_to_the_worth_of_all(game):
    assert game.v[-1] == pytest.approx(game.shapley().sum(), abs=1e-12)


def test_banzhaf_values_are_the_mean_marginal_over_the_others(game):
    for i in range(game.players):
        others = [m for m in range(game.v.size) if not m >> i & 1]
        expected = np.mean([game.v[m | 1 << i] - game.v[m] for m in others])
        assert expected == pytest.approx(game.banzhaf()[i])


def test_the_least_core_holds_and_no_smaller_excess_does(game):
    e, x = game.least_core()
    assert game.v[-1] == pytest.approx(x.sum())
    assert e == pytest.approx(game.excess(x), abs=1e-7)
    rng = np.random.default_rng(0)
    for _ in range(50):
        other = x + rng.normal(0, 0.1, x.size)
        other += (game.v[-1] - other.sum()) / x.size
        assert game.excess(other) >= e - 1e-7


def test_the_egalitarian_point_is_the_shortest_of_the_least_core(game):
    e, x = game.least_core()
    short = game.egalitarian()
    assert game.v[-1] == pytest.approx(short.sum(), abs=1e-7)
    assert game.excess(short) <= e + 1e-6
    assert short @ short <= min(x @ x, game.nucleolus() @ game.nucleolus()) + 1e-6


def test_the_nucleolus_has_the_lexicographically_smallest_excesses(game):
    def sorted_excess(x):
        return np.sort((game.v - game.members() @ x)[1:-1])[::-1]

    x = game.nucleolus()
    assert game.v[-1] == pytest.approx(x.sum())
    mine = sorted_excess(x)
    assert game.least_core()[0] == pytest.approx(mine[0], abs=1e-7)
    rng = np.random.default_rng(1)
    rivals = [game.shapley(), game.egalitarian(), *(x + rng.normal(0, 0.05, (30, x.size)))]
    for other in rivals:
        other = other + (game.v[-1] - other.sum()) / x.size
        apart = np.flatnonzero(np.abs(sorted_excess(other) - mine) > 1e-6)
        assert not apart.size or sorted_excess(other)[apart[0]] > mine[apart[0]]


def test_the_nucleolus_of_a_known_bankruptcy_game_is_the_talmud_division():
    """Estate 200, claims 100, 200, 300: the Mishna gives 50, 75, 75 (Aumann and Maschler 1985)."""
    claims, estate = np.array([100, 200, 300]), 200
    inside = (np.arange(8)[:, None] >> np.arange(3) & 1).astype(bool)
    v = np.maximum(0.0, estate - (~inside) @ claims)
    assert [50, 75, 75] == pytest.approx(Game("bankruptcy", 3, v, {}).nucleolus().tolist())


def test_duplicates_get_no_leave_one_out_and_dummies_get_nothing():
    game = make_game(0, "duplicates", 6)
    roles = np.array(game.facts["roles"])
    assert not game.leave_one_out()[roles == 0].any()
    assert game.shapley()[roles == 0].min() > 0
    assert not game.shapley()[roles < 0].any()


def test_noisy_queries_average_to_the_worth():
    game = make_game(0, "coverage", 4)
    asked = game.asked(np.full(4000, 11), np.random.default_rng(1), noise=0.5)
    assert abs(asked.mean() - game.v[11]) < 4 * 0.5 / np.sqrt(4000)


def test_joining_is_worth_the_banzhaf_value_on_average():
    task = make("coop", seed=3, game="synergy", players=5)
    exact = solve(task, make_policy(task))
    gain = (exact.occupancy * (exact.Q[:, :, 0] - exact.Q[:, :, 1])).sum(1)
    assert task.facts["game"].banzhaf() == pytest.approx(gain)
