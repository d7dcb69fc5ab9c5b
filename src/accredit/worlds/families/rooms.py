"""Rooms: a text game with revisits.

Find the item, then the goal room.  Doors join the rooms of a random connected graph, some one way;
a try that fails or slips leaves everything as it was, so that loops arise by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from accredit.errors import ParamError
from accredit.worlds.tabular import Move, Rules, Task, tabulate

__all__ = ["make"]

NAMES = (
    "kitchen hall cellar attic study garden library pantry garage studio chapel gallery bedroom tower "
    "balcony workshop nursery lounge vault stable porch larder office bathroom corridor armoury "
    "greenhouse laundry terrace archive"
).split()
ITEMS = ("key", "lamp", "map")
WAYS = ("north", "east", "south", "west")


def make(
    seed: int,
    *,
    rooms: int = 8,
    items: int = 1,
    extra_doors: int = 3,
    one_way: float = 0.1,
    slip: float = 0.1,
) -> Task:
    """Return a task; the outcome is 1 when the goal room is reached with every item.

    States: (room, items held).  Key: both, as text.  Horizon 2 * rooms.

    Args:
        seed: of the map.
        rooms: 6 to 30.
        items: to be taken before the goal counts, 0 to 3.
        extra_doors: doors beside those that join all rooms.
        one_way: chance that an extra door opens from one side only.
        slip: chance that any action does nothing.
    """
    if not 2 <= rooms <= len(NAMES) or not 0 <= items <= len(ITEMS) or not 0 <= slip < 1:
        raise ParamError(f"rooms: rooms={rooms}, items={items}, slip={slip} out of range")
    rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))
    doors = _doors(rng, rooms, extra_doors, one_way)
    names = [NAMES[i] for i in rng.permutation(len(NAMES))[:rooms]]
    start, goal = 0, rooms - 1
    places = rng.choice(np.arange(rooms), items, replace=items > rooms).tolist()
    full = (1 << items) - 1

    def moves(state: tuple[int, int]) -> Mapping[int, Sequence[Move]]:
        room, held = state
        if (room, held) == (goal, full):
            return {}
        after = {a: (doors.get((room, a), room), held) for a in range(len(WAYS))}
        found = sum(1 << i for i, place in enumerate(places) if place == room)
        after[len(WAYS)] = (room, held | found)
        return {a: [(1 - slip, s, 0.0), (slip, state, 0.0)] for a, s in after.items()}

    def key(state: tuple[int, int]) -> str:
        carried = [ITEMS[i] for i in range(items) if state[1] >> i & 1]
        return f"You are in the {names[state[0]]}. You carry {' and '.join(carried) or 'nothing'}."

    return tabulate(
        Rules(moves, key, lambda s: float(s == (goal, full)), lambda s: s == (goal, full)),
        {(start, 0): 1.0},
        (*(f"go {way}" for way in WAYS), "take"),
        family="rooms",
        seed=seed,
        horizon=2 * rooms,
        size={"rooms": rooms, "items": items, "extra_doors": extra_doors, "one_way": one_way, "slip": slip},
        facts={"goal": names[goal], "items": {ITEMS[i]: names[p] for i, p in enumerate(places)}},
    )


def _doors(rng: np.random.Generator, rooms: int, extra: int, one_way: float) -> dict[tuple[int, int], int]:
    """Return where each (room, way) leads: a random tree of two-way doors, then extra ones."""
    doors: dict[tuple[int, int], int] = {}
    for room in range(1, rooms):
        others = [r for r in range(room) if _free(doors, r)]
        _open(rng, doors, (a := int(rng.choice(others))), room)
        _open(rng, doors, room, a)
    for _ in range(extra):
        open_rooms = [r for r in range(rooms) if _free(doors, r)]
        if len(open_rooms) < 2:
            break
        a, b = rng.choice(open_rooms, 2, replace=False).tolist()
        _open(rng, doors, a, b)
        if rng.random() >= one_way:
            _open(rng, doors, b, a)
    return doors


def _free(doors: dict[tuple[int, int], int], room: int) -> list[int]:
    return [way for way in range(len(WAYS)) if (room, way) not in doors]


def _open(rng: np.random.Generator, doors: dict[tuple[int, int], int], a: int, b: int) -> None:
    doors[a, int(rng.choice(_free(doors, a)))] = b
