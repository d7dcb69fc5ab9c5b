"""Going back to a state: worlds that stand where a rollout was."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

from accredit.errors import ProbeError
from accredit.planners import Place
from accredit.worlds import Cost, World

__all__ = ["Replay", "RestoreFailed", "Restorer"]


class RestoreFailed(ProbeError):
    """A state could not be reached again."""


class Restorer(Protocol):
    """Gives worlds that stand at a place.

    Attributes:
        fidelity: ``exact`` (a copy of the state), ``replay`` (its actions are taken again) or
            ``best-effort``.
        cost: what was spent on restoring.
    """

    fidelity: str
    cost: Cost

    def stand(self, place: Place) -> World:
        """Return a world at the place, for the caller alone until it is released.

        Raises:
            RestoreFailed: if the state there is another one than recorded.
        """
        ...

    def release(self, world: World, place: Place) -> None:
        """Take a world back."""
        ...


class Replay:
    """Takes the recorded actions again from the start; keeps snapshots of what it passed.

    Where a world's snapshots are exact, the longest prefix that was reached before is restored and
    only the rest is played.  Snapshots are shared by all worlds of a group and never changed.

    Args:
        make: returns a new world for a group.
        keep: snapshots kept, the least used are dropped.

    Raises:
        ProbeError: if the world says that its steps have effects outside.
    """

    def __init__(self, make: Callable[[str], World], *, keep: int = 1024) -> None:
        self._make, self._keep = make, keep
        self._free: dict[str, list[World]] = {}
        self._tokens: OrderedDict[tuple[str, int, tuple[str, ...]], Any] = OrderedDict()
        self.fidelity = "replay"
        self.cost = Cost()

    def stand(self, place: Place) -> World:
        """Return a world at the place.

        Raises:
            RestoreFailed: if a recorded action is not possible, or the state is another one.
            ProbeError: if the world has effects outside.
        """
        world = self._world(place.group)
        done = self._nearest(world, place)
        for t in range(done, len(place.actions)):
            self._again(world, place, t)
        self._remember(world, place, len(place.actions))
        if place.state and world.key() != place.state:
            raise RestoreFailed(
                f"step {place.step} of {place.rollout or place.group!r}: the state is {world.key()[:80]!r}, "
                f"recorded was {place.state[:80]!r}",
                hint="The world is not the one that was recorded, or its chance does not follow its seed",
            )
        return world

    def release(self, world: World, place: Place) -> None:
        """Keep the world for the next place of its group."""
        self._free.setdefault(place.group, []).append(world)

    def _world(self, group: str) -> World:
        free = self._free.get(group)
        if free:
            return free.pop()
        world = self._make(group)
        if world.side_effects:
            raise ProbeError(
                f"the world of group {group!r} has effects outside that cannot be taken back",
                hint="Continuations would repeat them: give a world without them, or a sandboxed copy",
            )
        self.fidelity = "exact" if world.exact_snapshot else "replay"
        return world

    def _nearest(self, world: World, place: Place) -> int:
        """Put the world at the longest known prefix; return its length."""
        for n in range(len(place.actions), -1, -1) if world.exact_snapshot else ():
            where = (place.group, place.start, place.actions[:n])
            if where in self._tokens:
                self._tokens.move_to_end(where)
                world.restore(self._tokens[where])
                self.cost.restores += 1
                return n
        world.reset(place.start)
        return 0

    def _again(self, world: World, place: Place, t: int) -> None:
        options = world.actions()
        if options is not None and place.actions[t] not in options:
            raise RestoreFailed(
                f"recorded action {place.actions[t]!r} of {place.rollout or place.group!r} step {t} is not "
                f"possible when it is replayed"
            )
        world.step(place.actions[t])
        self.cost.environment_steps += 1

    def _remember(self, world: World, place: Place, n: int) -> None:
        where = (place.group, place.start, place.actions[:n])
        if not world.exact_snapshot or where in self._tokens:
            return
        self._tokens[where] = world.snapshot()
        self.cost.snapshots += 1
        if len(self._tokens) > self._keep:
            self._tokens.popitem(last=False)
