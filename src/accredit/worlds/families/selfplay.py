"""Self-play: roles that are paid differently for the same game."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accredit.errors import ParamError
from accredit.worlds.tabular import Move, Rules, Task, tabulate

__all__ = ["make"]


def make(
    seed: int,
    *,
    variant: str = "matrix",
    choices: int = 3,
    rounds: int = 2,
    edge: float = 0.3,
    seen: bool = True,
    levels: int = 5,
) -> Task:
    """Return a task with two roles; each role's steps are a rollout of its own with its own outcome.

    ``matrix``: rounds of a zero-sum matrix game, payoffs uniform in [-1, 1] plus an edge for the
    first mover; the outcome is the mean over the rounds.  ``proposer``: one role proposes a
    problem of some level, the other tries it in one of several ways; s(d) falls with the level.
    The solver is paid 1 when it solves, the proposer ``1 - |2 s(d) - 1|``, most for even odds.

    States: the moves so far.  Key: the same, as far as the role sees them.

    Args:
        seed: of the payoffs.
        variant: matrix or proposer.
        choices: actions a move.
        rounds: matrix: number of rounds.
        edge: matrix: added to the first mover's payoff.
        seen: matrix: whether the second mover sees the first move of the round; the policy then
            sees no more either.
        levels: proposer: number of difficulties.
    """
    if variant == "proposer":
        return _proposer(seed, levels, choices)
    if variant != "matrix" or choices < 2 or not 1 <= rounds <= 4:
        raise ParamError(f"selfplay: variant={variant!r}, choices={choices}, rounds={rounds} out of range")
    rng = np.random.default_rng(np.random.SeedSequence([seed, 10]))
    pays = rng.uniform(-1, 1, (rounds, choices, choices)) + edge

    def moves(state: tuple[int, ...]) -> Mapping[int, Sequence[Move]]:
        return {} if len(state) == 2 * rounds else {a: [(1.0, (*state, a), 0.0)] for a in range(choices)}

    def outcome(state: tuple[int, ...]) -> float:
        played = range(len(state) // 2)
        return float(sum(pays[r, state[2 * r], state[2 * r + 1]] for r in played) / rounds)

    def key(state: tuple[int, ...]) -> str:
        told = state if seen or len(state) % 2 == 0 else state[:-1]
        role = "second" if len(state) % 2 else "first"
        return f"You move {role}. So far: {' '.join(map(str, told)) or 'nothing'}."

    def payoffs(states: list[Any]) -> Mapping[str, Any]:
        first = np.array([outcome(s) for s in states])
        return {"payoffs": {"first": first, "second": -first}}

    return tabulate(
        Rules(moves, key, outcome, None, lambda s: "second" if len(s) % 2 else "first"),
        {(): 1.0},
        tuple(f"move {a}" for a in range(choices)),
        family="selfplay",
        seed=seed,
        horizon=2 * rounds,
        of_states=payoffs,
        blind=not seen,
        size={"variant": variant, "choices": choices, "rounds": rounds, "edge": edge, "seen": seen},
        facts={"payoffs": pays},
    )


def _proposer(seed: int, levels: int, choices: int) -> Task:
    if levels < 2 or choices < 2:
        raise ParamError(f"selfplay: levels={levels}, choices={choices} out of range")
    rng = np.random.default_rng(np.random.SeedSequence([seed, 11]))
    solve = 1 / (1 + np.exp(np.linspace(-3, 3, levels)))
    skill = np.clip(solve[:, None] + rng.uniform(-0.15, 0.15, (levels, choices)), 0.02, 0.98)

    def moves(state: tuple[Any, ...]) -> Mapping[int, Sequence[Move]]:
        if state == ("propose",):
            return {a: [(1.0, ("solve", a), 0.0)] for a in range(levels)}
        if state[0] == "end":
            return {}
        d = state[1]
        done = {True: skill[d], False: 1 - skill[d]}
        return {
            levels + a: [(float(p[a]), ("end", d, won), 0.0) for won, p in done.items()]
            for a in range(choices)
        }

    def payoffs(states: list[Any]) -> Mapping[str, Any]:
        made = [1 - abs(2 * solve[s[1]] - 1) if s[0] == "end" else 0.0 for s in states]
        won = [float(s[0] == "end" and s[2]) for s in states]
        return {"payoffs": {"proposer": np.array(made), "solver": np.array(won)}}

    def key(state: tuple[Any, ...]) -> str:
        return "Propose a problem." if state[0] == "propose" else f"Solve a problem of level {state[1]}."

    return tabulate(
        Rules(moves, key, lambda s: 0.0, None, lambda s: "proposer" if s[0] == "propose" else "solver"),
        {("propose",): 1.0},
        (*(f"level {d}" for d in range(levels)), *(f"way {a}" for a in range(choices))),
        family="selfplay",
        seed=seed,
        horizon=2,
        of_states=payoffs,
        size={"variant": "proposer", "levels": levels, "choices": choices},
        facts={"solve_rate": solve, "skill": skill},
    )
