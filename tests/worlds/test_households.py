"""Households drawn by a seed: the task can be fulfilled and is not at the start; rules in plain Python."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.errors import BackendError, ParamError
from accredit.worlds.household import HouseholdWorld
from accredit.worlds.households import LARGEST, SMALLEST, TASKS, House, house

seeds = st.integers(0, 100_000)
sizes = st.integers(SMALLEST, LARGEST)
tasks = st.sampled_from(list(TASKS))
MARKS = {
    "clean": ("cleanable", "sinkbasin"),
    "heat": ("heatable", "microwave"),
    "cool": ("coolable", "fridge"),
}


@dataclass
class Played:
    """ALFWorld's rules over the facts of a problem, as plainly as they can be said."""

    facts: set[tuple[str, ...]]
    at: str = ""
    held: str = ""
    opened: set[str] = field(default_factory=set)
    marks: set[tuple[str, str]] = field(default_factory=set)

    @classmethod
    def of(cls, home: House) -> Played:
        inits = home.problem.partition("(:init")[2].partition("(:goal")[0]
        return cls({tuple(fact.split()) for fact in re.findall(r"\(([^()]+)\)", inits)})

    def kind(self, name: str) -> str:
        return next(
            f[2].removesuffix("Type")
            for f in self.facts
            if f[:2] in (("receptacleType", name), ("objectType", name))
        )

    def here(self, place: str) -> None:
        assert self.at == place

    def reachable(self, place: str) -> None:
        self.here(place)
        assert ("openable", place) not in self.facts or place in self.opened

    def give(self, command: str) -> None:
        verb, _, rest = command.partition(" ")
        names = [name.replace(" ", "_") for name in re.findall(r"[a-z]+ \d+", rest)]
        getattr(self, verb)(*names)

    def go(self, place: str) -> None:
        assert any(f[:2] == ("receptacleAtLocation", place) for f in self.facts)
        self.at = place

    def open(self, place: str) -> None:
        self.here(place)
        assert ("openable", place) in self.facts
        assert place not in self.opened
        self.opened.add(place)

    def take(self, thing: str, place: str) -> None:
        self.reachable(place)
        assert not self.held
        assert ("pickupable", thing) in self.facts
        self.facts.remove(("inReceptacle", thing, place))
        self.held = thing

    def move(self, thing: str, place: str) -> None:
        self.reachable(place)
        assert self.held == thing
        assert ("canContain", f"{self.kind(place)}Type", f"{self.kind(thing)}Type") in self.facts
        self.facts.add(("inReceptacle", thing, place))
        self.held = ""

    def treat(self, how: str, thing: str, place: str) -> None:
        self.here(place)
        assert self.held == thing
        assert ((MARKS[how][0], thing) in self.facts, MARKS[how][1]) == (True, self.kind(place))
        self.marks.add((how, thing))

    def clean(self, thing: str, place: str) -> None:
        self.treat("clean", thing, place)

    def heat(self, thing: str, place: str) -> None:
        self.treat("heat", thing, place)

    def cool(self, thing: str, place: str) -> None:
        self.treat("cool", thing, place)

    def use(self, thing: str) -> None:
        assert ("toggleable", thing) in self.facts
        assert ("inReceptacle", thing, self.at) in self.facts
        self.marks.add(("use", thing))

    def fulfilled(self, home: House) -> bool:
        """Whether the sentence of the task is true."""
        words = home.sentence.split()
        if words[0] == "look":
            lamps = {
                lamp
                for mark, lamp in self.marks
                if mark == "use" and ("inReceptacle", lamp, self.at) in self.facts
            }
            return bool(lamps and self.held and self.kind(self.held) == words[3])
        wanted, target = words[-3], words[-1]
        how = {"clean": "clean", "hot": "heat", "cool": "cool"}.get(words[2], "")
        placed: dict[str, int] = {}
        for name, *rest in self.facts:
            if name == "inReceptacle" and (self.kind(rest[0]), self.kind(rest[1])) == (wanted, target):
                placed[rest[1]] = placed.get(rest[1], 0) + (not how or (how, rest[0]) in self.marks)
        return max(placed.values(), default=0) >= (2 if words[1] == "two" else 1)


@given(seeds, tasks, sizes)
@settings(max_examples=100)
def test_the_solution_obeys_the_rules_and_fulfils_the_task_with_its_last_command(seed, task, size) -> None:
    home = house(seed, task=task, size=size)
    played = Played.of(home)
    for command in home.solution:
        assert not played.fulfilled(home)
        played.give(command)
    assert played.fulfilled(home)


@given(seeds, sizes)
def test_a_household_follows_its_seed_and_has_the_size_that_was_asked_for(seed, size) -> None:
    home = house(seed, size=size)
    assert home == house(seed, size=size)
    assert size == len(set(home.receptacles))
    assert not {"fridge 2", "microwave 2", "sinkbasin 2", "toilet 2", "bed 2", "sofa 2"} & set(
        home.receptacles
    )
    assert max(size - 1, 2) <= len(home.things) <= max(size - 1, 3)
    assert set(home.things.values()) <= set(home.receptacles)
    assert home.problem.count("(") == home.problem.count(")")


def test_every_task_is_drawn_and_seeds_differ() -> None:
    drawn = [house(seed) for seed in range(60)]
    assert set(TASKS) == {home.task for home in drawn}
    assert {"bathroom", "bedroom", "kitchen", "livingroom"} == {home.room for home in drawn}
    assert 58 <= len({home.problem for home in drawn})


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ParamError, match="pick_two_obj_and_place"):
        house(1, task="pick_two_obj")
    for size in (2, 17):
        with pytest.raises(ParamError, match="must be 3 to 16"):
            house(1, size=size)


def test_without_the_engine_a_household_says_what_to_install(monkeypatch) -> None:
    with pytest.raises(ParamError, match="horizon is 0"):
        HouseholdWorld(1, horizon=0)
    monkeypatch.setitem(sys.modules, "fast_downward", None)
    with pytest.raises(BackendError, match=r"is not installed.*worlds-more"):
        HouseholdWorld(1)
