"""Small functions, the places where a bug may hide in them, and inputs that show it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["PROGRAMS", "Program", "source_of"]


@dataclass(frozen=True, slots=True)
class Program:
    """A function that is right, and how it may be wrong.

    Args:
        right: the function.
        task: what it should do.
        spots: for pieces of its source, each in one line only, what may stand there instead.
        inputs: draws arguments, JSON values.
    """

    right: Callable[..., Any]
    task: str
    spots: Mapping[str, tuple[str, ...]]
    inputs: Callable[[np.random.Generator], list[Any]]


def source_of(program: Program) -> list[str]:
    """Return the lines of the right source."""
    return inspect.getsource(program.right).rstrip().split("\n")


def position(values: list[int], wanted: int) -> int:
    low, high = 0, len(values) - 1
    while low <= high:
        middle = (low + high) // 2
        if values[middle] == wanted:
            return middle
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle - 1
    return -1


def runs(text: str) -> list[list[Any]]:
    found: list[list[Any]] = []
    for letter in text:
        if found and found[-1][0] == letter:
            found[-1][1] += 1
        else:
            found.append([letter, 1])
    return found


def merged(spans: list[list[int]]) -> list[list[int]]:
    found: list[list[int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([start, end])
    return found


def balanced(text: str) -> bool:
    depth = 0
    for letter in text:
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
        if depth < 0:
            return False
    return depth == 0


def _sorted_and_one(rng: np.random.Generator) -> list[Any]:
    values = sorted(set(rng.integers(0, 20, size=int(rng.integers(0, 9))).tolist()))
    inside = values and rng.random() < 0.7
    return [values, values[int(rng.integers(len(values)))] if inside else int(rng.integers(0, 20))]


def _spans(rng: np.random.Generator) -> list[Any]:
    starts = rng.integers(0, 20, size=int(rng.integers(0, 6))).tolist()
    return [[[start, start + int(rng.integers(1, 6))] for start in starts]]


def _text(rng: np.random.Generator) -> list[Any]:
    return ["".join("ab"[i] for i in rng.integers(2, size=int(rng.integers(0, 9))).tolist())]


def _brackets(rng: np.random.Generator) -> list[Any]:
    """Draw nested brackets that close, and spoil every other one: read backwards, or one replaced."""
    text = ""
    for _ in range(int(rng.integers(0, 5))):
        at = int(rng.integers(len(text) + 1))
        text = text[:at] + "()" + text[at:]
    spoilt = int(rng.integers(4))
    if spoilt == 0:
        return [text[::-1]]
    if text and spoilt == 1:
        at = int(rng.integers(len(text)))
        text = text[:at] + "a"[: int(rng.integers(2))] + text[at + 1 :]
    return [text]


PROGRAMS = (
    Program(
        position,
        "position(values, wanted): the index of wanted in a sorted list, -1 if it is not there",
        {
            "low <= high": ("low < high", "low != high"),
            "low = middle + 1": ("low = middle + 2", "low = high"),
            "high = middle - 1": ("high = middle - 2", "high = low - 1"),
        },
        _sorted_and_one,
    ),
    Program(
        runs,
        "runs(text): each run of one letter with its length, in order",
        {
            "found[-1][0] == letter": ("found[0][0] == letter", "found[-1][0] != letter"),
            "found[-1][1] += 1": ("found[-1][1] = 1", "found[0][1] += 1"),
            "[letter, 1]": ("[letter, 0]", "[text, 1]"),
        },
        _text,
    ),
    Program(
        merged,
        "merged(spans): spans [start, end] joined where they touch or overlap, sorted",
        {
            "in sorted(spans)": ("in spans", "in reversed(spans)"),
            "start <= found[-1][1]": ("start < found[-1][1]", "start <= found[-1][0]"),
            "max(found[-1][1], end)": ("end", "min(found[-1][1], end)"),
        },
        _spans,
    ),
    Program(
        balanced,
        "balanced(text): whether each bracket that opens is closed, in order",
        {
            "depth += 1": ("depth = 1", "depth += 2"),
            "depth < 0": ("depth <= 0", "depth > 9"),
            "depth == 0": ("depth == 1", "depth >= 0"),
        },
        _brackets,
    ),
)
