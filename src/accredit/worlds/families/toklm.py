"""Toklm: an autoregressive table model writes a string that a rule can check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from accredit.errors import ParamError
from accredit.worlds.tabular import Move, Rules, Task, tabulate

__all__ = ["RULES", "make"]

RULES = ("parity", "brackets", "copy")
_LETTERS = "abcdefghijklmnop"


def make(
    seed: int,
    *,
    rule: str = "brackets",
    vocabulary: int = 8,
    length: int = 12,
    tokens_per_step: int = 3,
    mistakes: int = 2,
) -> Task:
    """Return a task whose actions are tokens; the outcome is 1 when the string obeys the rule.

    ``parity``: an even number of tokens from the first half of the vocabulary.  ``brackets``: the
    brackets balance; the other tokens are letters.  ``copy``: the string differs from a given one in
    at most ``mistakes`` places.  The model's logits depend on the place, the rule's memory and
    the last token.

    States: (place, memory, last token), listed in ``facts["states"]``.  Key of a step: the whole
    string so far.

    Args:
        seed: of the model and of the string to copy.
        rule: one of `RULES`.
        vocabulary: tokens, 4 to 16.
        length: tokens a string, 6 to 20.
        tokens_per_step: consecutive tokens that make one step of a rollout.
        mistakes: allowed in copy.
    """
    if rule not in RULES or not 3 <= vocabulary <= len(_LETTERS) or length < 1 or tokens_per_step < 1:
        raise ParamError(f"toklm: rule={rule!r}, vocabulary={vocabulary}, length={length} out of range")
    rng = np.random.default_rng(np.random.SeedSequence([seed, 9]))
    given = rng.integers(0, vocabulary, length).tolist()
    half = vocabulary // 2

    def remember(memory: int, place: int, token: int) -> int:
        if rule == "parity":
            return memory ^ int(token < half)
        if rule == "copy":
            return min(memory + int(token != given[place]), mistakes + 1)
        if memory < 0:
            return memory
        return memory + (1 if token == 0 else -1 if token == 1 else 0)

    def moves(state: tuple[int, int, int]) -> Mapping[int, Sequence[Move]]:
        place, memory, _ = state
        if place == length:
            return {}
        return {a: [(1.0, (place + 1, remember(memory, place, a), a), 0.0)] for a in range(vocabulary)}

    def obeys(state: tuple[int, int, int]) -> bool:
        return state[0] == length and (state[1] <= mistakes if rule == "copy" else state[1] == 0)

    tokens = ("(", ")", *_LETTERS)[:vocabulary] if rule == "brackets" else tuple(_LETTERS[:vocabulary])
    prompt = f"Copy {''.join(tokens[i] for i in given)}." if rule == "copy" else f"Write {rule}."
    size = {"rule": rule, "vocabulary": vocabulary, "length": length, "tokens_per_step": tokens_per_step}
    return tabulate(
        Rules(moves, lambda s: f"{prompt} {s[0]} written.", lambda s: float(obeys(s)), obeys),
        {(0, 0, -1): 1.0},
        tokens,
        family="toklm",
        seed=seed,
        horizon=length,
        history=True,
        tokens_per_step=tokens_per_step,
        size={**size, "mistakes": mistakes},
        of_states=lambda states: {"facts": {"rule": rule, "given": given, "states": tuple(states)}},
    )
