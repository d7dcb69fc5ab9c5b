"""What every world promises, for the tests of each: exact restores, fidelity, continuations that work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from accredit.planners import Place, Request
from accredit.signals.continuation import Alone, Engine, Player, Replay, check_fidelity
from accredit.worlds import World
from accredit.worlds.acting import Actor, ScriptedActor, UniformActor

__all__ = ["agrees_with_its_record", "continued", "goes_on_as_before", "walked"]

Make = Callable[[], World]


def walked(world: World, picks: Sequence[int]) -> list[tuple[str, str, float, bool, str, tuple[str, ...]]]:
    """Take actions by number, as long as the episode lasts; return all that was seen."""
    found = []
    for pick in picks:
        options = list(world.actions() or ())
        if not options:
            break
        action = options[pick % len(options)]
        seen, reward, over = world.step(action)
        found.append((action, seen, reward, over, world.key(), tuple(world.actions() or ())))
    return found


def goes_on_as_before(make: Make, before: Sequence[int], after: Sequence[int], between: Sequence[int]):
    """A restored world, or another one, shows, pays and allows what it did; snapshots do not mix."""
    world, other = make(), make()
    world.reset(0)
    walked(world, before)
    here, token = stand(world), world.snapshot()
    first = walked(world, after)
    there, far = stand(world), world.snapshot()
    for again in (world, other):
        again.restore(token)
        assert here == stand(again)
        walked(again, between)
        again.restore(token)
        assert first == walked(again, after)
        walked(again, between)
        assert again.restore(far) == again.seen()
        assert there == stand(again)


def stand(world: World) -> tuple[str, str, tuple[str, ...], int | None]:
    """All that a world says of where it stands."""
    return world.key(), world.seen(), tuple(world.actions() or ()), world.steps_left()


def places(make: Make, actions: Sequence[str]) -> tuple[list[Place], list[tuple[str, str]]]:
    """Places before each action of an episode, and what follows each."""
    world, found, nexts = make(), [], []
    world.reset(0)
    for t, action in enumerate(actions):
        found.append(Place("g", f"step {t}", tuple(actions[:t]), 0, world.key(), "r", t))
        world.step(action)
        nexts.append((action, world.key()))
    return found, nexts


def agrees_with_its_record(make: Make, actions: Sequence[str]) -> None:
    """check_fidelity passes on a recorded episode, and fails on one that was not played here."""
    recorded, nexts = places(make, actions)
    checked = check_fidelity(Replay(lambda group: make()), recorded, nexts)
    assert 0 == checked.mismatches
    assert 3 * min(len(actions), 20) == checked.restores
    other = [replace(place, state=place.state + " of another world") for place in recorded]
    assert 1.0 == check_fidelity(Replay(lambda group: make()), other, nexts).rate


def continued(make: Make, requests: Sequence[Request], actor: Actor | None = None, *, slots: int = 2):
    """Outcomes of continuations; nothing may fail on the way."""
    crew = Alone(Player(Replay(lambda group: make()), {"actor": actor or UniformActor()}, slots=slots))
    with Engine(crew) as engine:
        answers = engine.run(requests)
        assert not engine.ledger.status.get("failed_restore")
        assert not engine.ledger.status.get("infra_error")
    return answers


def scripted(actions: Sequence[str]) -> ScriptedActor:
    """Follows a recorded episode."""
    return ScriptedActor(lambda scene: actions[len(scene.history)], name="/".join(actions)[:40])
