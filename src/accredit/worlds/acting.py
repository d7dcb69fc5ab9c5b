"""Who plays a world: an actor chooses what to do in scenes, several at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from accredit.errors import DataError, ParamError
from accredit.typing import Floats
from accredit.worlds.policies import Policy
from accredit.worlds.tabular import Task

__all__ = [
    "Actor",
    "Choice",
    "Scene",
    "ScriptedActor",
    "TableActor",
    "UniformActor",
    "WeighedActor",
    "Weighing",
]


@dataclass(frozen=True, slots=True)
class Scene:
    """What an actor knows when it chooses.

    Args:
        group: task; names the world.
        key: of the state.
        seen: what the world shows of it.
        actions: what can be done; None = free text.
        history: actions since the episode began.
        agent: who decides here; "" where only one does.
    """

    group: str
    key: str
    seen: str
    actions: tuple[str, ...] | None
    history: tuple[str, ...] = ()
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """What an actor chose.

    Args:
        action: as the world takes it.
        logprob: of it, nats; None where unknown.
        tokens: generated for it.
    """

    action: str
    logprob: float | None = None
    tokens: int = 0


@runtime_checkable
class Weighing(Protocol):
    """An actor that can say how likely it takes each of the possible actions."""

    def probs(self, scenes: Sequence[Scene]) -> Sequence[Floats]:
        """Return, for each scene, the probability of each of its actions, in their order."""
        ...


class Actor(Protocol):
    """A policy that can be asked in many scenes at once.

    Attributes:
        version: changes whenever its choices could; names weights, decoding and prompt.
    """

    version: str

    def act(self, scenes: Sequence[Scene], rngs: Sequence[np.random.Generator]) -> Sequence[Choice]:
        """Return a choice for each scene, drawn with the generator beside it and nothing else."""
        ...


def drawn(probs: Floats, rng: np.random.Generator) -> int:
    """Return an index drawn by its probability, from one uniform number.

    Example:
        >>> drawn(np.array([0.0, 1.0]), np.random.default_rng(0))
        1
    """
    mass = np.cumsum(probs)
    found = int(np.searchsorted(mass, rng.random() * mass[-1], side="right"))
    return min(found, int(np.flatnonzero(probs)[-1]))


class TableActor:
    """Plays a tabular task by a table of probabilities.

    Args:
        task: whose keys name states; two live states of one key must have the same probabilities.
        policy: the table.

    Raises:
        DataError: if two states of one key differ, so that the key does not say what the policy does.
    """

    def __init__(self, task: Task, policy: Policy) -> None:
        self._actions = task.actions
        self._probs: dict[str, Floats] = {}
        for n in np.flatnonzero(task.live_N).tolist():
            row = policy.probs_NA[n]
            known = self._probs.setdefault(task.keys[n], row)
            if not np.array_equal(known, row):
                raise DataError(
                    f"states with the key {task.keys[n]!r} differ in what the policy does",
                    hint="Take a policy that sees the key only (a blind task), or other keys",
                )
        self.version = f"table:{task.family}:{task.seed}:{policy.beta:.12g}"

    def act(self, scenes: Sequence[Scene], rngs: Sequence[np.random.Generator]) -> Sequence[Choice]:
        """Return a draw from the row of each scene's key."""
        return [self._one(scene, rng) for scene, rng in zip(scenes, rngs, strict=True)]

    def probs(self, scenes: Sequence[Scene]) -> Sequence[Floats]:
        """Return the probabilities of each scene's actions."""
        place = {a: i for i, a in enumerate(self._actions)}
        return [self._row(s)[[place[a] for a in s.actions or ()]] for s in scenes]

    def _row(self, scene: Scene) -> Floats:
        key = scene.key if scene.key in self._probs else scene.key.rpartition(" Step ")[0]
        if key not in self._probs:
            raise DataError(f"the table has no state {scene.key[:80]!r}")
        return self._probs[key]

    def _one(self, scene: Scene, rng: np.random.Generator) -> Choice:
        probs = self._row(scene)
        a = drawn(probs, rng)
        return Choice(self._actions[a], float(np.log(probs[a])))


class UniformActor:
    """Chooses any of the possible actions alike."""

    version = "uniform"

    def act(self, scenes: Sequence[Scene], rngs: Sequence[np.random.Generator]) -> Sequence[Choice]:
        """Return a uniform draw for each scene.

        Raises:
            DataError: if a scene does not say what can be done.
        """
        return [_uniform(scene, rng) for scene, rng in zip(scenes, rngs, strict=True)]

    def probs(self, scenes: Sequence[Scene]) -> Sequence[Floats]:
        """Return equal probabilities for each scene's actions."""
        return [np.full(len(s.actions or ()), 1 / max(len(s.actions or ()), 1)) for s in scenes]


class ScriptedActor:
    """Does what a rule says, and now and then anything else.

    Args:
        rule: the action for a scene.
        error: chance of a uniform choice instead.
        name: of the rule, for the version.
    """

    def __init__(self, rule: Callable[[Scene], str], *, error: float = 0.0, name: str = "scripted") -> None:
        if not 0 <= error <= 1:
            raise ParamError(f"error is a chance, in [0, 1]; got {error!r}")
        self._rule, self._error = rule, error
        self.version = f"{name}:{error:g}"

    def act(self, scenes: Sequence[Scene], rngs: Sequence[np.random.Generator]) -> Sequence[Choice]:
        """Return the rule's action for each scene, or with the chance of an error any."""
        return [self._one(scene, rng) for scene, rng in zip(scenes, rngs, strict=True)]

    def _one(self, scene: Scene, rng: np.random.Generator) -> Choice:
        if self._error and rng.random() < self._error:
            return _uniform(scene, rng)
        return Choice(self._rule(scene))


class WeighedActor:
    """Draws by weights that a rule gives to the possible actions.

    Args:
        weigh: the weights of a scene's actions, in their order.
        name: of the rule, for the version; it must change whenever the rule does otherwise than by
            what it was told in the course of one job.
    """

    def __init__(self, weigh: Callable[[Scene], Floats], name: str = "weighed") -> None:
        self._weigh, self.version = weigh, name

    def act(self, scenes: Sequence[Scene], rngs: Sequence[np.random.Generator]) -> Sequence[Choice]:
        """Return a draw for each scene."""
        return [self._one(scene, rng) for scene, rng in zip(scenes, rngs, strict=True)]

    def probs(self, scenes: Sequence[Scene]) -> Sequence[Floats]:
        """Return the probability of each scene's actions."""
        return [weights / weights.sum() for weights in map(self._weigh, scenes)]

    def _one(self, scene: Scene, rng: np.random.Generator) -> Choice:
        (probs,) = self.probs([scene])
        a = drawn(probs, rng)
        return Choice((scene.actions or ())[a], float(np.log(probs[a])))


def _uniform(scene: Scene, rng: np.random.Generator) -> Choice:
    if not scene.actions:
        raise DataError(
            f"state {scene.key[:80]!r} does not say what can be done", hint="A uniform choice needs a list"
        )
    pick = int(rng.integers(len(scene.actions)))
    return Choice(scene.actions[pick], -float(np.log(len(scene.actions))))
