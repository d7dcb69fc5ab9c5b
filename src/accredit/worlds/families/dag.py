"""Dag: predicates with prerequisites; work that can break what was done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from accredit.errors import ParamError
from accredit.worlds.tabular import Move, Rules, Task, tabulate

__all__ = ["make"]

TASKS = ("schema parser tests build docs index cache login search export report deploy").split()


def make(
    seed: int,
    *,
    predicates: int = 6,
    parents: int = 2,
    break_chance: float = 0.15,
    horizon: int | None = None,
) -> Task:
    """Return a task; the outcome is 1 when all targets hold at the end.

    ``attempt i`` makes predicate i true with chance p_i (0.6 to 0.95) if all its parents hold; some
    attempts break one earlier predicate on the way, with chance ``break_chance``.  ``repair j``, for
    those that can break, makes j true again with chance 0.95 if its parents hold, and breaks nothing.
    ``wait`` does nothing.  Targets: the predicates that no other one needs.

    States: the set of predicates that hold.  Key: the same, as text.

    Args:
        seed: of the graph.
        predicates: 4 to 12.
        parents: most prerequisites of one.
        break_chance: chance of a side effect.
        horizon: number of steps, default twice the predicates.
    """
    if not 2 <= predicates <= len(TASKS) or parents < 0 or not 0 <= break_chance <= 1:
        raise ParamError(f"dag: predicates={predicates}, parents={parents} out of range")
    rng = np.random.default_rng(np.random.SeedSequence([seed, 7]))
    needs = [_mask(rng, i, parents) for i in range(predicates)]
    chance = rng.uniform(0.6, 0.95, predicates).tolist()
    harms = {i: int(rng.integers(0, i)) for i in range(1, predicates) if rng.random() < 0.5}
    fixable = sorted(set(harms.values()))
    needed = 0
    for mask in needs:
        needed |= mask
    targets = ((1 << predicates) - 1) & ~needed

    def attempt(state: int, i: int) -> Sequence[Move]:
        done = chance[i] if state & needs[i] == needs[i] else 0.0
        ways: dict[int, float] = {}
        for p, after in ((done, state | 1 << i), (1 - done, state)):
            harm = break_chance if i in harms else 0.0
            hurt = after & ~(1 << harms[i]) if i in harms else after
            for q, then in ((harm, hurt), (1 - harm, after)):
                ways[then] = ways.get(then, 0.0) + p * q
        return [(p, then, 0.0) for then, p in ways.items()]

    def moves(state: int) -> Mapping[int, Sequence[Move]]:
        found: dict[int, Sequence[Move]] = {i: attempt(state, i) for i in range(predicates)}
        for a, j in enumerate(fixable, predicates):
            done = 0.95 if state & needs[j] == needs[j] else 0.0
            found[a] = [(done, state | 1 << j, 0.0), (1 - done, state, 0.0)]
        found[predicates + len(fixable)] = [(1.0, state, 0.0)]
        return found

    def holds(state: int) -> bool:
        return state & targets == targets

    names = TASKS[:predicates]
    return tabulate(
        Rules(moves, lambda s: _text(s, names), lambda s: float(holds(s)), holds),
        {0: 1.0},
        (*(f"attempt {n}" for n in names), *(f"repair {names[j]}" for j in fixable), "wait"),
        family="dag",
        seed=seed,
        horizon=horizon or 2 * predicates,
        of_states=lambda states: {
            "features_Nd": np.array([[s >> i & 1 for i in range(predicates)] for s in states], np.float64)
        },
        size={"predicates": predicates, "parents": parents, "break_chance": break_chance},
        facts={
            "predicates": names,
            "needs": {
                n: [names[j] for j in range(predicates) if needs[i] >> j & 1] for i, n in enumerate(names)
            },
            "targets": [n for i, n in enumerate(names) if targets >> i & 1],
            "harms": {names[i]: names[j] for i, j in harms.items()},
        },
    )


def _mask(rng: np.random.Generator, i: int, parents: int) -> int:
    """Return the prerequisites of predicate i, earlier ones only, as bits."""
    if not i:
        return 0
    chosen = rng.choice(i, int(rng.integers(1, min(parents, i) + 1)) if parents else 0, replace=False)
    return sum(1 << int(j) for j in chosen)


def _text(state: int, names: Sequence[str]) -> str:
    done = [n for i, n in enumerate(names) if state >> i & 1]
    return f"Done: {', '.join(done) or 'nothing'}."
