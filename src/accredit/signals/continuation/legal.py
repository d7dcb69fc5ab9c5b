"""What could be done where rollouts were, and how likely an actor takes each of it."""

from __future__ import annotations

from collections.abc import Sequence

from accredit.data import Batch
from accredit.planners.truth import places_of
from accredit.signals.continuation.restorers import RestoreFailed, Restorer
from accredit.typing import Ints
from accredit.worlds.acting import Scene, Weighing

__all__ = ["legal_actions"]


def legal_actions(
    batch: Batch, restorer: Restorer, actor: Weighing, steps: Sequence[int] | Ints | None = None
) -> list[dict[str, float]]:
    """Return the legal actions before each step, each with the actor's chance: what `AsctPlanner` asks for.

    Args:
        batch: rollouts whose steps carry every action.
        restorer: of the worlds.
        actor: that says how likely it takes each action.
        steps: step numbers to look at; None = all.

    Returns:
        One mapping a step of the batch; empty where it was not looked at, where the state could not be
        reached again, and where actions are free text.

    Example:
        >>> from accredit.signals.continuation import Replay
        >>> from accredit.worlds import TabularWorld, make
        >>> from accredit.worlds.acting import UniformActor
        >>> steps = [{"action": "turn to 0"}, {"action": "turn to 1"}]
        >>> batch = Batch.from_records([{"id": "a", "group": "g", "reward": 0, "steps": steps}])
        >>> restorer = Replay(lambda group: TabularWorld(make("lock", seed=1, choices=2)))
        >>> legal_actions(batch, restorer, UniformActor())[1]
        {'turn to 0': 0.5, 'turn to 1': 0.5}
    """
    looked = list(range(batch.n_steps)) if steps is None else [int(s) for s in steps]
    found: list[dict[str, float]] = [{} for _ in range(batch.n_steps)]
    scenes, owners = [], []
    for s, place in zip(looked, places_of(batch, looked, markov=False), strict=True):
        try:
            world = restorer.stand(place)
        except RestoreFailed:
            continue
        options = world.actions()
        if options:
            scenes.append(Scene(place.group, world.key(), world.seen(), tuple(options), place.actions))
            owners.append(s)
        restorer.release(world, place)
    for s, scene, probs in zip(owners, scenes, actor.probs(scenes), strict=True):
        found[s] = dict(zip(scene.actions or (), map(float, probs), strict=True))
    return found
