"""Coop: players join a coalition or stay out; the outcome is what the coalition is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accredit.errors import ParamError
from accredit.worlds.games import GAMES, make_game
from accredit.worlds.tabular import Move, Rules, Task, tabulate

__all__ = ["make"]


def make(seed: int, *, game: str = "majority", players: int = 6) -> Task:
    """Return a task of one step a player: join or stay out, knowing who joined before.

    The policy is a fair coin, so that ``E[Q(join) - Q(stay)]`` of a player is its Banzhaf value.
    ``facts["game"]`` is the Game, with its exact solutions.

    Args:
        seed: of the game.
        game: one of `accredit.worlds.games.GAMES`.
        players: 3 to 14.
    """
    if not 2 <= players <= 14:
        raise ParamError(f"coop: players={players}", hint=f"2 to 14 players; games: {', '.join(GAMES)}")
    worth = make_game(seed, game, players)

    def moves(state: tuple[int, int]) -> Mapping[int, Sequence[Move]]:
        i, joined = state
        if i == players:
            return {}
        return {0: [(1.0, (i + 1, joined | 1 << i), 0.0)], 1: [(1.0, (i + 1, joined), 0.0)]}

    def key(state: tuple[int, int]) -> str:
        inside = [str(j) for j in range(players) if state[1] >> j & 1]
        return f"Player {state[0]}. Joined: {', '.join(inside) or 'nobody'}."

    def coins(states: list[Any]) -> Mapping[str, Any]:
        return {"logits_NA": np.zeros((len(states), 2))}

    return tabulate(
        Rules(
            moves,
            key,
            lambda s: float(worth.v[s[1]]) if s[0] == players else 0.0,
            None,
            lambda s: f"player {s[0]}",
        ),
        {(0, 0): 1.0},
        ("join", "stay out"),
        family="coop",
        seed=seed,
        horizon=players,
        of_states=coins,
        size={"game": game, "players": players},
        facts={"game": worth},
    )
