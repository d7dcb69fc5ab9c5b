"""What ScienceWorld's world does with the simulator's answers, and says where there is none; no JVM."""

from __future__ import annotations

import os
import shutil
import sys
from types import ModuleType
from typing import Any

import pytest

from accredit.data import Batch
from accredit.errors import BackendError, DataError, ParamError
from accredit.oracle.named import world_named
from accredit.worlds.science import ScienceWorld, _java_options, _kinds, _makes_sense, _plain


def thing(uuid: int, name: str, *inside: dict[str, Any], wired: bool = False) -> dict[str, Any]:
    """An object as the simulator writes it."""
    contents = {f"{inner['name']}-{inner['uuid']}": inner for inner in inside}
    electric = {"connectedTo": []} if wired else None
    return {"uuid": str(uuid), "name": name, "propElectricalConnection": electric, "contents": contents}


KITCHEN = thing(
    1,
    "kitchen",
    thing(2, "air"),
    thing(3, "sink", thing(4, "cup")),
    thing(5, "agent", thing(6, "inventory", thing(7, "pot", thing(8, "water")))),
    thing(9, "wire", thing(10, "terminal 1", wired=True)),
)
TREE = thing(0, "universe", KITCHEN, thing(11, "hallway", thing(12, "picture")))
DOOR = 99  # doors are in no room


@pytest.mark.parametrize(
    ("action", "objects", "sensible"),
    [
        ("look at pot", [7], False),
        ("inventory", [], False),
        ("wait1", [], True),
        ("3", [DOOR, 1], True),
        ("open door to hallway", [DOOR], True),
        ("go to hallway", [11], True),
        ("focus on door to hallway", [DOOR], False),
        ("focus on kitchen", [1], False),
        ("focus on air", [2], False),
        ("focus on cup", [4], True),
        ("pick up cup", [4], True),
        ("move pot to sink", [7, 3], True),
        ("pour water into cup", [8, 4], True),
        ("move cup to sink", [4, 3], False),
        ("move pot to hallway", [7, 11], False),
        ("connect pot to cup", [7, 4], False),
        ("connect pot to terminal 1", [7, 10], True),
        ("disconnect cup", [4], False),
    ],
)
def test_only_what_makes_sense_is_offered(action, objects, sensible) -> None:
    assert sensible == _makes_sense(action, objects, _kinds(TREE))


def test_objects_are_the_same_whatever_their_ids_and_order() -> None:
    """After a reset the simulator numbers all objects anew."""
    swapped = thing(40, "sink", thing(42, "cup"), thing(41, "plate"))
    assert _plain(thing(3, "sink", thing(1, "plate"), thing(2, "cup"))) == _plain(swapped)
    assert _plain(thing(3, "sink", thing(1, "plate"), thing(2, "mug"))) != _plain(swapped)


def test_java_gets_its_options_only_while_it_starts(monkeypatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xmx1g")
    with _java_options("-XX:hashCode=2"):
        assert "-Xmx1g -XX:hashCode=2" == os.environ["JAVA_TOOL_OPTIONS"]
    assert "-Xmx1g" == os.environ["JAVA_TOOL_OPTIONS"]
    monkeypatch.delenv("JAVA_TOOL_OPTIONS")
    with _java_options("-XX:hashCode=2"):
        assert "-XX:hashCode=2" == os.environ["JAVA_TOOL_OPTIONS"]
    assert "JAVA_TOOL_OPTIONS" not in os.environ


def test_what_is_missing_is_said_with_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "scienceworld", None)
    with pytest.raises(BackendError, match=r"ScienceWorld is not installed.*worlds-more"):
        ScienceWorld("boil")
    there = ModuleType("scienceworld")
    there.ScienceWorldEnv = None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "scienceworld", there)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(BackendError, match=r"needs Java.*apt-get install default-jre-headless"):
        ScienceWorld("boil")


def test_its_name_says_task_and_variation(monkeypatch) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(
        "accredit.oracle.named.ScienceWorld", lambda *args, **size: asked.append((*args, size))
    )
    batch = Batch.from_records([{"id": "a", "group": "g", "steps": []}])
    world_named("scienceworld:boil:3", batch)("g")
    world_named("scienceworld:find-plant", batch, horizon=7)("g12")
    assert [("boil", 3, {}), ("find-plant", 12, {"horizon": 7})] == asked
    with pytest.raises(DataError, match="does not end in a seed"):
        world_named("scienceworld:boil", batch)("g")
    with pytest.raises(ParamError, match="no world 'scienceworld'"):
        world_named("scienceworld", batch)
