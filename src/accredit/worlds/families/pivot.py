"""Pivot: one step of a long tree decides, and perhaps a later one repairs."""

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
    depth: int = 12,
    branching: int = 3,
    p_hi: float = 0.9,
    p_lo: float = 0.1,
    good: int = 1,
    repair: bool = False,
    entropy_link: float = 0.0,
) -> Task:
    """Return a task; the outcome is 1 with the chance that the pivot left.

    Until the pivot every path has the same chance of success; at the pivot ``good`` of the branches
    lead to p_hi, the others to p_lo; at the repair, if there is one, a good branch lifts a lost path to
    p_hi.  The end draws the outcome.

    States: (depth, before / high / low).  Key: the path, so that equal keys mean equal paths.

    Args:
        seed: of the places and of the good branches.
        depth: number of steps, 8 to 64.
        branching: actions a step.
        p_hi: chance of success after a good branch.
        p_lo: after another.
        good: how many branches are good.
        repair: whether a later step can repair.
        entropy_link: correlation c in [-1, 1] of the policy's entropy with the pivot at beta = 0: 1
            makes the pivot the least sure step, -1 the surest.
    """
    if depth < 4 or not 1 <= good < branching or not 0 <= p_lo <= p_hi <= 1 or abs(entropy_link) > 1:
        raise ParamError(f"pivot: depth={depth}, branching={branching}, good={good} out of range")
    rng = np.random.default_rng(np.random.SeedSequence([seed, 8]))
    pivot = int(rng.integers(1, depth // 2 if repair else depth - 1))
    second = int(rng.integers(pivot + 1, depth - 1)) if repair else -1
    right = {at: set(rng.permutation(branching)[:good].tolist()) for at in (pivot, second)}
    chance = {"high": p_hi, "low": p_lo}

    def moves(state: tuple[int, str]) -> Mapping[int, Sequence[Move]]:
        place, phase = state
        if place == depth:
            return {}
        found: dict[int, Sequence[Move]] = {}
        for a in range(branching):
            after = phase
            if place == pivot or (place == second and phase == "low"):
                after = "high" if a in right[place] else "low"
            ends = [(chance.get(after, 0.0), "won"), (1 - chance.get(after, 0.0), "lost")]
            ways = ends if place == depth - 1 else [(1.0, after)]
            found[a] = [(p, (place + 1, then), 0.0) for p, then in ways]
        return found

    def logits(states: list[Any]) -> Mapping[str, Any]:
        drawn = rng.standard_normal((len(states), branching))
        drawn /= np.maximum(drawn.std(1, keepdims=True), 1e-9)
        sure = np.sqrt(1 - entropy_link**2) * rng.standard_normal(depth + 1)
        sure[pivot] -= 2.5 * entropy_link
        return {"logits_NA": drawn * np.exp(0.5 * sure[[place for place, _ in states]])[:, None]}

    size = {"depth": depth, "branching": branching, "p_hi": p_hi, "p_lo": p_lo, "good": good}
    return tabulate(
        Rules(moves, lambda s: f"Depth {s[0]}.", lambda s: float(s[1] == "won"), lambda s: s[1] == "won"),
        {(0, "before"): 1.0},
        tuple(f"branch {a}" for a in range(branching)),
        family="pivot",
        seed=seed,
        horizon=depth,
        history=True,
        of_states=logits,
        size={**size, "repair": repair, "entropy_link": entropy_link},
        facts={"pivot": pivot, "repair": second if repair else None},
    )
