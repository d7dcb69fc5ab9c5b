"""Key and door: what the first steps decide pays at the end, after a walk among apples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accredit.errors import ParamError
from accredit.worlds.tabular import Move, Rules, Task, tabulate

__all__ = ["make"]

VARIANTS = ("plain", "aliased", "outcome_only")


def make(
    seed: int,
    *,
    length: int = 12,
    keys: int = 1,
    variant: str = "plain",
    apple: float = 0.2,
    apple_chance: float = 0.5,
    shows_key: bool = True,
) -> Task:
    """Return a task; the outcome is 1 when every key was picked.

    Steps 0 .. keys-1 offer a key (pick or skip), the last one is the door, all between have
    apples, which fall by chance whatever is done.  So only the key steps have an advantage; each
    of several keys matters only while none was skipped.

    States: (position, keys held), or position after a skip.  Key: the same, as text.

    Args:
        seed: of the task (the policy's logits; the chain itself is always the same).
        length: number of steps, 5 to 103.
        keys: how many are needed (all of them).
        variant: plain; aliased: an apple pays what the door pays; outcome_only: apples pay 0.
        apple: reward of an apple.
        apple_chance: chance of one, a step.
        shows_key: whether the key of a state tells the keys held; the policy then sees no more either.
    """
    if variant not in VARIANTS or not 1 <= keys <= length - 2 or not 0 <= apple_chance <= 1:
        raise ParamError(f"keydoor: length={length}, keys={keys}, variant={variant!r} out of range")
    pays = {"plain": apple, "aliased": 1.0, "outcome_only": 0.0}[variant]

    def moves(state: tuple[int, int]) -> Mapping[int, Sequence[Move]]:
        place, held = state
        if place == length:
            return {}
        if place < keys:
            return {0: [(1.0, (place + 1, held + 1), 0.0)], 1: [(1.0, (place + 1, held), 0.0)]}
        chance = apple_chance if pays and place < length - 1 else 0.0
        ways = [(chance, (place + 1, held), pays), (1 - chance, (place + 1, held), 0.0)]
        return {0: ways, 1: ways}

    def key(state: tuple[int, int]) -> str:
        place, held = state
        here = "a key" if place < keys else "a door" if place == length - 1 else "an apple tree"
        bag = f" You hold {held} of {keys} keys." if shows_key else ""
        return f"Place {place}: {here}.{bag}"

    size = {"length": length, "keys": keys, "variant": variant, "apple": apple, "apple_chance": apple_chance}
    return tabulate(
        Rules(moves, key, lambda s: float(s == (length, keys)), lambda s: s == (length, keys)),
        {(0, 0): 1.0},
        ("pick", "pass"),
        family="keydoor",
        seed=seed,
        horizon=length,
        blind=not shows_key,
        size={**size, "shows_key": shows_key},
        facts={"critical_steps": list(range(keys))},
    )
