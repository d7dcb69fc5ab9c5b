"""ALFWorld-style households drawn by a seed: a room, a task, its PDDL problem, and the way to fulfil it.

Pure functions; `accredit.worlds.household` plays what they draw.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from accredit.errors import ParamError, suggest

__all__ = ["LARGEST", "SMALLEST", "TASKS", "House", "house"]

SMALLEST, LARGEST = 3, 16  # receptacles
# ALFWorld's task types, and what the object must be able to before it is placed.
TASKS: Mapping[str, str] = {
    "pick_and_place_simple": "",
    "look_at_obj_in_light": "",
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
    "pick_two_obj_and_place": "",
}
_SENTENCES: Mapping[str, str] = {
    "pick_and_place_simple": "put a {thing} in/on {target}",
    "look_at_obj_in_light": "look at a {thing} under the desklamp",
    "pick_clean_then_place_in_recep": "put a clean {thing} in/on {target}",
    "pick_heat_then_place_in_recep": "put a hot {thing} in/on {target}",
    "pick_cool_then_place_in_recep": "put a cool {thing} in/on {target}",
    "pick_two_obj_and_place": "put two {thing} in/on {target}",
}
_APPLIANCES: Mapping[str, str] = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
_ABLE: Mapping[str, str] = {"clean": "cleanable", "heat": "heatable", "cool": "coolable"}
_DONE: Mapping[str, str] = {"clean": "isClean", "heat": "isHot", "cool": "isCool"}
_OPENS = frozenset({"cabinet", "drawer", "fridge", "laundryhamper", "microwave", "safe"})
# Room: its kinds of receptacles, and how many of each there can be.
_ROOMS: Mapping[str, Mapping[str, int]] = {
    "kitchen": {
        "cabinet": 6, "coffeemachine": 1, "countertop": 3, "diningtable": 1, "drawer": 4, "fridge": 1,
        "garbagecan": 1, "microwave": 1, "shelf": 3, "sinkbasin": 1, "stoveburner": 4,
    },
    "bathroom": {
        "bathtubbasin": 1, "cabinet": 5, "countertop": 2, "drawer": 3, "garbagecan": 1, "shelf": 3,
        "sinkbasin": 1, "toilet": 1,
    },
    "bedroom": {
        "bed": 1, "desk": 2, "drawer": 5, "dresser": 1, "garbagecan": 1, "laundryhamper": 1, "safe": 1,
        "shelf": 4, "sidetable": 2,
    },
    "livingroom": {
        "armchair": 2, "cabinet": 3, "coffeetable": 1, "desk": 1, "drawer": 3, "dresser": 1, "garbagecan": 1,
        "safe": 1, "shelf": 3, "sidetable": 2, "sofa": 1,
    },
}  # fmt: skip
_FOOD = ("countertop", "diningtable", "fridge", "garbagecan", "microwave", "sinkbasin")
_DISHES = (
    "cabinet",
    "coffeemachine",
    "countertop",
    "diningtable",
    "fridge",
    "microwave",
    "shelf",
    "sinkbasin",
)
_CUTLERY = ("countertop", "diningtable", "drawer", "sinkbasin")
_PANS = ("cabinet", "countertop", "diningtable", "fridge", "sinkbasin", "stoveburner")
_TOILETRIES = (
    "cabinet",
    "countertop",
    "drawer",
    "garbagecan",
    "shelf",
    "sinkbasin",
    "toilet",
    "bathtubbasin",
)
_SMALL = (
    "armchair", "bed", "cabinet", "coffeetable", "desk", "drawer", "dresser", "safe", "shelf", "sidetable",
    "sofa",
)  # fmt: skip
# Room: its kinds of things, what can be done with each, and the receptacles it can be in or on.
_THINGS: Mapping[str, Mapping[str, tuple[str, Sequence[str]]]] = {
    "kitchen": {
        "apple": ("clean heat cool", _FOOD), "bread": ("heat cool", _FOOD), "egg": ("clean heat cool", _FOOD),
        "potato": ("clean heat cool", _FOOD), "tomato": ("clean heat cool", _FOOD),
        "lettuce": ("clean cool", _FOOD), "bowl": ("clean cool", _DISHES),
        "cup": ("clean heat cool", _DISHES), "mug": ("clean heat cool", _DISHES),
        "plate": ("clean heat cool", _DISHES),
        "fork": ("clean", _CUTLERY), "ladle": ("clean", _CUTLERY), "spoon": ("clean", _CUTLERY),
        "spatula": ("clean", _CUTLERY), "pan": ("clean cool", _PANS), "pot": ("clean cool", _PANS),
        "peppershaker": ("", ("cabinet", "countertop", "diningtable", "drawer", "shelf")),
        "saltshaker": ("", ("cabinet", "countertop", "diningtable", "drawer", "shelf")),
    },
    "bathroom": {
        "cloth": ("clean", _TOILETRIES), "soapbar": ("clean", _TOILETRIES), "soapbottle": ("", _TOILETRIES),
        "candle": ("", _TOILETRIES), "spraybottle": ("", _TOILETRIES), "toiletpaper": ("", _TOILETRIES),
    },
    "bedroom": {
        "book": ("", _SMALL), "cd": ("", _SMALL), "cellphone": ("", _SMALL), "creditcard": ("", _SMALL),
        "keychain": ("", _SMALL), "pen": ("", _SMALL), "pencil": ("", _SMALL), "alarmclock": ("", _SMALL),
    },
    "livingroom": {
        "book": ("", _SMALL), "creditcard": ("", _SMALL), "keychain": ("", _SMALL), "laptop": ("", _SMALL),
        "newspaper": ("", _SMALL), "remotecontrol": ("", _SMALL), "statue": ("", _SMALL),
        "watch": ("", _SMALL),
    },
}  # fmt: skip
_LAMP = "desklamp"
_LAMP_STANDS = ("desk", "dresser", "sidetable")


@dataclass(frozen=True, slots=True)
class House:
    """A household and its task.

    Args:
        task: type, one of `TASKS`.
        sentence: the task in words.
        room: kind of room.
        receptacles: their names.
        things: name of each thing, and the receptacle it is in or on.
        problem: the same as a PDDL problem of ALFWorld's domain.
        solution: commands that fulfil the task from the start; not always the fewest.
    """

    task: str
    sentence: str
    room: str
    receptacles: tuple[str, ...]
    things: Mapping[str, str]
    problem: str
    solution: tuple[str, ...]


def house(seed: int, *, task: str | None = None, size: int = 6) -> House:
    """Return a household in which the task can be fulfilled, and is not at the start.

    Args:
        seed: draws task, room, receptacles and things.
        task: type; None = drawn too.
        size: number of receptacles, 3-16; one less is the number of things (two kinds need one more).

    Raises:
        ParamError: for an unknown type or a size out of range.

    Example:
        >>> drawn = house(3, task="pick_heat_then_place_in_recep", size=3)
        >>> drawn.sentence
        'put a hot bread in/on countertop'
    """
    if task is not None and task not in TASKS:
        raise ParamError(f"no task {task[:80]!r}", hint=suggest(task, list(TASKS)))
    if not SMALLEST <= size <= LARGEST:
        raise ParamError(f"size is {size}, must be {SMALLEST} to {LARGEST}")
    rng = np.random.default_rng([seed, size])
    drawn = list(TASKS)[int(rng.integers(len(TASKS)))]  # drawn in any case: the rest follows the seed
    plan = _plan(rng, task or drawn)
    places = _numbered([*plan.needed(), *_others(rng, plan, size)])
    things = _placed(rng, plan, places, size)
    return House(
        plan.task,
        _SENTENCES[plan.task].format(thing=plan.thing, target=plan.target),
        plan.room,
        places,
        things,
        _problem(plan, places, things),
        _solution(plan, places, things),
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a task is about: kinds only."""

    task: str
    room: str
    thing: str
    target: str  # kind of receptacle; where the lamp stands
    source: str  # kind of receptacle in or on which the thing is

    def needed(self) -> list[str]:
        """Return the kinds of receptacles without which the task cannot be fulfilled."""
        appliance = _APPLIANCES.get(TASKS[self.task])
        return list(dict.fromkeys([self.source, self.target, *([appliance] if appliance else [])]))

    @property
    def lit(self) -> bool:
        return self.task == "look_at_obj_in_light"


def _plan(rng: np.random.Generator, task: str) -> _Plan:
    """Return one of the task's plans, each equally likely within its room."""
    by_room = {room: found for room in _ROOMS if (found := list(_plans(task, room)))}
    room = list(by_room)[int(rng.integers(len(by_room)))]
    return by_room[room][int(rng.integers(len(by_room[room])))]


def _plans(task: str, room: str) -> Iterable[_Plan]:
    """Yield all plans of a task in a room: the thing is never where it shall be."""
    how = TASKS[task]
    appliance = _APPLIANCES.get(how)
    if appliance not in (None, *_ROOMS[room]):
        return
    for thing, (able, places) in _THINGS[room].items():
        inside = [place for place in places if place in _ROOMS[room]]
        targets = _LAMP_STANDS if task == "look_at_obj_in_light" else inside
        for target, source in itertools.product(targets, inside):
            fits = target in _ROOMS[room] and (not how or how in able.split())
            if fits and target not in (source, appliance):
                yield _Plan(task, room, thing, target, source)


def _others(rng: np.random.Generator, plan: _Plan, size: int) -> list[str]:
    """Return the kinds of the receptacles beside those that are needed."""
    needed = plan.needed()
    left = [kind for kind, n in _ROOMS[plan.room].items() for _ in range(n - (kind in needed))]
    return [left[i] for i in rng.permutation(len(left))[: size - len(needed)]]


def _numbered(kinds: Iterable[str]) -> tuple[str, ...]:
    """Return kinds as names: ``mug 1``, ``mug 2``; sorted."""
    found = list(kinds)
    return tuple(f"{kind} {n + 1}" for kind in sorted(set(found)) for n in range(found.count(kind)))


def _kind(name: str) -> str:
    return name.partition(" ")[0]


def _placed(rng: np.random.Generator, plan: _Plan, places: tuple[str, ...], size: int) -> dict[str, str]:
    """Return where each thing is: those of the task in their source, others anywhere they can be."""

    def somewhere(kinds: Iterable[str]) -> str:
        able = [place for place in places if _kind(place) in kinds]
        return able[int(rng.integers(len(able)))]

    wanted = 2 if plan.task == "pick_two_obj_and_place" else 1
    found = [(plan.thing, somewhere([plan.source])) for _ in range(wanted)]
    if plan.lit:
        found.append((_LAMP, somewhere([plan.target])))
    here = {_kind(place) for place in places}
    kinds = [k for k, (_, can) in _THINGS[plan.room].items() if k != plan.thing and here & set(can)]
    while kinds and len(found) < size - 1:
        kind = kinds[int(rng.integers(len(kinds)))]
        found.append((kind, somewhere(_THINGS[plan.room][kind][1])))
    names = _numbered(kind for kind, _ in found)
    return dict(zip(names, (place for _, place in sorted(found, key=lambda pair: pair[0])), strict=True))


def _solution(plan: _Plan, places: tuple[str, ...], things: Mapping[str, str]) -> tuple[str, ...]:
    """Return commands that fetch each thing of the task, treat it and put it where it shall be."""
    found: list[str] = []
    opened: set[str] = set()

    def visit(place: str, *, inside: bool) -> None:
        if next((c for c in reversed(found) if c.startswith("go to ")), "") != f"go to {place}":
            found.append(f"go to {place}")
        if inside and _kind(place) in _OPENS and place not in opened:
            opened.add(place)
            found.append(f"open {place}")

    def first(kind: str) -> str:
        return next(place for place in places if _kind(place) == kind)

    how = TASKS[plan.task]
    for thing, place in things.items():
        if _kind(thing) != plan.thing:
            continue
        visit(place, inside=True)
        found.append(f"take {thing} from {place}")
        if how:
            visit(first(_APPLIANCES[how]), inside=False)
            found.append(f"{how} {thing} with {first(_APPLIANCES[how])}")
        if plan.lit:
            visit(things[f"{_LAMP} 1"], inside=False)
            found.append(f"use {_LAMP} 1")
        else:
            visit(first(plan.target), inside=True)
            found.append(f"move {thing} to {first(plan.target)}")
    return tuple(found)


def _id(name: str) -> str:
    return name.replace(" ", "_")


def _problem(plan: _Plan, places: tuple[str, ...], things: Mapping[str, str]) -> str:
    """Return the household as a PDDL problem of ALFWorld's domain; each receptacle has its own location."""
    spot = {place: f"loc_{n + 1}" for n, place in enumerate(places)}
    place_kinds, thing_kinds = ({_kind(name) for name in names} for names in (places, things))
    # The domain's actions name these, whether or not there are any.
    rtypes = sorted(place_kinds | {"fridge", "microwave", "sinkbasin"})
    otypes = sorted(thing_kinds | {"knife", "butterknife"})
    objects = [
        "agent_1 - agent",
        *(f"{loc} - location" for loc in ("loc_0", *spot.values())),
        *(f"{_id(place)} - receptacle" for place in places),
        *(f"{_id(thing)} - object" for thing in things),
        *(f"{kind}Type - rtype" for kind in rtypes),
        *(f"{kind}Type - otype" for kind in otypes),
    ]
    facts = ["(= (total-cost) 0)", "(atLocation agent_1 loc_0)"]
    for place in places:
        facts += [f"(receptacleAtLocation {_id(place)} {spot[place]})"]
        facts += [f"(receptacleType {_id(place)} {_kind(place)}Type)"]
        facts += [f"(openable {_id(place)})"] * (_kind(place) in _OPENS)
    for kind in sorted(thing_kinds - {_LAMP}):
        facts += [
            f"(canContain {at}Type {kind}Type)" for at in _THINGS[plan.room][kind][1] if at in place_kinds
        ]
    for thing, place in things.items():
        facts += [
            f"(inReceptacle {_id(thing)} {_id(place)})",
            f"(objectAtLocation {_id(thing)} {spot[place]})",
        ]
        facts += [f"(objectType {_id(thing)} {_kind(thing)}Type)", *_abilities(plan.room, thing)]
    lines = [
        "(define (problem household) (:domain alfred)",
        "(:objects",
        *objects,
        ")",
        "(:init",
        *facts,
        ")",
    ]
    return "\n".join([*lines, f"(:goal {_goal(plan)})", "(:metric minimize (total-cost)))"])


def _abilities(room: str, thing: str) -> list[str]:
    if _kind(thing) == _LAMP:
        return [f"(toggleable {_id(thing)})"]
    able = _THINGS[room][_kind(thing)][0].split()
    return [f"(pickupable {_id(thing)})", *(f"({_ABLE[how]} {_id(thing)})" for how in able)]


def _goal(plan: _Plan) -> str:
    """Return when the task is fulfilled."""
    is_one = f"(objectType ?o {plan.thing}Type)"
    if plan.lit:
        return (
            f"(exists (?a - agent ?o - object ?l - location ?r - receptacle ?lamp - object) (and {is_one}"
            f" (holds ?a ?o) (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (inReceptacle ?lamp ?r)"
            f" (objectType ?lamp {_LAMP}Type) (isToggled ?lamp)))"
        )
    at = f"(receptacleType ?r {plan.target}Type)"
    if plan.task == "pick_two_obj_and_place":
        other = f"(objectType ?p {plan.thing}Type) (inReceptacle ?p ?r) (not (= ?o ?p))"
        return (
            f"(exists (?r - receptacle ?o - object ?p - object)"
            f" (and {at} {is_one} (inReceptacle ?o ?r) {other}))"
        )
    how = TASKS[plan.task]
    treated = f" ({_DONE[how]} ?o)" if how else ""
    return f"(exists (?r - receptacle ?o - object) (and {at} {is_one} (inReceptacle ?o ?r){treated}))"
