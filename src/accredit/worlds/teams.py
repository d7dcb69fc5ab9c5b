"""A team as one actor: whose turn it is, its own actor chooses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from accredit.errors import ProbeError, suggest
from accredit.typing import Floats
from accredit.worlds.acting import Actor, Choice, Scene, Weighing

__all__ = ["TeamActor"]

T = TypeVar("T")


class TeamActor:
    """Several agents that decide in turn, each with an actor of its own; the world says whose turn it is.

    The scenes of one agent are given to its actor together, so that a model is asked in batches.

    Args:
        members: agent -> its actor; one actor may play several.

    Example:
        >>> from accredit.worlds.acting import ScriptedActor, UniformActor
        >>> first = ScriptedActor(lambda scene: "go")
        >>> team = TeamActor({"planner": first, "coder": UniformActor()})
        >>> team.version
        'team(planner=scripted:0,coder=uniform)'
        >>> scene = Scene("g", "s", "s", ("stay", "go"), agent="planner")
        >>> team.act([scene], [np.random.default_rng(0)])[0].action
        'go'
    """

    def __init__(self, members: Mapping[str, Actor]) -> None:
        self._members = dict(members)
        told = ",".join(f"{name}={actor.version}" for name, actor in self._members.items())
        self.version = f"team({told})"

    def act(self, scenes: Sequence[Scene], rngs: Sequence[np.random.Generator]) -> Sequence[Choice]:
        """Return the choice of each scene's own agent.

        Raises:
            ProbeError: if a scene is of an agent that is not in the team.
        """

        def chosen(actor: Actor, numbers: Sequence[int]) -> Sequence[Choice]:
            return actor.act([scenes[i] for i in numbers], [rngs[i] for i in numbers])

        return self._by_agent(scenes, chosen)

    def probs(self, scenes: Sequence[Scene]) -> Sequence[Floats]:
        """Return the probabilities that each scene's own agent gives its actions.

        Raises:
            ProbeError: if an agent is not in the team, or its actor gives no probabilities.
        """

        def weighed(actor: Actor, numbers: Sequence[int]) -> Sequence[Floats]:
            if not isinstance(actor, Weighing):
                raise ProbeError(f"{actor.version} gives no probabilities", hint="Say continuations=")
            return actor.probs([scenes[i] for i in numbers])

        return self._by_agent(scenes, weighed)

    def _by_agent(
        self, scenes: Sequence[Scene], ask: Callable[[Actor, Sequence[int]], Sequence[T]]
    ) -> list[T]:
        """Return what each agent's actor says of its scenes, in the order of the scenes."""
        mine: dict[str, list[int]] = defaultdict(list)
        for i, scene in enumerate(scenes):
            mine[scene.agent].append(i)
        found: dict[int, T] = {}
        for agent, numbers in mine.items():
            found |= dict(zip(numbers, ask(self._member(agent), numbers), strict=True))
        return [found[i] for i in range(len(scenes))]

    def _member(self, agent: str) -> Actor:
        if agent not in self._members:
            hint = suggest(agent, self._members) if agent else "The world does not say whose turn it is"
            raise ProbeError(f"no agent {agent[:80]!r} in the team", hint=hint)
        return self._members[agent]
