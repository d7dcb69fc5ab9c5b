"""Lock: decisions that count only together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from accredit.errors import ParamError
from accredit.worlds.tabular import Move, Rules, Task, tabulate

__all__ = ["make"]


def make(
    seed: int,
    *,
    decisions: int = 8,
    needed: int | None = None,
    rule: str = "count",
    choices: int = 3,
    undo: bool = False,
    visible: bool = True,
) -> Task:
    """Return a task; the outcome is 1 when enough dials are right.

    ``count``: at least ``needed`` of the dials (default all).  ``xor``: two choices a dial; the first
    and the last must differ, all between do not matter.

    States: (dial, right so far, result of the last dial if it can still be undone).

    Args:
        seed: of the right digits.
        decisions: number of dials d.
        needed: k of d that must be right.
        rule: count or xor.
        choices: digits a dial (xor: 2).
        undo: whether the last dial can be taken back once; then there are 2 d steps.
        visible: whether the key of a state tells how many are right (xor: the first choice); the
            policy then sees no more either.
    """
    k = decisions if needed is None else needed
    if rule not in ("count", "xor") or decisions < 2 or not 1 <= k <= decisions or choices < 2:
        raise ParamError(f"lock: decisions={decisions}, needed={needed}, rule={rule!r} out of range")
    if rule == "xor":
        choices, k = 2, 1
    rng = np.random.default_rng(np.random.SeedSequence([seed, 4]))
    digits = rng.integers(0, choices, decisions).tolist()

    def moves(state: tuple[int, int, int]) -> Mapping[int, Sequence[Move]]:
        dial, right, last = state
        if dial == decisions:
            return {}
        found: dict[int, Sequence[Move]] = {}
        for a in range(choices):
            gain = int(a == digits[dial]) if rule == "count" else _xor(dial, decisions, a, right)
            after = (dial + 1, right + gain, gain if undo and dial + 1 < decisions else -1)
            found[a] = [(1.0, after, 0.0)]
        if undo:
            back = state if last < 0 else (dial - 1, right - last, -1)
            found[choices] = [(1.0, back, 0.0)]
        return found

    def key(state: tuple[int, int, int]) -> str:
        dial, right, last = state
        heard = ("", " The last one clicked wrong.", " The last one clicked right.")[last + 1]
        return f"Dial {dial} of {decisions}.{f' {right} right.' if visible else ''}{heard}"

    def opens(state: tuple[int, int, int]) -> bool:
        return state[0] == decisions and state[1] >= k

    size = {"decisions": decisions, "needed": k, "rule": rule, "choices": choices, "undo": undo}
    return tabulate(
        Rules(moves, key, lambda s: float(opens(s)), opens),
        {(0, 0, -1): 1.0},
        (*(f"turn to {a}" for a in range(choices)), *(["undo"] if undo else [])),
        family="lock",
        seed=seed,
        horizon=2 * decisions if undo else decisions,
        blind=not visible,
        size={**size, "visible": visible},
        facts={"digits": digits},
    )


def _xor(dial: int, decisions: int, action: int, right: int) -> int:
    """Return the change of the count that is 1 after a first choice of 1, at the end iff both differ."""
    if dial == 0:
        return action
    return (action ^ right) - right if dial == decisions - 1 else 0
