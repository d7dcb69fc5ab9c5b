"""What can spoil rollouts: wrong outcomes, cut episodes, keys that merge or split, odd groups."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from accredit.errors import ParamError
from accredit.typing import Floats, Ints
from accredit.worlds.tabular import Task, codes_of

__all__ = ["Keys", "Noise", "keys_of", "stream"]


@dataclass(frozen=True, slots=True)
class Noise:
    """Options that every family takes; all off by default.

    Args:
        flip: chance that an outcome is recorded as its mirror (lowest + highest - outcome).
        truncate: chance that a rollout is cut before its end; it is recorded as truncated, with
            outcome 0.
        alias: share of the keys that are merged with another one, in pairs.
        nonce: whether each key carries a number that never comes back, so that nothing is revisited.
        ragged: whether group sizes are uniform in 1..group_size.
        duplicate: chance that a rollout is a copy of an earlier one of its group.

    Raises:
        ParamError: if a chance is not in [0, 1].
    """

    flip: float = 0.0
    truncate: float = 0.0
    alias: float = 0.0
    nonce: bool = False
    ragged: bool = False
    duplicate: float = 0.0

    def __post_init__(self) -> None:
        for f in fields(self):
            value = float(getattr(self, f.name))
            if not 0 <= value <= 1:
                raise ParamError(f"noise {f.name} is {value}", hint="Give a share between 0 and 1")


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """What methods see of each (step, state).

    Args:
        code_HN: dense codes.
        words: text of each code.
        unique: whether each occurrence gets a text of its own (paths, nonces), so that the key
            says as much as the full state.
    """

    code_HN: Ints
    words: tuple[str, ...]
    unique: bool


def keys_of(task: Task, noise: Noise) -> Keys:
    """Return the keys of a task under aliasing, seeded by the task."""
    code, words = codes_of(task.keys)
    live = np.unique(code[task.live_N])
    if noise.alias > 0:
        rng = stream(task.seed, task, 0, "alias")
        chosen = rng.permutation(live)[: 2 * round(noise.alias * live.size / 2)]
        merged = np.arange(len(words))
        merged[chosen[1::2]] = chosen[::2]
        code, words = codes_of([words[i] for i in merged[code]])
    steps = np.arange(task.horizon)
    if not task.clock:
        return Keys(np.tile(code, (task.horizon, 1)), words, task.history or noise.nonce)
    timed = tuple(f"{w} Step {t}." for t in steps.tolist() for w in words)
    return Keys(code + len(words) * steps[:, None], timed, task.history or noise.nonce)


def stream(seed: int, task: Task, group: int, name: str) -> np.random.Generator:
    """Return the chance of one purpose in one group: independent of all others and of their order."""
    word = int.from_bytes(f"{task.family}/{name}".encode()[:24].ljust(24, b"."), "little")
    return np.random.default_rng(np.random.SeedSequence([seed, task.seed, group, word]))


def drawn(seed: int, task: Task, name: str, sizes: Ints, *shape: int) -> Floats:
    """Return uniforms ``[sum of sizes, *shape]``, each group's from its own stream."""
    parts = [stream(seed, task, g, name).random((n, *shape)) for g, n in enumerate(sizes.tolist())]
    return np.concatenate(parts) if parts else np.zeros((0, *shape))


def drawn_normal(seed: int, task: Task, name: str, sizes: Ints, *shape: int) -> Floats:
    """Return standard normals ``[sum of sizes, *shape]``, each group's from its own stream."""
    parts = [stream(seed, task, g, name).standard_normal((n, *shape)) for g, n in enumerate(sizes.tolist())]
    return np.concatenate(parts) if parts else np.zeros((0, *shape))
