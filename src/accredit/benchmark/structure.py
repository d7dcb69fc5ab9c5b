"""What a task's structure says of credit: do agents listen to each other, how is a game shared out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.metrics import core_gap, efficiency_residual, largest_excess, mutual_information
from accredit.typing import Floats
from accredit.worlds import Task, occupancy
from accredit.worlds.games import Game

__all__ = ["GameStructure", "game_structure", "influence"]


def influence(task: Task, policy_NA: Floats) -> float | None:
    """Return the exact I(J; Y) of an action and the next agent's action, in nats.

    Mean over visited (step, state) of the mutual information of J ~ pi(.|s) and Y ~ pi(.|s'),
    s' ~ P(.|s, J); states after which nobody acts are left out.  It is 0 where the next agent does
    not listen.

    Args:
        task: with agents.
        policy_NA: the policy.

    Returns:
        None where no action is followed by another.

    Source: C3 (arXiv:2603.06859), influence, here without sampling.
    """
    visits_N = occupancy(task, policy_NA)[: task.horizon - 1].sum(0)
    follows = np.where(task.live_N[:, None], policy_NA, 0.0)
    after = np.asarray(task.matrix @ follows).reshape(task.n_states, task.n_actions, task.n_actions)
    joint = policy_NA[:, :, None] * after
    weight = visits_N * joint.sum((1, 2))
    rows = np.flatnonzero(weight > 0)
    if not rows.size:
        return None
    found = np.array([mutual_information(joint[s]) for s in rows.tolist()])
    return float(weight[rows] @ found / weight[rows].sum())


@dataclass(frozen=True, slots=True)
class GameStructure:
    """How a credit table shares a game out.

    Args:
        efficiency: ``|sum of credit - v(N)|``.
        excess: the most that a coalition would gain on its own.
        gap: excess less e*, the least that an efficient credit can have; 0 in the least core.
    """

    efficiency: float
    excess: float
    gap: float


def game_structure(game: Game, credit_n: Floats) -> GameStructure:
    """Return how a credit of each player stands to a game, in reward units.

    Args:
        game: of 2 players or more.
        credit_n: credit of each player ``[n]``.

    Example:
        >>> from accredit.worlds.games import make_game
        >>> game = make_game(0, "airport", 3)
        >>> round(game_structure(game, game.least_core()[1]).gap, 9) + 0.0
        0.0
    """
    excess = largest_excess(credit_n, game.v)
    gap = core_gap(credit_n, game.v, game.least_core()[0])
    assert excess is not None  # two players have coalitions of their own
    assert gap is not None
    return GameStructure(efficiency_residual(credit_n, float(game.v[-1])), excess, gap)
