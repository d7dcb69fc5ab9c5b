"""Environments without snapshots made into worlds: copies, states, transcripts, forked processes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from accredit.errors import ProbeError
from accredit.worlds.protocol import Cost

__all__ = ["Deepcopy", "GetSet", "Playable", "Transcript"]


class Playable(Protocol):
    """An environment that can be played; what a `World` is without snapshots."""

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
        """Return after how many more steps the episode ends; None = no limit."""
        ...

    def reseed(self, seed: int) -> None:
        """Give the rest of the episode another chance."""
        ...

    def seen(self) -> str:
        """Return what is seen of the present state."""
        ...

    def key(self) -> str:
        """Return the key of the present state."""
        ...


class _Played:
    """Plays an environment and counts; who derives from it saves and restores."""

    snapshot_cost = 0.0

    def __init__(self, play: Playable, *, deterministic: bool, side_effects: bool, exact: bool) -> None:
        self._play = play
        self.deterministic, self.side_effects, self.exact_snapshot = deterministic, side_effects, exact
        self.cost = Cost()

    def reset(self, seed: int) -> str:
        """Begin an episode; return what is seen."""
        return self._play.reset(seed)

    def step(self, action: str) -> tuple[str, float, bool]:
        """Take an action."""
        self.cost.environment_steps += 1
        return self._play.step(action)

    def actions(self) -> Sequence[str] | None:
        """Return what can be done here."""
        return self._play.actions()

    def steps_left(self) -> int | None:
        """Return after how many more steps the episode ends."""
        return self._play.steps_left()

    def cut(self) -> bool:
        """Return whether the environment says that its step limit alone ended the episode."""
        told = getattr(self._play, "cut", None)
        return bool(told()) if callable(told) else False

    def reseed(self, seed: int) -> None:
        """Give the rest of the episode another chance."""
        self._play.reseed(seed)

    def seen(self) -> str:
        """Return what is seen."""
        return self._play.seen()

    def key(self) -> str:
        """Return the key of the present state."""
        return self._play.key()


class Deepcopy(_Played):
    """Snapshots are deep copies.

    Args:
        play: whose whole state is in Python objects that can be copied.
        deterministic: whether the same actions always lead to the same state.
        side_effects: whether its steps change something outside.
    """

    def __init__(self, play: Playable, *, deterministic: bool = False, side_effects: bool = False) -> None:
        super().__init__(play, deterministic=deterministic, side_effects=side_effects, exact=True)

    def snapshot(self) -> Any:
        """Return a copy."""
        self.cost.snapshots += 1
        return copy.deepcopy(self._play)

    def restore(self, token: Any) -> str:
        """Go back to a snapshot, which stays usable."""
        self.cost.restores += 1
        self._play = copy.deepcopy(token)
        return self.seen()


class GetSet(_Played):
    """Snapshots are what the environment gives as its state, and takes back.

    Args:
        play: any.
        get: returns the whole state, chance included, as a value that later steps do not change.
        set: puts it back, into any environment of the same make.
        deterministic: whether the same actions always lead to the same state.
        side_effects: whether its steps change something outside.
        exact: whether the state is all of it; say False where something is left out.
    """

    def __init__(
        self,
        play: Playable,
        get: Callable[[Any], Any],
        set: Callable[[Any, Any], None],  # noqa: A002 - its opposite is get
        *,
        deterministic: bool = False,
        side_effects: bool = False,
        exact: bool = True,
    ) -> None:
        super().__init__(play, deterministic=deterministic, side_effects=side_effects, exact=exact)
        self._get, self._set = get, set

    def snapshot(self) -> Any:
        """Return the state."""
        self.cost.snapshots += 1
        return self._get(self._play)

    def restore(self, token: Any) -> str:
        """Put a state back."""
        self.cost.restores += 1
        self._set(self._play, token)
        return self.seen()


class Transcript(_Played):
    """Snapshots are all that was done since the start; it is done again, and the state compared.

    Args:
        play: whose chance follows the seed of its start.
        deterministic: whether the same actions always lead to the same state, whatever the seed.
        side_effects: whether its steps change something outside: then they would be repeated.
    """

    def __init__(self, play: Playable, *, deterministic: bool = False, side_effects: bool = False) -> None:
        super().__init__(play, deterministic=deterministic, side_effects=side_effects, exact=True)
        self._done: tuple[tuple[str, Any], ...] = ()

    def reset(self, seed: int) -> str:
        """Begin an episode."""
        self._done = (("reset", seed),)
        return super().reset(seed)

    def step(self, action: str) -> tuple[str, float, bool]:
        """Take an action."""
        self._done = (*self._done, ("step", action))
        self.snapshot_cost = float(sum(what == "step" for what, _ in self._done))
        return super().step(action)

    def reseed(self, seed: int) -> None:
        """Give the rest of the episode another chance."""
        self._done = (*self._done, ("reseed", seed))
        super().reseed(seed)

    def snapshot(self) -> Any:
        """Return what was done, and the key that it led to."""
        self.cost.snapshots += 1
        return self._done, self.key()

    def restore(self, token: Any) -> str:
        """Do it again.

        Raises:
            ProbeError: if it leads to another state.
        """
        self.cost.restores += 1
        done, key = token
        for what, with_ in done:
            getattr(self, what)(with_)
        if self.key() != key:
            raise ProbeError(
                f"the same actions led to {self.key()[:80]!r}, before they led to {key[:80]!r}",
                hint="The environment's chance does not follow the seed of its start: copy it, or fork it",
            )
        return self.seen()
