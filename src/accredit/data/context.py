"""Context tokens: from whole prompts to the ids that each call added."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from accredit.typing import Array, Ints

__all__ = ["Break", "Context", "context_deltas"]


class Break(NamedTuple):
    """A prompt that does not continue the call before it.

    Args:
        step: 0-based step whose prompt breaks.
        position: first differing token of the prompt.
        expected: id that the earlier prompt and answer have there.
        got: id in this prompt; -1 where the prompt ends before.
        in_answer: whether the position lies in an earlier answer (re-tokenised text) rather than
            in an earlier prompt (an edited or fresh context).
    """

    step: int
    position: int
    expected: int
    got: int
    in_answer: bool


class Context(NamedTuple):
    """Added ids of each step, which steps start a fresh context, and the breaks found."""

    pieces: list[Array]
    resets: list[bool]
    breaks: list[Break]


def context_deltas(tokens: list[Ints], prompts: dict[int, Array], added: dict[int, Array]) -> Context:
    """Turn whole prompts into deltas and find where ids do not continue.

    A prompt that starts with the prompt and answer before it adds only its rest. Any other prompt
    is kept whole, marked as a reset, and reported with the first position that differs.

    Args:
        tokens: policy token ids of each step.
        prompts: whole prompt ids by step.
        added: ids added before the step, by step (ignored where the step has a whole prompt).

    Returns:
        One piece and one reset flag a step; the breaks in order.
    """
    found = Context([], [], [])
    empty = np.zeros(0, np.int64)
    running: list[Array] = []
    answers: list[tuple[int, int]] = []
    length = 0
    for t, answer in enumerate(tokens):
        piece, reset = added.get(t, empty), False
        if t in prompts:
            whole = np.concatenate(running) if running else empty
            piece, broken = _delta(whole, prompts[t], t, answers)
            if broken is not None:
                found.breaks.append(broken)
                running, answers, length, reset = [], [], 0, True
            else:
                running = [whole]
        running += [piece, answer]
        length += piece.size
        answers.append((length, length + answer.size))
        length += answer.size
        found.pieces.append(piece)
        found.resets.append(reset)
    return found


def _delta(
    whole: Array, prompt: Array, step: int, answers: list[tuple[int, int]]
) -> tuple[Array, Break | None]:
    shared = min(whole.size, prompt.size)
    differs = np.flatnonzero(whole[:shared] != prompt[:shared])
    if not differs.size and prompt.size >= whole.size:
        return prompt[whole.size :], None
    at = int(differs[0]) if differs.size else shared
    got = int(prompt[at]) if at < prompt.size else -1
    inside = any(a <= at < b for a, b in answers)
    return prompt, Break(step, at, int(whole[at]), got, inside)
