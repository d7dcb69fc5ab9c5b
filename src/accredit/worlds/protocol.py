"""What a world offers: play, a key of what is seen, and snapshots whose cost is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

__all__ = ["Cost", "LimitedWorld", "SharedWorld", "World", "agent_of", "was_cut"]


@dataclass(slots=True)
class Cost:
    """Counters of what was spent; they only grow.

    Args:
        environment_steps: actions given to an environment, continuations included.
        continuations: rollouts that went on from a restored state.
        snapshots: states saved.
        restores: states restored.
        tokens: tokens that a policy generated.
        scored_tokens: tokens that were scored by a forward pass only.
        judge_calls: questions to a judge.
        annotator_calls: questions to an annotator or a critic.

    Example:
        >>> spent = Cost(environment_steps=3) + Cost(environment_steps=2, restores=1)
        >>> spent.environment_steps, spent.restores
        (5, 1)
    """

    environment_steps: int = 0
    continuations: int = 0
    snapshots: int = 0
    restores: int = 0
    tokens: int = 0
    scored_tokens: int = 0
    judge_calls: int = 0
    annotator_calls: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Cost)))

    def to_dict(self) -> dict[str, int]:
        """Return the counters by name."""
        return {f.name: getattr(self, f.name) for f in fields(Cost)}


@runtime_checkable
class World(Protocol):
    """An environment that can be played, and taken back to a state it was in.

    Attributes:
        exact_snapshot: whether a restored world goes on exactly as the saved one would have,
            chance included.
        snapshot_cost: environment steps that one restore costs (0: a copy; more: a replay).
        deterministic: whether the same actions from the same start always lead to the same state.
        side_effects: whether steps change something outside that a restore does not take back.
        cost: what was spent on this world so far.
    """

    exact_snapshot: bool
    snapshot_cost: float
    deterministic: bool
    side_effects: bool
    cost: Cost

    def reset(self, seed: int) -> str:
        """Begin an episode; return what is seen."""
        ...

    def step(self, action: str) -> tuple[str, float, bool]:
        """Take an action; return what is seen, the reward, and whether the episode is over."""
        ...

    def actions(self) -> Sequence[str] | None:
        """Return what can be done here; None = free text; empty = the episode is over."""
        ...

    def steps_left(self) -> int | None:
        """Return after how many more steps the world ends the episode; None = it sets no limit."""
        ...

    def reseed(self, seed: int) -> None:
        """Give the rest of the episode another chance."""
        ...

    def seen(self) -> str:
        """Return what is seen of the present state: all that an actor reads."""
        ...

    def key(self) -> str:
        """Return the key of the present state: what methods see of it."""
        ...

    def snapshot(self) -> Any:
        """Return a token of the present state, chance included."""
        ...

    def restore(self, token: Any) -> str:
        """Go back to the state of a token; return what is seen there."""
        ...


@runtime_checkable
class SharedWorld(Protocol):
    """A world in which several agents decide, one at a time."""

    def agent(self) -> str:
        """Return who decides in the present state."""
        ...


@runtime_checkable
class LimitedWorld(Protocol):
    """A world whose step limit is none of its rules: it says when that alone ended an episode."""

    def cut(self) -> bool:
        """Return whether the episode is over because of the step limit."""
        ...


def agent_of(world: World) -> str:
    """Return who decides in a world's present state; "" where only one agent plays.

    Args:
        world: any.

    Example:
        >>> from accredit.worlds import TabularWorld, make
        >>> world = TabularWorld(make("team", seed=1, agents=2))
        >>> seen = world.reset(0)
        >>> agent_of(world)
        'agent 0'
    """
    told = getattr(world, "agent", None)  # isinstance(world, SharedWorld) takes a third of a played step
    return str(told()) if callable(told) else ""


def was_cut(world: World) -> bool:
    """Return whether a world's episode was cut off by its step limit; False where it does not say.

    Args:
        world: any.
    """
    told = getattr(world, "cut", None)
    return bool(told()) if callable(told) else False
