"""Cooperative games on all coalitions, with exact solutions.

A coalition is a bit mask; ``v[mask]`` is its worth, ``v[0] = 0``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import factorial
from typing import Any

import numpy as np

from accredit.errors import ParamError, suggest
from accredit.typing import Array, Floats, Ints

__all__ = ["GAMES", "Game", "make_game"]


@dataclass(frozen=True, slots=True, eq=False)
class Game:
    """A game.

    Args:
        name: kind of game.
        players: n.
        v: worth of each coalition ``[2^n]``.
        facts: weights, roles and what else defines it.
    """

    name: str
    players: int
    v: Floats
    facts: Mapping[str, Any]

    def asked(self, mask: Ints, rng: np.random.Generator, noise: float = 0.0) -> Floats:
        """Return the worth of coalitions as a noisy query gives it (standard deviation ``noise``)."""
        return np.asarray(self.v[mask] + noise * rng.standard_normal(np.shape(mask)))

    def members(self) -> Array:
        """Return which player is in which coalition, bool ``[2^n, n]``."""
        return (np.arange(self.v.size)[:, None] >> np.arange(self.players) & 1).astype(bool)

    def marginals(self) -> Floats:
        """Return v(S + i) - v(S - i) ``[2^n, n]``."""
        bit = 1 << np.arange(self.players)
        mask = np.arange(self.v.size)[:, None]
        return np.asarray(self.v[mask | bit] - self.v[mask & ~bit])

    def shapley(self) -> Floats:
        """Return the Shapley values ``[n]``, by enumeration; they sum to v(N)."""
        n, inside = self.players, self.members()
        size = inside.sum(1)[:, None] - inside
        weight = np.array([factorial(k) * factorial(n - k - 1) / factorial(n) for k in range(n)])
        # Each coalition without i stands twice, with i in and out.
        return np.asarray((weight[np.minimum(size, n - 1)] * self.marginals()).sum(0) / 2)

    def banzhaf(self) -> Floats:
        """Return the Banzhaf values ``[n]``: the mean marginal over all coalitions of the others."""
        return np.asarray(self.marginals().mean(0))

    def leave_one_out(self) -> Floats:
        """Return v(N) - v(N - i) ``[n]``."""
        return np.asarray(self.marginals()[-1])

    def excess(self, x: Floats) -> float:
        """Return the largest v(S) - x(S) over all coalitions but the empty and the full one."""
        return float((self.v - self.members() @ x)[1:-1].max(initial=-np.inf))

    def least_core(self) -> tuple[float, Floats]:
        """Return the smallest e, and an x with x(N) = v(N) and x(S) >= v(S) - e for all S."""
        everyone = np.ones((1, self.players))
        e, x, _ = self._least_excess(np.arange(1, self.v.size - 1), everyone, self.v[-1:])
        return e, x

    def egalitarian(self) -> Floats:
        """Return the point of the least core with the least sum of squares ``[n]``."""
        from scipy.optimize import minimize  # half a second that most uses do not need

        e, x = self.least_core()
        inside = self.members().astype(np.float64)
        floor = self.v - e
        held: list[int] = []
        for _ in range(self.v.size):
            short = floor - inside @ x
            short[[0, -1]] = 0.0
            worst = int(short.argmax())
            if held and (short[worst] < 1e-9 or worst in held):
                return x
            held.append(worst)
            rows, least = inside[held], floor[held]
            whole = {"type": "eq", "fun": lambda y: y.sum() - self.v[-1]}
            above = {"type": "ineq", "fun": lambda y, rows=rows, least=least: rows @ y - least}
            options = {"ftol": 1e-15, "maxiter": 1000}
            found = minimize(
                lambda y: y @ y, x, jac=lambda y: 2 * y, constraints=[whole, above], options=options
            )
            x = np.asarray(found.x, np.float64)
        raise ArithmeticError(f"egalitarian point of {self.name} was not found")

    def nucleolus(self) -> Floats:
        """Return the point whose sorted excesses are lexicographically smallest ``[n]``.

        One linear program a level; coalitions with a dual price are at their level in every solution.
        """
        n, inside = self.players, self.members().astype(np.float64)
        free = np.arange(1, self.v.size - 1)
        rows, level = inside[-1:], self.v[-1:]
        x = np.full(n, self.v[-1] / n)
        while np.linalg.matrix_rank(rows) < n:
            e, x, price = self._least_excess(free, rows, level)
            tight = free[price > 1e-9]
            rows = np.vstack([rows, inside[tight]])
            level = np.concatenate([level, self.v[tight] - e])
            free = np.setdiff1d(free, tight)
        return x

    def _least_excess(self, free: Ints, rows: Floats, level: Floats) -> tuple[float, Floats, Floats]:
        """Return min e, an x, and the price of each free coalition: x(S) >= v(S) - e, rows x = level."""
        from scipy.optimize import linprog  # half a second that most uses do not need

        n, inside = self.players, self.members()[free].astype(np.float64)
        found = linprog(
            np.append(np.zeros(n), 1.0),
            A_ub=np.hstack([-inside, -np.ones((free.size, 1))]),
            b_ub=-self.v[free],
            A_eq=np.hstack([rows, np.zeros((rows.shape[0], 1))]),
            b_eq=level,
            bounds=[(None, None)] * (n + 1),
            method="highs",
        )
        if not found.success:
            raise ArithmeticError(f"least core of {self.name}: {found.message}")
        return float(found.x[-1]), np.asarray(found.x[:n], np.float64), -np.asarray(found.ineqlin.marginals)


def make_game(seed: int, name: str, players: int) -> Game:
    """Return a game.

    Args:
        seed: of its numbers.
        name: one of `GAMES`.
        players: n; the table has 2^n entries.

    Raises:
        ParamError: if there is no such game.

    Example:
        >>> game = make_game(0, "glove", 3)
        >>> round(float(game.shapley().sum()), 12) == float(game.v[-1])
        True
    """
    if name not in GAMES:
        raise ParamError(f"no game {name!r}. {suggest(name, GAMES)}")
    rng = np.random.default_rng(np.random.SeedSequence([seed, 6, players]))
    inside = (np.arange(1 << players)[:, None] >> np.arange(players) & 1).astype(bool)
    v, facts = GAMES[name](rng, inside)
    return Game(name, players, np.asarray(v, np.float64), facts)


def _glove(rng: np.random.Generator, inside: Array) -> tuple[Array, Mapping[str, Any]]:
    left = rng.permutation(inside.shape[1]) < max(1, inside.shape[1] // 3)
    return np.minimum(inside[:, left].sum(1), inside[:, ~left].sum(1)), {"left": left.tolist()}


def _majority(rng: np.random.Generator, inside: Array) -> tuple[Array, Mapping[str, Any]]:
    weights = rng.integers(1, 10, inside.shape[1])
    quota = int(weights.sum()) // 2 + 1
    return inside @ weights >= quota, {"weights": weights.tolist(), "quota": quota}


def _airport(rng: np.random.Generator, inside: Array) -> tuple[Array, Mapping[str, Any]]:
    needs = rng.integers(1, 10, inside.shape[1])
    return (inside * needs).max(1), {"needs": needs.tolist()}


def _coverage(rng: np.random.Generator, inside: Array) -> tuple[Array, Mapping[str, Any]]:
    covers = rng.random((inside.shape[1], 2 * inside.shape[1])) < 0.35
    seen = inside.astype(np.int64) @ covers > 0
    return seen.mean(1), {"covers": covers.tolist()}


def _synergy(rng: np.random.Generator, inside: Array) -> tuple[Array, Mapping[str, Any]]:
    n = inside.shape[1]
    alone = rng.random(int(n))
    pair = np.triu(rng.normal(0, 0.5, (n, n)), 1)
    s = inside.astype(np.float64)
    return s @ alone + np.einsum("si,ij,sj->s", s, pair, s), {"alone": alone.tolist(), "pair": pair.tolist()}


def _duplicates(rng: np.random.Generator, inside: Array) -> tuple[Array, Mapping[str, Any]]:
    """All roles must be filled; role 0 has two equal players, the last player (of 4 or more) fills none."""
    n = inside.shape[1]
    filled = n - 1 if n > 3 else n
    role = [max(0, i - 1) for i in range(filled)] + [-1] * (n - filled)
    order = rng.permutation(n).tolist()
    roles = [role[i] for i in order]
    whole = np.ones(inside.shape[0], bool)
    for wanted in range(filled - 1):
        whole &= inside[:, [r == wanted for r in roles]].any(1)
    return whole, {"roles": roles}


GAMES: Mapping[str, Callable[[np.random.Generator, Array], tuple[Array, Mapping[str, Any]]]] = {
    "glove": _glove,
    "majority": _majority,
    "airport": _airport,
    "coverage": _coverage,
    "synergy": _synergy,
    "duplicates": _duplicates,
}
