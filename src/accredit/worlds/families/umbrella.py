"""Umbrella: one decision on the first step, then coin flips until the weather comes.

After bsuite's umbrella_length and umbrella_distract (Osband et al. 2020), rebuilt from its text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accredit.errors import ParamError
from accredit.worlds.tabular import Move, Rules, Task, tabulate

__all__ = ["LENGTHS", "make"]

LENGTHS = (*range(1, 11), 12, 14, 17, 20, 25, *range(30, 101, 10))


def make(seed: int, *, length: int = 10, distractors: int = 20) -> Task:
    """Return a task; the outcome is +1 when the umbrella matches the forecast, else -1.

    Every step before the last pays +1 or -1 by a coin.  Only the first step has an advantage.

    States: (step, forecast, umbrella).  Key: the same as text, and random bits drawn anew each step.

    Args:
        seed: of the task.
        length: number of steps; bsuite sweeps `LENGTHS`.
        distractors: random bits in the key; 0 makes states recur.
    """
    if length < 1 or distractors < 0:
        raise ParamError(f"umbrella: length={length}, distractors={distractors} out of range")

    def moves(state: tuple[int, int, int]) -> Mapping[int, Sequence[Move]]:
        step, need, have = state
        if step == length:
            return {}
        coins = [(0.5, 1.0), (0.5, -1.0)] if step < length - 1 else [(1.0, 0.0)]
        carried = (1, 0) if step == 0 else (have, have)
        return {a: [(p, (step + 1, need, carried[a]), r) for p, r in coins] for a in (0, 1)}

    def key(state: tuple[int, int, int]) -> str:
        step, need, have = state
        bag = "You have not chosen." if step == 0 else f"You carry {'an umbrella' if have else 'nothing'}."
        return f"Step {step}. The forecast says {'rain' if need else 'sun'}. {bag}"

    def matches(state: tuple[int, int, int]) -> bool:
        return state[0] == length and state[1] == state[2]

    return tabulate(
        Rules(moves, key, lambda s: 1.0 if matches(s) else -1.0, matches),
        {(0, 0, 0): 0.5, (0, 1, 0): 0.5},
        ("take", "leave"),
        family="umbrella",
        seed=seed,
        horizon=length,
        distractors=distractors,
        size={"length": length, "distractors": distractors},
        facts={"critical_steps": [0]},
    )
